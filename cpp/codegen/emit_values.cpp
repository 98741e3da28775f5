// Scalar expressions at the points of a tile: loads, guards, functions, stores.
#include <algorithm>

#include "codegen/kernel_emitter.hpp"
#include "codegen/llvm_compat.hpp"
#include "codegen/scalar_functions.hpp"
#include "support/error.hpp"

namespace cuvil {

llvm::Type* KernelEmitter::memory_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return b_.getFloatTy();
    case DType::f64:
      return b_.getDoubleTy();
    default:
      return b_.getIntNTy(static_cast<unsigned>(size_of(dtype) * 8));
  }
}

llvm::Type* KernelEmitter::value_type(DType dtype) {
  if (dtype == DType::f16 || dtype == DType::bf16) return b_.getFloatTy();
  if (dtype == DType::boolean) return b_.getInt1Ty();
  return memory_type(dtype);
}

llvm::Type* KernelEmitter::vector_of(llvm::Type* element) {
  return llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes_));
}

llvm::Value* KernelEmitter::splat(Value* scalar) {
  return b_.CreateVectorSplat(static_cast<unsigned>(lanes_), scalar);
}

llvm::Value* KernelEmitter::from_memory(Value* raw, DType dtype) {
  if (dtype == DType::f16 || dtype == DType::bf16) return half_bits_to_float(b_, raw, dtype);
  if (dtype == DType::boolean) return b_.CreateICmpNE(raw, llvm::Constant::getNullValue(raw->getType()));
  return raw;
}

llvm::Value* KernelEmitter::to_memory(Value* v, DType dtype) {
  if (dtype == DType::f16 || dtype == DType::bf16) return float_to_half_bits(b_, v, dtype);
  if (dtype == DType::boolean) {
    llvm::Type* type = v->getType()->isVectorTy() ? vector_of(b_.getInt8Ty()) : b_.getInt8Ty();
    return b_.CreateZExt(v, type);
  }
  return v;
}

KernelEmitter::Point KernelEmitter::masked(Point point, uint64_t coordinates) {
  for (size_t i = 0; i < point.size(); ++i) {
    if (!(coordinates >> i & 1)) point[i] = 0;
  }
  return point;
}

uint64_t KernelEmitter::coordinates_of(const Dim& d) {
  uint64_t bits = 0;
  for (const Dim& s : d.symbols()) {
    const std::string& name = s.symbol_name();
    if (name[0] == '@') bits |= coordinates_of(*indirect(name).value);
    for (size_t i = 0; i < tile_variables_.size(); ++i) {
      if (tile_variables_[i] == name) bits |= uint64_t{1} << i;
    }
    if (name == vector_variable_) bits |= uint64_t{1} << tile_variables_.size();
  }
  return bits;
}

uint64_t KernelEmitter::coordinates_of(const Expr& e) {
  if (auto it = coordinate_memo_.find(&e); it != coordinate_memo_.end()) return it->second;
  uint64_t bits = 0;
  if (e.kind == Expr::Kind::Load || e.kind == Expr::Kind::Index) bits |= coordinates_of(e.index);
  for (const ExprPtr& arg : e.args) bits |= coordinates_of(*arg);
  for (const RangeCheck& c : e.checks)
    bits |= coordinates_of(c.value) | coordinates_of(c.lower) | coordinates_of(c.upper);
  if (e.kind == Expr::Kind::Reduction) {
    for (const auto& [key, values] : reductions_) {
      if (key.first != e.id) continue;
      for (size_t i = 0; i < key.second.size(); ++i) {
        if (key.second[i] != 0) bits |= uint64_t{1} << i;
      }
      if (values[0].is_vector) bits |= uint64_t{1} << tile_variables_.size();
    }
  }
  coordinate_memo_[&e] = bits;
  return bits;
}

size_t KernelEmitter::scope_of(const Expr& e) {
  if (auto it = scope_memo_.find(&e); it != scope_memo_.end()) return it->second;
  size_t scope = 0;
  switch (e.kind) {
    case Expr::Kind::Constant:
      return 0;
    case Expr::Kind::Load:
    case Expr::Kind::Index:
      scope = scope_of(e.index);
      break;
    case Expr::Kind::Reduction:
      return reduction_scope_;
    case Expr::Kind::Guard:
      // Guarded loads stay where their condition is known to matter.
      return scopes_.size() - 1;
    default:
      break;
  }
  for (const ExprPtr& arg : e.args) scope = std::max(scope, scope_of(*arg));
  scope_memo_[&e] = scope;
  return scope;
}

