// Reductions: accumulators in registers, one per point of the tile.
#include <llvm/IR/IntrinsicsX86.h>

#include <cmath>
#include <limits>

#include "codegen/kernel_emitter.hpp"
#include "codegen/llvm_compat.hpp"
#include "codegen/scalar_functions.hpp"
#include "support/error.hpp"

namespace cuvil {

namespace {

bool is_half(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16;
}

bool tracks_position(ReduceFn fn) {
  return fn == ReduceFn::ArgMax || fn == ReduceFn::ArgMin;
}

}  // namespace

Fn function_of(ReduceFn fn) {
  switch (fn) {
    case ReduceFn::Sum:
      return Fn::Add;
    case ReduceFn::Prod:
      return Fn::Mul;
    case ReduceFn::Max:
    case ReduceFn::ArgMax:
      return Fn::Max;
    default:
      return Fn::Min;
  }
}

std::vector<llvm::Value*> KernelEmitter::identity(const ReductionDef& r, bool is_vector) {
  llvm::Type* type = value_type(r.dtype);
  bool maximum = function_of(r.fn) == Fn::Max;
  llvm::Constant* unit = nullptr;
  switch (function_of(r.fn)) {
    case Fn::Add:
      unit = llvm::Constant::getNullValue(type);
      break;
    case Fn::Mul:
      unit = type->isFloatingPointTy() ? llvm::ConstantFP::get(type, 1.0) : llvm::ConstantInt::get(type, 1);
      break;
    default:
      if (type->isFloatingPointTy()) {
        unit = llvm::ConstantFP::getInfinity(type, maximum);
      } else if (r.dtype == DType::boolean) {
        unit = llvm::ConstantInt::get(type, maximum ? 0 : 1);
      } else {
        unsigned bits = type->getIntegerBitWidth();
        bool is_signed = is_signed_int(r.dtype);
        llvm::APInt v = maximum ? (is_signed ? llvm::APInt::getSignedMinValue(bits) : llvm::APInt::getMinValue(bits))
                                : (is_signed ? llvm::APInt::getSignedMaxValue(bits) : llvm::APInt::getMaxValue(bits));
        unit = llvm::ConstantInt::get(context_, v);
      }
  }
  std::vector<Value*> parts{unit};
  // An index beyond any other, so that the first element always wins.
  if (tracks_position(r.fn)) parts.push_back(b_.getInt64(static_cast<uint64_t>(INT64_MAX)));
  if (is_vector) {
    for (Value*& part : parts) part = splat(part);
  }
  return parts;
}

std::vector<llvm::Value*> KernelEmitter::combine(const ReductionDef& r, const std::vector<Value*>& acc,
                                                 const std::vector<Value*>& item) {
  if (!tracks_position(r.fn)) {
    // Half types accumulate in f32 and are rounded once, at the end.
    return {emit_function(b_, function_of(r.fn), is_half(r.dtype) ? DType::f32 : r.dtype, {acc[0], item[0]}, target_)};
  }
  // Better: a NaN before any number, else the larger (smaller); the lower index among equals.
  bool maximum = r.fn == ReduceFn::ArgMax;
  Value *better, *equal;
  if (is_float(r.dtype)) {
    Value* item_nan = b_.CreateFCmpUNO(item[0], item[0]);
    Value* acc_nan = b_.CreateFCmpUNO(acc[0], acc[0]);
    Value* beats = maximum ? b_.CreateFCmpOGT(item[0], acc[0]) : b_.CreateFCmpOLT(item[0], acc[0]);
    better = b_.CreateOr(beats, b_.CreateAnd(item_nan, b_.CreateNot(acc_nan)));
    equal = b_.CreateOr(b_.CreateFCmpOEQ(item[0], acc[0]), b_.CreateAnd(item_nan, acc_nan));
  } else {
    bool is_signed = is_signed_int(r.dtype);
    better = maximum ? (is_signed ? b_.CreateICmpSGT(item[0], acc[0]) : b_.CreateICmpUGT(item[0], acc[0]))
                     : (is_signed ? b_.CreateICmpSLT(item[0], acc[0]) : b_.CreateICmpULT(item[0], acc[0]));
    equal = b_.CreateICmpEQ(item[0], acc[0]);
  }
  Value* take = b_.CreateOr(better, b_.CreateAnd(equal, b_.CreateICmpSLT(item[1], acc[1])));
  return {b_.CreateSelect(take, item[0], acc[0]), b_.CreateSelect(take, item[1], acc[1])};
}

// Halves the vector until one lane is left: the same order on every machine of this width.
std::vector<llvm::Value*> KernelEmitter::fold_lanes(const ReductionDef& r, std::vector<Value*> acc) {
  for (int width = lanes_ / 2; width >= 1; width /= 2) {
    std::vector<int> low, high;
    for (int i = 0; i < width; ++i) {
      low.push_back(i);
      high.push_back(i + width);
    }
    std::vector<Value*> a, c;
    for (Value* part : acc) {
      a.push_back(b_.CreateShuffleVector(part, low));
      c.push_back(b_.CreateShuffleVector(part, high));
    }
    acc = combine(r, a, c);
  }
  for (Value*& part : acc) part = b_.CreateExtractElement(part, uint64_t{0});
  return acc;
}

std::vector<llvm::Value*> KernelEmitter::accumulate(const ReductionDef& r, const std::vector<Value*>& acc,
                                                    const Point& point, bool is_vector, Value* mask) {
  const Expr& e = *r.value;
  if (!kernel_.schedule.dot_loop.empty()) {
    return {emit_dot(acc[0], dot_operand(e.args[0]->args[0], point), dot_operand(e.args[1]->args[0], point))};
  }
  std::vector<Value*> parts;
  const bool products = r.fn == ReduceFn::Sum && e.kind == Expr::Kind::Apply && e.fn == Fn::Mul && is_float(r.dtype);
  if (products && (is_half(r.dtype) || (target_.fma && !mask))) {
    Typed x = value(e.args[0], point), y = value(e.args[1], point);
    Value* a = is_vector ? as_vector(x) : x.value;
    Value* c = is_vector ? as_vector(y) : y.value;
    // A sum of products rounds once. Those of half types are exact in f32.
    if (target_.fma && !mask) return {b_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, c, acc[0]})};
    parts.push_back(b_.CreateFMul(a, c));
  } else {
    Typed item = value(r.value, point);
    parts.push_back(is_vector ? as_vector(item) : item.value);
  }
  if (tracks_position(r.fn)) {
    bool vector_position = dim_is_vector(r.position);
    Value* position = vector_position ? vector_dim(r.position, point) : scalar_dim(r.position, point);
    parts.push_back(is_vector && !vector_position ? splat(position) : position);
  }
  if (mask) {
    std::vector<Value*> unit = identity(r, is_vector);
    for (size_t i = 0; i < parts.size(); ++i) parts[i] = b_.CreateSelect(mask, parts[i], unit[i]);
  }
  return combine(r, acc, parts);
}

