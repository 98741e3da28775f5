#include "codegen/kernel_emitter.hpp"

#include <algorithm>

#include "codegen/llvm_compat.hpp"
#include "support/error.hpp"

namespace cuvil {

namespace {

// Steps of an outer loop, as the parallel index counts them.
Dim steps_of(const Loop& loop, const Schedule& schedule) {
  if (schedule.is_vector(loop)) return ceil_div(loop.extent, int64_t{schedule.lanes} * schedule.vector_tile);
  if (const Schedule::Tile* tile = schedule.tile_of(loop)) return ceil_div(loop.extent, tile->size);
  return loop.extent;
}

}  // namespace

ArgumentLayout argument_layout(const Kernel& kernel) {
  ArgumentLayout layout;
  layout.symbols = kernel.symbols();
  layout.has_error = kernel.may_fail();
  layout.slots = kernel.buffers.size() + layout.symbols.size() + layout.has_error;
  return layout;
}

Dim parallel_count(const Kernel& kernel) {
  Dim count = 1;
  for (int i = 0; i < kernel.schedule.parallel_loops; ++i) {
    count = count * steps_of(kernel.outer[static_cast<size_t>(i)], kernel.schedule);
  }
  return count;
}

KernelEmitter::KernelEmitter(llvm::Module& module, const Kernel& kernel, const TargetDescription& target)
    : module_(module),
      context_(module.getContext()),
      kernel_(kernel),
      target_(target),
      b_(context_),
      lanes_(kernel.schedule.lanes) {
  llvm::FastMathFlags flags;
  flags.setAllowContract(true);
  b_.setFastMathFlags(flags);
}

llvm::Function* KernelEmitter::emit(const std::string& name) {
  auto* type = llvm::FunctionType::get(b_.getVoidTy(), {b_.getPtrTy(), b_.getInt64Ty(), b_.getInt64Ty()}, false);
  function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module_);
  function_->addFnAttr("target-cpu", target_.cpu);
  function_->addFnAttr("target-features", target_.features);
  function_->addFnAttr("prefer-vector-width", std::to_string(target_.vector_bits));
  function_->setDoesNotThrow();
  args_ = function_->getArg(0);
  b_.SetInsertPoint(llvm::BasicBlock::Create(context_, "entry", function_));
  scopes_.emplace_back();
  ArgumentLayout layout = argument_layout(kernel_);
  size_t slot = 0;
  auto next_slot = [&](llvm::Type* t) -> Value* {
    Value* at = b_.CreateConstInBoundsGEP1_64(b_.getInt64Ty(), args_, slot++);
    return b_.CreateLoad(t, at);
  };
  for (size_t i = 0; i < kernel_.buffers.size(); ++i) buffers_.push_back(next_slot(b_.getPtrTy()));
  for (const Dim& symbol : layout.symbols) bind(symbol, next_slot(b_.getInt64Ty()));
  if (layout.has_error) error_ = next_slot(b_.getPtrTy());
  sink_ = b_.CreateAlloca(b_.getInt64Ty());
  emit_steps(function_->getArg(1), function_->getArg(2));
  b_.CreateRetVoid();
  return function_;
}

void KernelEmitter::emit_steps(Value* begin, Value* end) {
  const auto parallel = static_cast<size_t>(kernel_.schedule.parallel_loops);
  if (parallel == 0) {
    emit_outer(0, {});
    return;
  }
  // The steps of all parallel loops but the first; known before the loop.
  std::vector<Value*> counts;
  for (size_t i = 1; i < parallel; ++i) counts.push_back(scalar_dim(steps_of(kernel_.outer[i], kernel_.schedule), {0}));
  loop(begin, end, 1, false, {}, [&](Value* p, Carried) -> Carried {
    std::vector<Value*> blocks(parallel);
    for (size_t i = parallel; i-- > 1;) {
      blocks[i] = b_.CreateURem(p, counts[i - 1]);
      p = b_.CreateUDiv(p, counts[i - 1]);
    }
    blocks[0] = p;
    emit_outer(0, blocks);
    return {};
  });
}

