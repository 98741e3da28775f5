#include "codegen/entry_emitter.hpp"

#include <llvm/IR/IRBuilder.h>

#include <map>
#include <set>

#include "codegen/codegen.hpp"
#include "codegen/floor_division.hpp"
#include "codegen/kernel_emitter.hpp"
#include "codegen/llvm_compat.hpp"
#include "runtime/abi.h"
#include "support/error.hpp"

namespace cuvil {

namespace {

using llvm::Value;

// Dims over bound symbols, in straight-line code.
class SizeEmitter {
 public:
  explicit SizeEmitter(llvm::IRBuilder<>& b) : b_(b) {}

  void bind(const std::string& name, Value* v) { symbols_[name] = v; }
  bool bound(const std::string& name) const { return symbols_.count(name) != 0; }
  bool known(const Dim& d) const {
    for (const Dim& s : d.symbols()) {
      if (!bound(s.symbol_name())) return false;
    }
    return true;
  }
  void reset() {
    symbols_.clear();
    memo_.clear();
  }

  Value* emit(const Dim& d) {
    if (auto it = memo_.find(d); it != memo_.end()) return it->second;
    Value* sum = nullptr;
    for (const DimTerm& term : d.terms()) {
      Value* product = number(term.coefficient);
      for (const DimAtomPtr& f : term.factors) product = b_.CreateMul(product, atom(*f));
      sum = sum ? b_.CreateAdd(sum, product) : product;
    }
    if (!sum) sum = number(0);
    memo_[d] = sum;
    return sum;
  }

 private:
  Value* number(int64_t v) { return b_.getInt64(static_cast<uint64_t>(v)); }
  Value* atom(const DimAtom& a) {
    if (a.kind == DimAtom::Kind::Symbol) {
      auto it = symbols_.find(a.name);
      CUVIL_CHECK(it != symbols_.end(), "size symbol " + a.name + " is not bound by any input");
      return it->second;
    }
    Value* x = emit(a.a);
    Value* y = emit(a.b);
    switch (a.kind) {
      case DimAtom::Kind::FloorDiv:
      case DimAtom::Kind::Mod:
        return emit_floor_division(b_, a, x, y);
      case DimAtom::Kind::Min:
        return b_.CreateSelect(b_.CreateICmpSLT(x, y), x, y);
      default:
        return b_.CreateSelect(b_.CreateICmpSGT(x, y), x, y);
    }
  }

  llvm::IRBuilder<>& b_;
  std::map<std::string, Value*> symbols_;
  std::map<Dim, Value*> memo_;
};

class EntryEmitter {
 public:
  EntryEmitter(llvm::Module& module, const Program& program, const TargetDescription& target)
      : module_(module), program_(program), target_(target), b_(module.getContext()), sizes_(b_) {}