// 32 neighbouring bits for each lane: the same for all lanes (rows), or one after another (columns).
llvm::Value* KernelEmitter::dot_operand(const ExprPtr& load, const Point& point) {
  Point here = masked(point, coordinates_of(*load));
  const size_t scope = scope_of(*load);
  const auto key = std::make_tuple(load.get(), here, -1);
  if (auto it = scopes_[scope].values.find(key); it != scopes_[scope].values.end()) return it->second.value;
  auto read = [&]() -> Value* {
    Value* pointer = address(buffers_[static_cast<size_t>(load->buffer)], load->index, load->dtype, here);
    if (dim_is_vector(load->index)) return b_.CreateAlignedLoad(vector_of(b_.getInt32Ty()), pointer, llvm::Align(1));
    return splat(b_.CreateAlignedLoad(b_.getInt32Ty(), pointer, llvm::Align(1)));
  };
  Value* result = scopes_[scope].hoist ? in_scope(scope, read) : read();
  scopes_[scope].values[key] = {result, true};
  return result;
}

llvm::Value* KernelEmitter::emit_dot(Value* sum, Value* rows, Value* columns) {
  namespace id = llvm::Intrinsic;
  const bool wide = lanes_ == 16, bytes = kernel_.schedule.dot == 4;
  const id::ID name = bytes ? (wide ? id::x86_avx512_vpdpbusd_512 : id::x86_avx512_vpdpbusd_256)
                            : (wide ? id::x86_avx512_pmaddw_d_512 : id::x86_avx2_pmadd_wd);
  llvm::Function* instruction = compat::intrinsic(module_, name);
  // Versions of LLVM differ in whether the operands are vectors of i32 or of their elements.
  llvm::Type* operand = instruction->getFunctionType()->getParamType(bytes ? 1 : 0);
  Value* a = b_.CreateBitCast(rows, operand);
  Value* c = b_.CreateBitCast(columns, operand);
  return bytes ? b_.CreateCall(instruction, {sum, a, c}) : b_.CreateAdd(sum, b_.CreateCall(instruction, {a, c}));
}