void KernelEmitter::emit_outer(size_t index, const std::vector<Value*>& parallel) {
  if (index == kernel_.outer.size()) {
    emit_phases();
    return;
  }
  const Loop& l = kernel_.outer[index];
  const Schedule& schedule = kernel_.schedule;
  auto inside = [&, index] { emit_outer(index + 1, parallel); };
  Value* block = index < parallel.size() ? parallel[index] : nullptr;
  const Schedule::Tile* tile = schedule.tile_of(l);
  if (schedule.is_vector(l)) {
    const int64_t step = int64_t{schedule.lanes} * schedule.vector_tile;
    Value* bound = bound_of(l);
    bool exact = !l.limit && exact_div(l.extent, step).has_value();
    if (block) {
      Value* start = b_.CreateMul(block, b_.getInt64(static_cast<uint64_t>(step)));
      auto full = [&] { with_vectors(l, schedule.vector_tile, start, nullptr, inside); };
      if (exact) {
        full();
      } else {
        Value* end = b_.CreateAdd(start, b_.getInt64(static_cast<uint64_t>(step)));
        branch(b_.CreateICmpSLE(end, bound), full, [&] { emit_vector_tail(l, start, bound, inside); });
      }
      return;
    }
    Value* zero = b_.getInt64(0);
    Value* full_end =
        exact ? bound : b_.CreateSub(bound, b_.CreateURem(bound, b_.getInt64(static_cast<uint64_t>(step))));
    bool some_full = l.limit || !l.extent.is_constant() || l.extent.value() >= step;
    if (some_full) {
      loop(zero, full_end, step, exact && provably_lt(0, l.extent), {}, [&](Value* start, Carried) -> Carried {
        with_vectors(l, schedule.vector_tile, start, nullptr, inside);
        return {};
      });
    }
    if (!exact) emit_vector_tail(l, full_end, bound, inside);
    return;
  }
  if (tile && tile->exact) {
    emit_exact_tile(l, tile->size, inside);
    return;
  }
  auto one = [&](Value* b) {
    if (tile) {
      emit_tile(l, *tile, b, inside);
    } else {
      bind(l.variable, b);
      inside();
    }
  };
  if (block) {
    one(block);
    return;
  }
  Value* bound = tile ? scalar_dim(steps_of(l, schedule), Point(tile_variables_.size() + 1, 0)) : bound_of(l);
  loop(b_.getInt64(0), bound, 1, !l.limit && provably_lt(0, l.extent), {}, [&](Value* b, Carried) -> Carried {
    one(b);
    return {};
  });
}

void KernelEmitter::emit_vector_tail(const Loop& l, Value* start, Value* bound, const std::function<void()>& inside) {
  loop(start, bound, lanes_, false, {}, [&](Value* at, Carried) -> Carried {
    with_vectors(l, 1, at, b_.CreateSub(bound, at), inside);
    return {};
  });
}

void KernelEmitter::with_vectors(const Loop& l, int count, Value* start, Value* live,
                                 const std::function<void()>& inside) {
  bind(l.variable, start);
  vector_variable_ = l.variable.symbol_name();
  vector_dim_variable_ = l.variable;
  vector_tile_ = count;
  if (live) {
    std::vector<llvm::Constant*> numbers;
    for (int i = 0; i < lanes_; ++i) numbers.push_back(b_.getInt32(static_cast<uint32_t>(i)));
    Value* most = b_.getInt64(static_cast<uint64_t>(lanes_));
    Value* clamped = b_.CreateSelect(b_.CreateICmpSLT(live, most), live, most);
    vector_mask_ =
        b_.CreateICmpSLT(llvm::ConstantVector::get(numbers), splat(b_.CreateTrunc(clamped, b_.getInt32Ty())));
  }
  coordinate_memo_.clear();
  inside();
  vector_variable_.clear();
  vector_mask_ = nullptr;
  vector_tile_ = 1;
  coordinate_memo_.clear();
}

