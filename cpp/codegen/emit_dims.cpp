// Integer expressions: sizes, indices, addresses.
#include <algorithm>

#include "codegen/floor_division.hpp"
#include "codegen/kernel_emitter.hpp"
#include "codegen/llvm_compat.hpp"
#include "support/error.hpp"

namespace cuvil {

namespace {

bool has_indirect(const Dim& d) {
  for (const Dim& s : d.symbols()) {
    if (s.symbol_name()[0] == '@') return true;
  }
  return false;
}

}  // namespace

size_t KernelEmitter::scope_of(const Dim& d) {
  size_t scope = 0;
  for (const Dim& s : d.symbols()) {
    const std::string& name = s.symbol_name();
    if (name[0] == '@') {
      scope = std::max(scope, guards_.empty() ? scope_of(*indirect(name).value) : scopes_.size() - 1);
      continue;
    }
    auto it = bindings_.find(name);
    CUVIL_CHECK(it != bindings_.end(), "kernel " + kernel_.name + ": variable " + name + " is not bound");
    scope = std::max(scope, it->second.scope);
  }
  return scope;
}

Dim KernelEmitter::at_point(const Dim& d, const Point& point) const {
  std::map<std::string, Dim> map;
  for (const Dim& s : d.symbols()) {
    const std::string& name = s.symbol_name();
    for (size_t i = 0; i < tile_variables_.size(); ++i) {
      if (tile_variables_[i] != name) continue;
      if (tile_from_zero_[i]) {
        map.emplace(name, point[i]);
      } else if (point[i] != 0) {
        map.emplace(name, s + point[i]);
      }
    }
    if (auto it = unroll_offsets_.find(name); it != unroll_offsets_.end()) map.emplace(name, s + it->second);
    if (name == vector_variable_ && point.back() != 0) map.emplace(name, s + int64_t{point.back()} * lanes_);
  }
  return map.empty() ? d : d.substitute(map);
}

bool KernelEmitter::dim_is_vector(const Dim& d) {
  for (const Dim& s : d.symbols()) {
    const std::string& name = s.symbol_name();
    if (name == vector_variable_) return true;
    if (name[0] == '@' && (coordinates_of(*indirect(name).value) >> tile_variables_.size() & 1)) return true;
  }
  return false;
}

bool KernelEmitter::has_vector_indirect(const Dim& d) {
  for (const Dim& s : d.symbols()) {
    if (s.symbol_name()[0] == '@' && dim_is_vector(s)) return true;
  }
  return false;
}

llvm::Value* KernelEmitter::scalar_dim(const Dim& d, const Point& point) {
  return scalar_dim_in_scope(at_point(d, point), point);
}

// `d` is already at the point. Terms of outer scopes are summed there, so that loops only add what changes in them.
llvm::Value* KernelEmitter::scalar_dim_in_scope(const Dim& d, const Point& point) {
  if (auto c = d.constant()) return b_.getInt64(static_cast<uint64_t>(*c));
  size_t scope = scope_of(d);
  bool cacheable = !has_indirect(d);
  if (cacheable) {
    if (auto it = scopes_[scope].dims.find(d); it != scopes_[scope].dims.end()) return it->second;
  }
  Dim outer, here;
  for (const DimTerm& term : d.terms()) {
    Dim t = from_terms({term});
    if (scope > 0 && scope_of(t) < scope) {
      outer = outer + t;
    } else {
      here = here + t;
    }
  }
  Value* base = outer == Dim(0) ? nullptr : scalar_dim_in_scope(outer, point);
  Value* result = in_scope(scope, [&]() -> Value* {
    Value* sum = base;
    for (const DimTerm& term : here.terms()) {
      Value* product = nullptr;
      for (const DimAtomPtr& f : term.factors) {
        Value* v = atom_value(*f, point);
        product = product ? b_.CreateMul(product, v) : v;
      }
      if (!product) {
        product = b_.getInt64(static_cast<uint64_t>(term.coefficient));
      } else if (term.coefficient != 1) {
        product = b_.CreateMul(product, b_.getInt64(static_cast<uint64_t>(term.coefficient)));
      }
      sum = sum ? b_.CreateAdd(sum, product) : product;
    }
    return sum ? sum : b_.getInt64(0);
  });
  if (cacheable) scopes_[scope].dims[d] = result;
  return result;
}

llvm::Value* KernelEmitter::atom_value(const DimAtom& atom, const Point& point) {
  if (atom.kind == DimAtom::Kind::Symbol) {
    if (atom.name[0] == '@') return indirect_value(atom.name, point).value;
    return bindings_.at(atom.name).value;
  }
  Value* a = scalar_dim_in_scope(atom.a, point);
  Value* b = scalar_dim_in_scope(atom.b, point);
  switch (atom.kind) {
    case DimAtom::Kind::FloorDiv:
    case DimAtom::Kind::Mod:
      return emit_floor_division(b_, atom, a, b);
    case DimAtom::Kind::Min:
      return b_.CreateSelect(b_.CreateICmpSLT(a, b), a, b);
    default:
      return b_.CreateSelect(b_.CreateICmpSGT(a, b), a, b);
  }
}

// Per lane, as <lanes x i64>; lane 0 of the vector variable is its scalar value.
llvm::Value* KernelEmitter::vector_dim(const Dim& d, const Point& point) {
  return vector_dim_here(at_point(d, point), point);
}

// `here` is already at the point; the point still says at which indirect indices are.
llvm::Value* KernelEmitter::vector_dim_here(const Dim& here, const Point& point) {
  Value* sum = nullptr;
  Dim uniform;
  for (const DimTerm& term : here.terms()) {
    bool vector = false;
    for (const DimAtomPtr& f : term.factors) {
      vector |= f->kind == DimAtom::Kind::Symbol
                    ? f->name == vector_variable_ || f->name[0] == '@'
                    : dim_is_vector(f->a) || dim_is_vector(f->b) || has_indirect(f->a) || has_indirect(f->b);
    }
    if (!vector) {
      uniform = uniform + from_terms({term});
      continue;
    }
    Value* product = splat(b_.getInt64(static_cast<uint64_t>(term.coefficient)));
    for (const DimAtomPtr& f : term.factors) product = b_.CreateMul(product, vector_atom(*f, point));
    sum = sum ? b_.CreateAdd(sum, product) : product;
  }
  Value* rest = splat(scalar_dim_in_scope(uniform, point));
  return sum ? b_.CreateAdd(sum, rest) : rest;
}

llvm::Value* KernelEmitter::vector_atom(const DimAtom& atom, const Point& point) {
  if (atom.kind == DimAtom::Kind::Symbol) {
    if (atom.name[0] == '@') return as_vector(indirect_value(atom.name, point));
    Value* base = splat(bindings_.at(atom.name).value);
    if (atom.name != vector_variable_) return base;
    std::vector<llvm::Constant*> lanes;
    for (int i = 0; i < lanes_; ++i) lanes.push_back(b_.getInt64(static_cast<uint64_t>(i)));
    return b_.CreateAdd(base, llvm::ConstantVector::get(lanes));
  }
  Value* a = vector_dim_here(atom.a, point);
  Value* b = vector_dim_here(atom.b, point);
  switch (atom.kind) {
    case DimAtom::Kind::FloorDiv:
    case DimAtom::Kind::Mod:
      return emit_floor_division(b_, atom, a, b);
    case DimAtom::Kind::Min:
      return b_.CreateSelect(b_.CreateICmpSLT(a, b), a, b);
    default:
      return b_.CreateSelect(b_.CreateICmpSGT(a, b), a, b);
  }
}

const Indirect& KernelEmitter::indirect(const std::string& symbol) const {
  for (const Indirect& i : kernel_.indirects) {
    if (i.symbol == symbol) return i;
  }
  throw InternalError("no indirect index " + symbol);
}

// The checked index that `symbol` stands for. An index outside its axis is recorded (branch-free where the check leaves
// loops with the load it belongs to) and replaced by 0.
KernelEmitter::Typed KernelEmitter::indirect_value(const std::string& symbol, const Point& point) {
  const Indirect& i = indirect(symbol);
  size_t scope = guards_.empty() ? scope_of(*i.value) : scopes_.size() - 1;
  auto key = std::make_tuple(i.value.get(), masked(point, coordinates_of(*i.value)),
                             -1 - (guards_.empty() ? 0 : guards_.back().id));
  if (auto it = scopes_[scope].values.find(key); it != scopes_[scope].values.end()) return it->second;
  Typed raw = value(i.value, point);
  Value* size = scalar_dim(i.size, point);
  Typed result = in_scope(scope, [&]() -> Typed {
    llvm::Type* wide = raw.is_vector ? vector_of(b_.getInt64Ty()) : b_.getInt64Ty();
    DType dtype = i.value->dtype;
    Value* v = is_signed_int(dtype) ? b_.CreateSExt(raw.value, wide) : b_.CreateZExt(raw.value, wide);
    Value* limit = raw.is_vector ? splat(size) : size;
    Value* zero = llvm::Constant::getNullValue(wide);
    Value* wrapped = b_.CreateSelect(b_.CreateICmpSLT(v, zero), b_.CreateAdd(v, limit), v);
    Value* bad = b_.CreateICmpUGE(wrapped, limit);
    Value* any = bad;
    Value* example = v;
    if (!raw.is_vector) {
      for (const Guarding& g : guards_) {
        any = b_.CreateAnd(any, g.condition.is_vector ? b_.CreateOrReduce(g.condition.value) : g.condition.value);
      }
    } else {
      Value* live = bad;
      if (Value* mask = access_mask()) live = b_.CreateAnd(bad, mask);
      any = b_.CreateOrReduce(live);
      example =
          b_.CreateIntMaxReduce(b_.CreateSelect(live, v, splat(b_.getInt64(static_cast<uint64_t>(INT64_MIN)))), true);
    }
    record_error(any, example, size, !raw.is_vector && !scopes_[scope].hoist);
    return {b_.CreateSelect(bad, zero, wrapped), raw.is_vector};
  });
  scopes_[scope].values[key] = result;
  return result;
}

void KernelEmitter::record_error(Value* is_error, Value* index, Value* size, bool may_branch) {
  // The record is {flag, value, size, 0}.
  auto keep = [&](Value* record) {
    b_.CreateStore(b_.getInt64(1), record);
    b_.CreateStore(index, b_.CreateConstGEP1_64(b_.getInt64Ty(), record, 1));
    b_.CreateStore(size, b_.CreateConstGEP1_64(b_.getInt64Ty(), record, 2));
  };
  if (!may_branch) {
    // A second record after the first takes what is not to be kept.
    keep(b_.CreateSelect(is_error, error_, b_.CreateConstGEP1_64(b_.getInt64Ty(), error_, 4)));
    return;
  }
  auto* wrong = llvm::BasicBlock::Create(context_, "wrong", function_);
  auto* next = llvm::BasicBlock::Create(context_, "next", function_);
  b_.CreateCondBr(is_error, wrong, next);
  b_.SetInsertPoint(wrong);
  keep(error_);
  b_.CreateBr(next);
  b_.SetInsertPoint(next);
}

llvm::Value* KernelEmitter::address(Value* base, const Dim& offset, DType dtype, const Point& point) {
  return address_here(base, at_point(offset, point), dtype, point);
}

llvm::Value* KernelEmitter::address_here(Value* base, const Dim& d, DType dtype, const Point& point) {
  int64_t constant = 0;
  if (!d.terms().empty() && d.terms()[0].factors.empty()) constant = d.terms()[0].coefficient;
  Dim rest = d - constant;
  Value* pointer = base;
  llvm::Type* element = memory_type(dtype);
  if (rest != Dim(0)) {
    size_t scope = scope_of(rest);
    auto key = std::make_pair(base, rest);
    bool cacheable = !has_indirect(rest);
    auto it = scopes_[scope].addresses.find(key);
    if (cacheable && it != scopes_[scope].addresses.end()) {
      pointer = it->second;
    } else {
      Dim outer, here;
      for (const DimTerm& term : rest.terms()) {
        Dim t = from_terms({term});
        // The outer part is taken at the tile's origin, where an indirect index would be another row's.
        if (scope > 0 && scope_of(t) < scope && !has_indirect(t))
          outer = outer + t;
        else
          here = here + t;
      }
      Value* from = outer == Dim(0) ? base : address_here(base, outer, dtype, point);
      Value* index = scalar_dim_in_scope(here, point);
      pointer = in_scope(scope, [&]() -> Value* { return b_.CreateGEP(element, from, index); });
      if (cacheable) scopes_[scope].addresses[key] = pointer;
    }
  }
  return constant == 0 ? pointer : b_.CreateConstGEP1_64(element, pointer, static_cast<uint64_t>(constant));
}

}  // namespace cuvil