KernelEmitter::Typed KernelEmitter::value(const ExprPtr& e, const Point& point) {
  int guard = guards_.empty() ? 0 : guards_.back().id;
  Point here = masked(point, coordinates_of(*e));
  size_t scope = guard ? scopes_.size() - 1 : scope_of(*e);
  auto key = std::make_tuple(e.get(), here, guard);
  if (auto it = scopes_[scope].values.find(key); it != scopes_[scope].values.end()) return it->second;
  Typed result;
  if (e->kind == Expr::Kind::Apply || e->kind == Expr::Kind::Cast || e->kind == Expr::Kind::BitCast) {
    // Operands first: each goes to its own scope.
    for (const ExprPtr& arg : e->args) value(arg, here);
  }
  result = scopes_[scope].hoist ? in_scope(scope, [&] { return compute(e, here); }) : compute(e, here);
  scopes_[scope].values[key] = result;
  return result;
}

KernelEmitter::Typed KernelEmitter::compute(const ExprPtr& e, const Point& point) {
  switch (e->kind) {
    case Expr::Kind::Constant: {
      llvm::Type* type = value_type(e->dtype);
      if (type->isFloatingPointTy()) {
        Value* v = llvm::ConstantFP::get(type, e->number);
        return {e->dtype == DType::f16 || e->dtype == DType::bf16 ? round_to_half(b_, v, e->dtype) : v, false};
      }
      if (e->dtype == DType::boolean) return {b_.getInt1(e->integer != 0), false};
      return {llvm::ConstantInt::get(type, static_cast<uint64_t>(e->integer), true), false};
    }
    case Expr::Kind::Index: {
      bool vector = dim_is_vector(e->index);
      Value* v = vector ? vector_dim(e->index, point) : scalar_dim(e->index, point);
      return {emit_conversion(b_, v, DType::i64, e->dtype), vector};
    }
    case Expr::Kind::Load:
      return emit_load(*e, point);
    case Expr::Kind::Guard:
      return emit_guard(*e, point);
    case Expr::Kind::Reduction: {
      auto it = reductions_.find({e->id, point});
      CUVIL_CHECK(it != reductions_.end(),
                  "kernel " + kernel_.name + ": reduction r" + std::to_string(e->id) + " is not ready");
      return it->second[0];
    }
    case Expr::Kind::Cast: {
      Typed x = value(e->args[0], point);
      return {emit_conversion(b_, x.value, e->args[0]->dtype, e->dtype), x.is_vector};
    }
    case Expr::Kind::BitCast: {
      Typed x = value(e->args[0], point);
      llvm::Type* type = memory_type(e->dtype);
      Value* bits = to_memory(x.value, e->args[0]->dtype);
      return {from_memory(b_.CreateBitCast(bits, x.is_vector ? vector_of(type) : type), e->dtype), x.is_vector};
    }
    case Expr::Kind::Apply: {
      std::vector<Typed> args;
      bool vector = false;
      for (const ExprPtr& arg : e->args) {
        args.push_back(value(arg, point));
        vector |= args.back().is_vector;
      }
      std::vector<Value*> values;
      for (const Typed& t : args) values.push_back(vector ? as_vector(t) : t.value);
      DType operand = e->fn == Fn::Select ? e->dtype : e->args[0]->dtype;
      return {emit_function(b_, e->fn, operand, values, target_), vector};
    }
  }
  throw InternalError("unknown expression");
}

// Lanes that may touch memory: inside the tail and inside the guards that are open.
llvm::Value* KernelEmitter::access_mask() {
  Value* mask = vector_mask_;
  for (const Guarding& g : guards_) {
    Value* condition = as_vector(g.condition);
    mask = mask ? b_.CreateAnd(mask, condition) : condition;
  }
  return mask;
}

// An index into an axis without elements is always wrong, so the element that is read in its place is not there either.
llvm::Value* KernelEmitter::axes_not_empty(const Dim& index, const Point& point) {
  Value* all = nullptr;
  for (const Dim& s : index.symbols()) {
    if (s.symbol_name()[0] != '@') continue;
    const Dim& size = indirect(s.symbol_name()).size;
    if (provably_le(1, size)) continue;
    Value* something = b_.CreateICmpSGT(scalar_dim(size, point), b_.getInt64(0));
    all = all ? b_.CreateAnd(all, something) : something;
  }
  return all;
}