void KernelEmitter::with_tile(const Loop& l, int size, Value* start, const std::function<void()>& inside) {
  bind(l.variable, start);
  tile_variables_.push_back(l.variable.symbol_name());
  tile_sizes_.push_back(size);
  auto* constant = llvm::dyn_cast<llvm::ConstantInt>(start);
  tile_from_zero_.push_back(constant && constant->isZero());
  coordinate_memo_.clear();
  inside();
  tile_variables_.pop_back();
  tile_sizes_.pop_back();
  tile_from_zero_.pop_back();
  coordinate_memo_.clear();
}

// All of a small loop at once; its limit may cut it short.
void KernelEmitter::emit_exact_tile(const Loop& l, int size, const std::function<void()>& inside) {
  Value* zero = b_.getInt64(0);
  if (!l.limit || provably_le(size, *l.limit)) {
    with_tile(l, size, zero, inside);
    return;
  }
  Value* bound = bound_of(l);
  std::function<void(int)> cases = [&](int n) {
    if (n == 0) return;
    branch(
        b_.CreateICmpSGE(bound, b_.getInt64(static_cast<uint64_t>(n))), [&, n] { with_tile(l, n, zero, inside); },
        [&, n] { cases(n - 1); });
  };
  cases(size);
}

// Block number → tile. Constant extents are split evenly into tiles of two sizes; others into full tiles and a rest
// that is walked in halving sizes.
void KernelEmitter::emit_tile(const Loop& l, const Schedule::Tile& tile, Value* block,
                              const std::function<void()>& inside) {
  auto number = [&](int64_t v) { return b_.getInt64(static_cast<uint64_t>(v)); };
  if (auto extent = l.extent.constant()) {
    int64_t blocks = (*extent + tile.size - 1) / tile.size;
    int64_t base = *extent / blocks, longer = *extent % blocks;
    Value* start = b_.CreateMul(block, number(base));
    if (longer == 0) {
      with_tile(l, static_cast<int>(base), start, inside);
      return;
    }
    Value* is_longer = b_.CreateICmpSLT(block, number(longer));
    Value* shift = b_.CreateSelect(is_longer, block, number(longer));
    start = b_.CreateAdd(start, shift);
    branch(
        is_longer, [&] { with_tile(l, static_cast<int>(base + 1), start, inside); },
        [&] { with_tile(l, static_cast<int>(base), start, inside); });
    return;
  }
  Value* start = b_.CreateMul(block, number(tile.size));
  Value* bound = bound_of(l);
  branch(
      b_.CreateICmpSLE(b_.CreateAdd(start, number(tile.size)), bound), [&] { with_tile(l, tile.size, start, inside); },
      [&] {
        Value* at = start;
        for (int size = tile.size / 2; size >= 1; size = size == 1 ? 0 : std::max(1, size / 2)) {
          Value* rest = b_.CreateSub(bound, at);
          Value* end = b_.CreateSub(bound, b_.CreateURem(rest, number(size)));
          loop(at, end, size, false, {}, [&](Value* i, Carried) -> Carried {
            with_tile(l, size, i, inside);
            return {};
          });
          at = end;
        }
      });
}

void KernelEmitter::emit_phases() {
  auto outside = std::move(reductions_);
  reductions_.clear();
  for (const Phase& phase : kernel_.phases) {
    if (!phase.reductions.empty()) emit_reductions(phase);
    if (!phase.stores.empty()) emit_stores(phase);
    if (phase.sort) emit_sort(*phase.sort);
  }
  reductions_ = std::move(outside);
  coordinate_memo_.clear();
}

std::vector<KernelEmitter::Point> KernelEmitter::points(bool with_vectors) const {
  std::vector<Point> list{Point(tile_sizes_.size() + 1, 0)};
  auto expand = [&](size_t coordinate, int size) {
    std::vector<Point> next;
    for (const Point& p : list) {
      for (int i = 0; i < size; ++i) {
        next.push_back(p);
        next.back()[coordinate] = i;
      }
    }
    list = std::move(next);
  };
  for (size_t i = 0; i < tile_sizes_.size(); ++i) expand(i, tile_sizes_[i]);
  if (with_vectors) expand(tile_sizes_.size(), vector_tile_);
  return list;
}