  void emit_plan() {
    begin(kPlanSymbol, 5);
    Value* shapes = function_->getArg(0);
    Value* symbols = function_->getArg(1);
    std::vector<std::vector<Value*>> actual;
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      actual.emplace_back();
      Value* shape = load_pointer(shapes, i);
      for (size_t axis = 0; axis < program_.inputs[i].shape.size(); ++axis) {
        actual.back().push_back(b_.CreateLoad(b_.getInt64Ty(), slot(shape, axis)));
      }
    }
    bind_from_sizes(actual);
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      for (size_t axis = 0; axis < actual[i].size(); ++axis) {
        const Dim& d = program_.inputs[i].shape[axis];
        if (d.is_symbol()) check_bounds(d, i, axis, actual[i][axis]);
        Value* expected = sizes_.emit(d);
        fail_unless(b_.CreateICmpEQ(expected, actual[i][axis]), CUVIL_E_SIZE, i, axis, expected, actual[i][axis]);
      }
    }
    for (size_t s = 0; s < program_.symbols.size(); ++s) {
      b_.CreateStore(sizes_.emit(program_.symbols[s]), slot(symbols, s));
    }
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      Value* shape = load_pointer(function_->getArg(2), i);
      for (size_t axis = 0; axis < program_.outputs[i].shape.size(); ++axis) {
        b_.CreateStore(sizes_.emit(program_.outputs[i].shape[axis]), slot(shape, axis));
      }
    }
    b_.CreateStore(sizes_.emit(program_.arena_bytes), function_->getArg(3));
    b_.CreateRet(b_.getInt32(CUVIL_OK));
  }

  void emit_run(const std::vector<std::string>& kernel_symbols) {
    begin(kRunSymbol, 7);
    Value* services = function_->getArg(0);
    for (size_t s = 0; s < program_.symbols.size(); ++s) {
      sizes_.bind(program_.symbols[s].symbol_name(), b_.CreateLoad(b_.getInt64Ty(), slot(function_->getArg(5), s)));
    }
    size_t most = 1;
    bool errors = false;
    for (const Step& step : program_.steps) {
      ArgumentLayout layout = argument_layout(step.kernel);
      most = std::max(most, layout.slots);
      errors |= layout.has_error;
    }
    Value* arguments = b_.CreateAlloca(b_.getInt64Ty(), b_.getInt64(most));
    Value* record = b_.CreateAlloca(b_.getInt64Ty(), b_.getInt64(8));
    if (errors) b_.CreateStore(b_.getInt64(0), record);
    context_ = b_.CreateLoad(b_.getPtrTy(), byte(services, offsetof(cuvil_services, context)));
    parallel_for_ = b_.CreateLoad(b_.getPtrTy(), byte(services, offsetof(cuvil_services, parallel_for)));
    auto group = program_.bands.begin();
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      if (group != program_.bands.end() && group->first == i) {
        emit_band_group(*group, kernel_symbols);
        i += group->members.size() - 1;
        ++group;
        continue;
      }
      const Step& step = program_.steps[i];
      const bool has_error = emit_arguments(step, arguments, record);
      llvm::FunctionCallee kernel = kernel_function(kernel_symbols[i]);
      Value* count = sizes_.emit(parallel_count(step.kernel));
      int64_t chunk = step.kernel.schedule.chunk;
      auto shared = [&] { emit_parallel_for(i, kernel.getCallee(), arguments, count, chunk); };
      if (auto c = parallel_count(step.kernel).constant(); c && *c <= chunk) {
        // Too little work to share: no detour through the runtime, except when it wants to measure.
        Value* measure = b_.CreateICmpNE(
            b_.CreateLoad(b_.getInt32Ty(), byte(services, offsetof(cuvil_services, measure))), b_.getInt32(0));
        call_directly_unless(
            measure,
            [&] {
              b_.CreateCall(kernel, {arguments, b_.getInt64(0), count});
            },
            shared);
      } else {
        shared();
      }
      if (has_error) {
        Value* flag = b_.CreateLoad(b_.getInt64Ty(), record);
        Value* bad = b_.CreateLoad(b_.getInt64Ty(), slot(record, 1));
        Value* size = b_.CreateLoad(b_.getInt64Ty(), slot(record, 2));
        fail_unless(b_.CreateICmpEQ(flag, b_.getInt64(0)), CUVIL_E_INDEX, bad, size, b_.getInt64(i), b_.getInt64(0));
      }
    }
    b_.CreateRet(b_.getInt32(CUVIL_OK));
  }

 private:
  llvm::FunctionType* kernel_type() {
    return llvm::FunctionType::get(b_.getVoidTy(), {b_.getPtrTy(), b_.getInt64Ty(), b_.getInt64Ty()}, false);
  }

  llvm::FunctionCallee kernel_function(const std::string& symbol) {
    llvm::FunctionCallee kernel = module_.getOrInsertFunction(symbol, kernel_type());
    llvm::cast<llvm::Function>(kernel.getCallee())->setDSOLocal(true);
    return kernel;
  }

  // Fills the step's argument block; whether it has an error record.
  bool emit_arguments(const Step& step, Value* arguments, Value* record) {
    ArgumentLayout layout = argument_layout(step.kernel);
    size_t at = 0;
    for (int b : step.buffers) b_.CreateStore(buffer(b), slot(arguments, at++));
    for (const Dim& s : layout.symbols) b_.CreateStore(sizes_.emit(s), slot(arguments, at++));
    if (layout.has_error) b_.CreateStore(record, slot(arguments, at++));
    return layout.has_error;
  }

  void emit_parallel_for(size_t index, Value* kernel, Value* arguments, Value* count, int64_t chunk) {
    auto* type = llvm::FunctionType::get(
        b_.getVoidTy(),
        {b_.getPtrTy(), b_.getInt32Ty(), b_.getPtrTy(), b_.getPtrTy(), b_.getInt64Ty(), b_.getInt64Ty()}, false);
    b_.CreateCall(type, parallel_for_,
                  {context_, b_.getInt32(static_cast<uint32_t>(index)), kernel, arguments, count,
                   b_.getInt64(static_cast<uint64_t>(chunk))});
  }

  // The group's argument block: for each member, its own block and the parallel steps of one of its rows.
  void emit_band_group(const BandGroup& group, const std::vector<std::string>& kernel_symbols) {
    Value* block = b_.CreateAlloca(b_.getInt64Ty(), b_.getInt64(2 * group.members.size()));
    for (size_t m = 0; m < group.members.size(); ++m) {
      const Step& step = program_.steps[group.first + m];
      Value* own = b_.CreateAlloca(b_.getInt64Ty(), b_.getInt64(argument_layout(step.kernel).slots));
      CUVIL_CHECK(!emit_arguments(step, own, nullptr), "a kernel with indirect indices in a band group");
      b_.CreateStore(own, slot(block, 2 * m));
      Value* rows = sizes_.emit(maximum(group.batch * group.members[m].rows, 1));  // there may be no images
      b_.CreateStore(b_.CreateSDiv(sizes_.emit(parallel_count(step.kernel)), rows), slot(block, 2 * m + 1));
    }
    Value* count = sizes_.emit(group.batch * bands_per_image(group));
    // Few ranges, since each computes again what the one before it has.
    const int64_t chunk = std::max<int64_t>(1, bands_per_image(group) / 4);
    emit_parallel_for(group.first, band_function(group, kernel_symbols), block, count, chunk);
  }

  static int64_t bands_per_image(const BandGroup& group) {
    return (group.members.back().rows + group.band - 1) / group.band;
  }

  // Runs bands [begin, end). A member's rows start where the band before it ended, or, in the first band, where they
  // are needed: rows that two ranges of bands need are computed by both.
  llvm::Function* band_function(const BandGroup& group, const std::vector<std::string>& kernel_symbols) {
    llvm::IRBuilderBase::InsertPointGuard keep(b_);
    auto* function = llvm::Function::Create(kernel_type(), llvm::Function::InternalLinkage,
                                            "bands_" + std::to_string(group.first), module_);
    function->setDoesNotThrow();
    Value *block = function->getArg(0), *begin = function->getArg(1), *end = function->getArg(2);
    auto number = [&](int64_t v) { return b_.getInt64(static_cast<uint64_t>(v)); };
    auto* entry = llvm::BasicBlock::Create(b_.getContext(), "entry", function);
    auto* body = llvm::BasicBlock::Create(b_.getContext(), "band", function);
    auto* done = llvm::BasicBlock::Create(b_.getContext(), "done", function);
    b_.SetInsertPoint(entry);
    b_.CreateCondBr(b_.CreateICmpSLT(begin, end), body, done);
    b_.SetInsertPoint(body);
    llvm::PHINode* g = b_.CreatePHI(b_.getInt64Ty(), 2);
    g->addIncoming(begin, entry);
    Value* bands = number(bands_per_image(group));
    Value* image = b_.CreateUDiv(g, bands);
    Value* band = b_.CreateURem(g, bands);
    auto clamp = [&](Value* v, int64_t high) {
      v = b_.CreateSelect(b_.CreateICmpSLT(v, number(0)), number(0), v);
      return b_.CreateSelect(b_.CreateICmpSGT(v, number(high)), number(high), v);
    };
    // Rows [low, high) of each member for a band, before clamping, from the last member back.
    struct Rows {
      Value *low, *high;
    };
    const size_t n = group.members.size();
    auto rows_of = [&](Value* of_band) {
      std::vector<Rows> rows(n);
      Value* low = b_.CreateMul(of_band, number(group.band));
      rows[n - 1] = {low, clamp(b_.CreateAdd(low, number(group.band)), group.members[n - 1].rows)};
      for (size_t m = n - 1; m-- > 0;) {
        const BandGroup::Member& member = group.members[m];
        Value* first = b_.CreateAdd(b_.CreateMul(rows[m + 1].low, number(member.scale)), number(member.low));
        Value* last = b_.CreateSub(rows[m + 1].high, number(1));
        last = b_.CreateAdd(b_.CreateMul(last, number(member.scale)), number(member.high + 1));
        rows[m] = {clamp(first, member.rows), clamp(last, member.rows)};
      }
      return rows;
    };
    Value* fresh = b_.CreateOr(b_.CreateICmpEQ(g, begin), b_.CreateICmpEQ(band, number(0)));
    std::vector<Rows> now = rows_of(band), before = rows_of(b_.CreateSub(band, number(1)));
    for (size_t m = 0; m < n; ++m) {
      Value* low = b_.CreateSelect(fresh, now[m].low, before[m].high);
      Value* first = b_.CreateMul(image, number(group.members[m].rows));
      Value* arguments = load_pointer(block, 2 * m);
      Value* steps = b_.CreateLoad(b_.getInt64Ty(), slot(block, 2 * m + 1));
      b_.CreateCall(kernel_function(kernel_symbols[group.first + m]),
                    {arguments, b_.CreateMul(b_.CreateAdd(first, low), steps),
                     b_.CreateMul(b_.CreateAdd(first, now[m].high), steps)});
    }
    Value* next = b_.CreateAdd(g, number(1));
    g->addIncoming(next, body);
    b_.CreateCondBr(b_.CreateICmpSLT(next, end), body, done);
    b_.SetInsertPoint(done);
    b_.CreateRetVoid();
    return function;
  }

  void begin(const char* name, unsigned pointers) {
    std::vector<llvm::Type*> params(pointers, b_.getPtrTy());
    function_ = llvm::Function::Create(llvm::FunctionType::get(b_.getInt32Ty(), params, false),
                                       llvm::Function::ExternalLinkage, name, module_);
    function_->addFnAttr("target-cpu", target_.cpu);
    function_->addFnAttr("target-features", target_.features);
    function_->setDoesNotThrow();
    detail_ = function_->getArg(pointers - 1);
    b_.SetInsertPoint(llvm::BasicBlock::Create(b_.getContext(), "entry", function_));
    sizes_.reset();
  }

  Value* slot(Value* base, size_t i) { return b_.CreateConstGEP1_64(b_.getInt64Ty(), base, i); }
  Value* byte(Value* base, size_t i) { return b_.CreateConstGEP1_64(b_.getInt8Ty(), base, i); }
  Value* load_pointer(Value* base, size_t i) {
    return b_.CreateLoad(b_.getPtrTy(), b_.CreateConstGEP1_64(b_.getPtrTy(), base, i));
  }

  Value* buffer(int id) {
    const Buffer& b = program_.buffers[static_cast<size_t>(id)];
    switch (b.kind) {
      case Buffer::Kind::Input:
        return load_pointer(function_->getArg(1), static_cast<size_t>(b.index));
      case Buffer::Kind::Output:
        return load_pointer(function_->getArg(2), static_cast<size_t>(b.index));
      case Buffer::Kind::Constant:
        return b_.CreateGEP(b_.getInt8Ty(), function_->getArg(3), sizes_.emit(b.offset));
      default:
        return b_.CreateGEP(b_.getInt8Ty(), function_->getArg(4), sizes_.emit(b.offset));
    }
  }

  // Bare symbols first; then sizes that are affine in one unknown symbol, with coefficient 1 or a constant factor.
  void bind_from_sizes(const std::vector<std::vector<Value*>>& actual) {
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t i = 0; i < actual.size(); ++i) {
        for (size_t axis = 0; axis < actual[i].size(); ++axis) {
          const Dim& d = program_.inputs[i].shape[axis];
          if (d.is_symbol() && !sizes_.bound(d.symbol_name())) {
            sizes_.bind(d.symbol_name(), actual[i][axis]);
            progress = true;
          }
        }
      }
      if (progress) continue;
      for (size_t i = 0; i < actual.size() && !progress; ++i) {
        for (size_t axis = 0; axis < actual[i].size() && !progress; ++axis) {
          const Dim& d = program_.inputs[i].shape[axis];
          std::vector<Dim> unknown;
          for (const Dim& s : d.symbols()) {
            if (!sizes_.bound(s.symbol_name())) unknown.push_back(s);
          }
          if (unknown.size() != 1) continue;
          auto c = d.coefficient_of(unknown[0]);
          if (!c || !c->is_constant()) continue;
          Dim rest = d - *c * unknown[0];
          Value* v = b_.CreateSub(actual[i][axis], sizes_.emit(rest));
          sizes_.bind(unknown[0].symbol_name(), b_.CreateSDiv(v, b_.getInt64(static_cast<uint64_t>(c->value()))));
          progress = true;
        }
      }
    }
  }

  void check_bounds(const Dim& symbol, size_t input, size_t axis, Value* actual) {
    const DimAtom& atom = *symbol.terms()[0].factors[0];
    if (atom.min > 0) {
      Value* bound = b_.getInt64(static_cast<uint64_t>(atom.min));
      fail_unless(b_.CreateICmpSGE(actual, bound), CUVIL_E_RANGE, input, axis, bound, actual);
    }
    if (atom.max != Dim::kUnbounded) {
      Value* bound = b_.getInt64(static_cast<uint64_t>(atom.max));
      fail_unless(b_.CreateICmpSLE(actual, bound), CUVIL_E_RANGE, input, axis, bound, actual);
    }
  }

  void fail_unless(Value* ok, int code, size_t a, size_t b, Value* c, Value* d) {
    fail_unless(ok, code, b_.getInt64(a), b_.getInt64(b), c, d);
  }
  void fail_unless(Value* ok, int code, Value* a, Value* b, Value* c, Value* d) {
    auto* fail = llvm::BasicBlock::Create(b_.getContext(), "fail", function_);
    auto* next = llvm::BasicBlock::Create(b_.getContext(), "ok", function_);
    b_.CreateCondBr(ok, next, fail);
    b_.SetInsertPoint(fail);
    size_t i = 0;
    for (Value* v : {a, b, c, d}) b_.CreateStore(v, slot(detail_, i++));
    b_.CreateRet(b_.getInt32(static_cast<uint32_t>(code)));
    b_.SetInsertPoint(next);
  }

  void call_directly_unless(Value* condition, const std::function<void()>& directly,
                            const std::function<void()>& otherwise) {
    auto* a = llvm::BasicBlock::Create(b_.getContext(), "measured", function_);
    auto* c = llvm::BasicBlock::Create(b_.getContext(), "direct", function_);
    auto* next = llvm::BasicBlock::Create(b_.getContext(), "next", function_);
    b_.CreateCondBr(condition, a, c);
    b_.SetInsertPoint(a);
    otherwise();
    b_.CreateBr(next);
    b_.SetInsertPoint(c);
    directly();
    b_.CreateBr(next);
    b_.SetInsertPoint(next);
  }

  llvm::Module& module_;
  const Program& program_;
  const TargetDescription& target_;
  llvm::IRBuilder<> b_;
  SizeEmitter sizes_;
  llvm::Function* function_ = nullptr;
  Value* detail_ = nullptr;
  Value *context_ = nullptr, *parallel_for_ = nullptr;  // of the run's services
};

}  // namespace

void emit_entry(llvm::Module& module, const Program& program, const std::vector<std::string>& kernel_symbols,
                const TargetDescription& target) {
  EntryEmitter emitter(module, program, target);
  emitter.emit_plan();
  emitter.emit_run(kernel_symbols);
}

}  // namespace cuvil