KernelEmitter::Typed KernelEmitter::emit_load(const Expr& e, const Point& point) {
  const auto buffer = static_cast<size_t>(e.buffer);
  Value* base = buffers_[buffer];
  llvm::Type* element = memory_type(e.dtype);
  llvm::Align align(size_of(e.dtype));
  auto finish = [&](Value* raw) {
    if (!kernel_.buffers[buffer].written) {
      if (auto* load = llvm::dyn_cast<llvm::LoadInst>(raw)) {
        load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(context_, {}));
      }
    }
    return from_memory(raw, e.dtype);
  };
  if (!dim_is_vector(e.index)) {
    Value* pointer = address(base, e.index, e.dtype, point);
    // A guarded-off scalar load reads the argument block instead, which always is there.
    for (const Guarding& g : guards_) {
      Value* condition = g.condition.is_vector ? b_.CreateOrReduce(g.condition.value) : g.condition.value;
      pointer = b_.CreateSelect(condition, pointer, args_);
    }
    if (Value* something = axes_not_empty(e.index, point)) pointer = b_.CreateSelect(something, pointer, args_);
    return {finish(b_.CreateAlignedLoad(element, pointer, align)), false};
  }
  Dim variable = vector_dim_variable_;
  auto stride = e.index.coefficient_of(variable);
  bool indirect_lanes = has_vector_indirect(e.index);
  Value* mask = access_mask();
  if (Value* something = axes_not_empty(e.index, point))
    mask = mask ? b_.CreateAnd(mask, splat(something)) : splat(something);
  llvm::Type* vector = vector_of(element);
  if (stride && *stride == Dim(1) && !indirect_lanes) {
    Value* pointer = address(base, e.index, e.dtype, point);
    if (!mask) return {finish(b_.CreateAlignedLoad(vector, pointer, align)), true};
    return {finish(b_.CreateMaskedLoad(vector, pointer, align, mask, llvm::Constant::getNullValue(vector))), true};
  }
  Value* offsets;
  Value* from = base;
  if (stride && !indirect_lanes) {
    from = address(base, e.index, e.dtype, point);
    std::vector<llvm::Constant*> lanes;
    for (int i = 0; i < lanes_; ++i) lanes.push_back(b_.getInt64(static_cast<uint64_t>(i)));
    offsets = b_.CreateMul(llvm::ConstantVector::get(lanes), splat(scalar_dim(*stride, Point(point.size(), 0))));
  } else {
    offsets = vector_dim(e.index, point);
  }
  // Lane by lane: hardware gathers are no faster, and this works on every target and element size.
  Value* result = llvm::Constant::getNullValue(vector);
  for (int i = 0; i < lanes_; ++i) {
    auto lane = static_cast<uint64_t>(i);
    Value* pointer = b_.CreateGEP(element, from, b_.CreateExtractElement(offsets, lane));
    if (mask) pointer = b_.CreateSelect(b_.CreateExtractElement(mask, lane), pointer, args_);
    result = b_.CreateInsertElement(result, b_.CreateAlignedLoad(element, pointer, align), lane);
  }
  return {from_memory(result, e.dtype), true};
}