void KernelEmitter::emit_stores(const Phase& phase) {
  const bool vector_open = !vector_variable_.empty();
  const Loop* row = nullptr;
  std::vector<const Loop*> loops;
  for (const Loop& l : phase.loops) {
    if (!vector_open && kernel_.schedule.is_vector(l)) {
      row = &l;
    } else {
      loops.push_back(&l);
    }
  }
  PhaseBody body = [&](Carried carried) {
    for (const Point& point : points(true)) {
      for (const StoreDef& store : phase.stores) emit_store(store, point);
    }
    return carried;
  };
  if (row) {
    phase_loops(loops, 0, 1, {}, [&](Carried c) { return vector_phase_loop(*row, std::move(c), body); });
  } else {
    phase_loops(loops, 0, 1, {}, body);
  }
}

KernelEmitter::Carried KernelEmitter::phase_loops(const std::vector<const Loop*>& loops, size_t index, int unroll,
                                                  Carried carried, const PhaseBody& body) {
  if (index == loops.size()) return body(std::move(carried));
  const Loop& l = *loops[index];
  Value* bound = bound_of(l);
  bool surely_once = !l.limit && provably_lt(0, l.extent);
  if (index + 1 < loops.size() || unroll <= 1 || l.limit) {
    return loop(b_.getInt64(0), bound, 1, surely_once, std::move(carried), [&](Value* i, Carried c) {
      bind(l.variable, i);
      return phase_loops(loops, index + 1, unroll, std::move(c), body);
    });
  }
  const std::string& name = l.variable.symbol_name();
  bool exact = exact_div(l.extent, unroll).has_value();
  Value* wide = b_.getInt64(static_cast<uint64_t>(unroll));
  Value* end = exact ? bound : b_.CreateSub(bound, b_.CreateURem(bound, wide));
  carried = loop(b_.getInt64(0), end, unroll, surely_once && exact, std::move(carried), [&](Value* i, Carried c) {
    for (int u = 0; u < unroll; ++u) {
      // A scope of its own, so that nothing remembered for one copy is taken for another.
      enter_scope();
      bind(l.variable, i);
      unroll_offsets_[name] = u;
      c = body(std::move(c));
      unroll_offsets_.erase(name);
      leave_scope();
    }
    return c;
  });
  if (exact) return carried;
  return loop(end, bound, 1, false, std::move(carried), [&](Value* i, Carried c) {
    bind(l.variable, i);
    return body(std::move(c));
  });
}

KernelEmitter::Carried KernelEmitter::vector_phase_loop(const Loop& l, Carried carried, const PhaseBody& body) {
  const int vectors = kernel_.schedule.vector_tile;
  const int64_t step = int64_t{lanes_} * vectors;
  Value* bound = bound_of(l);
  bool exact = !l.limit && exact_div(l.extent, step).has_value();
  Value* end = exact ? bound : b_.CreateSub(bound, b_.CreateURem(bound, b_.getInt64(static_cast<uint64_t>(step))));
  auto steps = [&](Value* from, Value* to, int64_t width, int count, bool masked_tail, bool surely_once) {
    carried = loop(from, to, width, surely_once, std::move(carried), [&](Value* i, Carried c) {
      Carried result;
      with_vectors(l, count, i, masked_tail ? b_.CreateSub(bound, i) : nullptr, [&] { result = body(std::move(c)); });
      return result;
    });
  };
  bool some_full = l.limit || !l.extent.is_constant() || l.extent.value() >= step;
  if (some_full) steps(b_.getInt64(0), end, step, vectors, false, exact && provably_lt(0, l.extent));
  if (!exact) steps(some_full ? end : b_.getInt64(0), bound, lanes_, 1, true, false);
  return carried;
}

}  // namespace cuvil