void KernelEmitter::emit_prefetch() {
  if (!kernel_.schedule.prefetch) return;
  const Schedule::Prefetch& p = *kernel_.schedule.prefetch;
  const auto buffer = static_cast<size_t>(p.buffer);
  constexpr uint64_t line = 64;
  Value* at = address(buffers_[buffer], p.offset, kernel_.buffers[buffer].dtype, Point(tile_variables_.size() + 1, 0));
  for (int i = 0; i < p.lines; ++i) {
    Value* pointer = i ? b_.CreateConstGEP1_64(b_.getInt8Ty(), at, line * static_cast<uint64_t>(i)) : at;
    // To read, into L2, data.
    b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {pointer->getType()},
                       {pointer, b_.getInt32(0), b_.getInt32(2), b_.getInt32(1)});
  }
}

void KernelEmitter::emit_reductions(const Phase& phase) {
  // Lanes are outputs when the vector loop is already open, else parts of the reduction.
  const bool lanes_are_outputs = !vector_variable_.empty();
  const Loop* row = nullptr;
  std::vector<const Loop*> loops;
  for (const Loop& l : phase.loops) {
    if (!lanes_are_outputs && kernel_.schedule.is_vector(l)) {
      row = &l;
    } else if (l.variable.is_symbol() && l.variable.symbol_name() == kernel_.schedule.dot_loop) {
      bind(l.variable, b_.getInt64(0));
    } else {
      loops.push_back(&l);
    }
  }
  const int vectors = lanes_are_outputs ? vector_tile_ : row ? kernel_.schedule.vector_tile : 1;
  const bool is_vector = lanes_are_outputs || row;
  std::vector<Point> outputs = points(false);
  std::vector<std::pair<int, Point>> slots;
  Carried carried;
  std::vector<size_t> widths;
  for (int id : phase.reductions) {
    const ReductionDef& r = kernel_.reductions[static_cast<size_t>(id)];
    for (const Point& output : outputs) {
      for (int v = 0; v < vectors; ++v) {
        Point point = output;
        point.back() = v;
        slots.emplace_back(id, point);
        std::vector<Value*> unit = identity(r, is_vector);
        widths.push_back(unit.size());
        carried.insert(carried.end(), unit.begin(), unit.end());
      }
    }
  }
  PhaseBody body = [&](Carried acc) {
    emit_prefetch();
    Carried next;
    size_t at = 0;
    for (size_t i = 0; i < slots.size(); ++i) {
      const auto& [id, point] = slots[i];
      std::vector<Value*> parts(acc.begin() + static_cast<long>(at), acc.begin() + static_cast<long>(at + widths[i]));
      at += widths[i];
      if (row && point.back() >= vector_tile_) {  // a tail has one vector
        next.insert(next.end(), parts.begin(), parts.end());
        continue;
      }
      Value* mask = lanes_are_outputs ? nullptr : vector_mask_;
      parts = accumulate(kernel_.reductions[static_cast<size_t>(id)], parts, point, is_vector, mask);
      next.insert(next.end(), parts.begin(), parts.end());
    }
    return next;
  };
  Carried result;
  if (row) {
    result =
        phase_loops(loops, 0, 1, carried, [&](Carried acc) { return vector_phase_loop(*row, std::move(acc), body); });
  } else {
    result = phase_loops(loops, 0, kernel_.schedule.unroll, carried, body);
  }
  size_t at = 0;
  std::map<std::pair<int, Point>, std::vector<Value*>> folded;
  for (size_t i = 0; i < slots.size(); ++i) {
    auto [id, point] = slots[i];
    std::vector<Value*> parts(result.begin() + static_cast<long>(at),
                              result.begin() + static_cast<long>(at + widths[i]));
    at += widths[i];
    if (!row) {
      folded[{id, point}] = parts;
      continue;
    }
    point.back() = 0;
    auto key = std::make_pair(id, point);
    auto it = folded.find(key);
    if (it == folded.end()) {
      folded[key] = parts;
    } else {
      it->second = combine(kernel_.reductions[static_cast<size_t>(id)], it->second, parts);
    }
  }
  for (auto& [key, parts] : folded) {
    const ReductionDef& r = kernel_.reductions[static_cast<size_t>(key.first)];
    std::vector<Value*> final_parts = row ? fold_lanes(r, parts) : parts;
    Value* v = tracks_position(r.fn) ? final_parts[1] : final_parts[0];
    if (is_half(r.dtype) && !tracks_position(r.fn)) v = round_to_half(b_, v, r.dtype);
    reductions_[key] = {{v, is_vector && !row}};
  }
  reduction_scope_ = scopes_.size() - 1;
  coordinate_memo_.clear();
}

}  // namespace cuvil