KernelEmitter::Typed KernelEmitter::emit_guard(const Expr& e, const Point& point) {
  Typed condition{nullptr, false};
  for (const RangeCheck& check : e.checks) {
    const RangeCheck c{at_point(check.value, point), at_point(check.lower, point), at_point(check.upper, point)};
    if (provably_lt(c.value, c.lower) || provably_le(c.upper, c.value)) return value(e.args[1], point);
    bool vector = dim_is_vector(c.value) || dim_is_vector(c.lower) || dim_is_vector(c.upper);
    // The checks are at the point already.
    auto emit = [&](const Dim& d) { return vector ? vector_dim_here(d, point) : scalar_dim_in_scope(d, point); };
    bool needs_low = !provably_le(c.lower, c.value), needs_high = !provably_lt(c.value, c.upper);
    if (!needs_low && !needs_high) continue;
    Value* v = emit(c.value);
    Value* low = needs_low ? b_.CreateICmpSGE(v, emit(c.lower)) : nullptr;
    Value* high = needs_high ? b_.CreateICmpSLT(v, emit(c.upper)) : nullptr;
    for (Value* part : {low, high}) {
      if (!part) continue;
      if (!condition.value) {
        condition = {part, vector};
      } else {
        bool both = condition.is_vector || vector;
        Value* a = both ? as_vector(condition) : condition.value;
        Value* b = both ? as_vector({part, vector}) : part;
        condition = {b_.CreateAnd(a, b), both};
      }
    }
  }
  if (!condition.value) return value(e.args[0], point);
  guards_.push_back({next_guard_++, condition});
  Typed inside = value(e.args[0], point);
  guards_.pop_back();
  Typed outside = value(e.args[1], point);
  bool vector = condition.is_vector || inside.is_vector || outside.is_vector;
  Value* a = vector ? as_vector(inside) : inside.value;
  Value* b = vector ? as_vector(outside) : outside.value;
  return {b_.CreateSelect(condition.value, a, b), vector};
}

llvm::Value* KernelEmitter::combined(const StoreDef& store, Value* old, Value* item) {
  DType dtype = store.value->dtype;
  DType computed = dtype == DType::f16 || dtype == DType::bf16 ? DType::f32 : dtype;
  return emit_function(b_, function_of(*store.combine), computed, {from_memory(old, dtype), item}, target_);
}

void KernelEmitter::emit_store(const StoreDef& store, const Point& point) {
  DType dtype = store.value->dtype;
  Typed v = value(store.value, point);
  Value* base = buffers_[static_cast<size_t>(store.buffer)];
  llvm::Type* element = memory_type(dtype);
  llvm::Align align(size_of(dtype));
  bool vector = dim_is_vector(store.offset);
  if (!vector) {
    CUVIL_CHECK(!v.is_vector, "kernel " + kernel_.name + ": lanes store to one place");
    Value* pointer = address(base, store.offset, dtype, point);
    Value* item = store.combine ? combined(store, b_.CreateAlignedLoad(element, pointer, align), v.value) : v.value;
    b_.CreateAlignedStore(to_memory(item, dtype), pointer, align);
    return;
  }
  Value* item = as_vector(v);
  auto stride = store.offset.coefficient_of(vector_dim_variable_);
  if (!stride || *stride != Dim(1) || has_vector_indirect(store.offset)) {
    store_lanes(store, item, vector_dim(store.offset, point));
    return;
  }
  Value* pointer = address(base, store.offset, dtype, point);
  llvm::Type* type = vector_of(element);
  if (!vector_mask_) {
    if (store.combine) item = combined(store, b_.CreateAlignedLoad(type, pointer, align), item);
    b_.CreateAlignedStore(to_memory(item, dtype), pointer, align);
    return;
  }
  if (store.combine) {
    Value* none = llvm::Constant::getNullValue(type);
    item = combined(store, b_.CreateMaskedLoad(type, pointer, align, vector_mask_, none), item);
  }
  b_.CreateMaskedStore(to_memory(item, dtype), pointer, align, vector_mask_);
}

// Lane by lane; lanes that are off store where nobody reads.
void KernelEmitter::store_lanes(const StoreDef& store, Value* item, Value* offsets) {
  DType dtype = store.value->dtype;
  Value* base = buffers_[static_cast<size_t>(store.buffer)];
  llvm::Type* element = memory_type(dtype);
  llvm::Align align(size_of(dtype));
  Value* raw = store.combine ? nullptr : to_memory(item, dtype);
  for (int i = 0; i < lanes_; ++i) {
    auto lane = static_cast<uint64_t>(i);
    Value* pointer = b_.CreateGEP(element, base, b_.CreateExtractElement(offsets, lane));
    if (vector_mask_) pointer = b_.CreateSelect(b_.CreateExtractElement(vector_mask_, lane), pointer, sink_);
    Value* stored;
    if (store.combine) {
      Value* old = b_.CreateAlignedLoad(element, pointer, align);
      stored = to_memory(combined(store, old, b_.CreateExtractElement(item, lane)), dtype);
    } else {
      stored = b_.CreateExtractElement(raw, lane);
    }
    b_.CreateAlignedStore(stored, pointer, align);
  }
}

}  // namespace cuvil
