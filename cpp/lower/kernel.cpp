#include "lower/kernel.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <sstream>

#include "support/error.hpp"

namespace cuvil {

namespace {

ExprPtr make(Expr e) {
  return std::make_shared<const Expr>(std::move(e));
}

}  // namespace

ExprPtr constant_expr(DType dtype, double number) {
  Expr e;
  e.dtype = dtype;
  e.number = number;
  e.integer = is_float(dtype) ? 0 : static_cast<int64_t>(number);
  return make(std::move(e));
}

ExprPtr constant_int_expr(DType dtype, int64_t integer) {
  Expr e;
  e.dtype = dtype;
  e.integer = integer;
  e.number = static_cast<double>(integer);
  return make(std::move(e));
}

ExprPtr index_expr(DType dtype, Dim index) {
  if (auto c = index.constant()) return constant_int_expr(dtype, *c);
  Expr e;
  e.kind = Expr::Kind::Index;
  e.dtype = dtype;
  e.index = std::move(index);
  return make(std::move(e));
}

ExprPtr load_expr(DType dtype, int buffer, Dim offset) {
  Expr e;
  e.kind = Expr::Kind::Load;
  e.dtype = dtype;
  e.buffer = buffer;
  e.index = std::move(offset);
  return make(std::move(e));
}

ExprPtr apply_expr(Fn fn, DType dtype, std::vector<ExprPtr> args) {
  if (fn == Fn::Identity) return args[0];
  Expr e;
  e.kind = Expr::Kind::Apply;
  e.dtype = dtype;
  e.fn = fn;
  e.args = std::move(args);
  return make(std::move(e));
}

ExprPtr cast_expr(DType dtype, ExprPtr value) {
  if (value->dtype == dtype) return value;
  Expr e;
  e.kind = Expr::Kind::Cast;
  e.dtype = dtype;
  e.args = {std::move(value)};
  return make(std::move(e));
}

// What is loaded is loaded as the other dtype: half types are widened when they are, which may change the bits of a
// NaN.
ExprPtr bitcast_expr(DType dtype, ExprPtr value) {
  if (value->dtype == dtype) return value;
  Expr e;
  if (value->kind == Expr::Kind::Load) {
    e = *value;
  } else if (value->kind == Expr::Kind::BitCast && value->dtype != DType::boolean) {
    return bitcast_expr(dtype, value->args[0]);
  } else if (value->kind == Expr::Kind::Guard) {
    return guard_expr(value->checks, bitcast_expr(dtype, value->args[0]), bitcast_expr(dtype, value->args[1]));
  } else {
    e.kind = Expr::Kind::BitCast;
    e.args = {std::move(value)};
  }
  e.dtype = dtype;
  return make(std::move(e));
}

ExprPtr guard_expr(std::vector<RangeCheck> checks, ExprPtr inside, ExprPtr outside) {
  std::erase_if(checks,
                [](const RangeCheck& c) { return provably_le(c.lower, c.value) && provably_lt(c.value, c.upper); });
  if (checks.empty()) return inside;
  for (const RangeCheck& c : checks) {
    if (provably_lt(c.value, c.lower) || provably_le(c.upper, c.value)) return outside;
  }
  Expr e;
  e.kind = Expr::Kind::Guard;
  e.dtype = inside->dtype;
  e.args = {std::move(inside), std::move(outside)};
  e.checks = std::move(checks);
  return make(std::move(e));
}

ExprPtr reduction_expr(DType dtype, int id) {
  Expr e;
  e.kind = Expr::Kind::Reduction;
  e.dtype = dtype;
  e.id = id;
  return make(std::move(e));
}

ExprPtr ExprRewriter::operator()(const ExprPtr& e) {
  if (auto it = done_.find(e.get()); it != done_.end()) return it->second;
  ExprPtr result;
  std::vector<ExprPtr> args;
  for (const ExprPtr& arg : e->args) args.push_back((*this)(arg));
  if (e->kind == Expr::Kind::Guard) {
    std::vector<RangeCheck> checks;
    for (const RangeCheck& c : e->checks) checks.push_back({f_(c.value), f_(c.lower), f_(c.upper)});
    result = guard_expr(std::move(checks), args[0], args[1]);
  } else if (e->kind == Expr::Kind::Index) {
    result = index_expr(e->dtype, f_(e->index));
  } else {
    Expr copy = *e;
    copy.args = std::move(args);
    if (e->kind == Expr::Kind::Load) copy.index = f_(e->index);
    result = make(std::move(copy));
  }
  done_[e.get()] = result;
  keep_.push_back(e);
  return result;
}

namespace {

std::array<Dim*, 7> dims_of(SortDef& sort) {
  return {&sort.keys.offset, &sort.keys.stride, &sort.order.offset,  &sort.order.stride,
          &sort.size,        &sort.count,       &sort.scratch_offset};
}

}  // namespace

Dim SortDef::scratch_elements(DType keys, const Dim& size, const Dim& count) {
  const int64_t words = size_of(keys) > 4 ? 2 : 1;
  const bool selects = provably_le(size, kMostInserted) || provably_le(count, kMostSelected);
  return (selects ? count : maximum(size * 2, count)) * words;
}

bool Kernel::may_fail() const {
  return !indirects.empty() || std::any_of(phases.begin(), phases.end(), [](const Phase& phase) {
    return phase.sort && !provably_le(phase.sort->count, phase.sort->size);
  });
}

void rewrite_dims(Kernel& kernel, const std::function<Dim(const Dim&)>& f) {
  ExprRewriter rewrite(f);
  auto loops = [&](std::vector<Loop>& list) {
    for (Loop& loop : list) {
      loop.extent = f(loop.extent);
      if (loop.limit) loop.limit = f(*loop.limit);
    }
  };
  loops(kernel.outer);
  for (Phase& phase : kernel.phases) {
    loops(phase.loops);
    for (StoreDef& store : phase.stores) {
      store.offset = f(store.offset);
      store.value = rewrite(store.value);
    }
    if (phase.sort) {
      for (Dim* d : dims_of(*phase.sort)) *d = f(*d);
    }
  }
  for (ReductionDef& r : kernel.reductions) {
    r.value = rewrite(r.value);
    r.position = f(r.position);
  }
  for (Indirect& i : kernel.indirects) {
    i.value = rewrite(i.value);
    i.size = f(i.size);
  }
}

namespace {

void visit_new(const ExprPtr& e, std::set<const Expr*>& seen, const std::function<void(const Expr&)>& f) {
  if (!seen.insert(e.get()).second) return;
  for (const ExprPtr& arg : e->args) visit_new(arg, seen, f);
  f(*e);
}

}  // namespace

void visit(const ExprPtr& e, const std::function<void(const Expr&)>& f) {
  std::set<const Expr*> seen;
  visit_new(e, seen, f);
}

void visit_all(const Kernel& kernel, const std::function<void(const Expr&)>& f) {
  std::set<const Expr*> seen;
  for (const ReductionDef& r : kernel.reductions) visit_new(r.value, seen, f);
  for (const Phase& phase : kernel.phases) {
    for (const StoreDef& store : phase.stores) visit_new(store.value, seen, f);
  }
  for (const Indirect& i : kernel.indirects) visit_new(i.value, seen, f);
}

void visit_dims(const Kernel& kernel, const std::function<void(const Dim&)>& f) {
  auto loops = [&](const std::vector<Loop>& list) {
    for (const Loop& loop : list) {
      f(loop.extent);
      if (loop.limit) f(*loop.limit);
    }
  };
  loops(kernel.outer);
  for (const Phase& phase : kernel.phases) {
    loops(phase.loops);
    for (const StoreDef& store : phase.stores) f(store.offset);
    if (phase.sort) {
      SortDef sort = *phase.sort;
      for (Dim* d : dims_of(sort)) f(*d);
    }
  }
  for (const ReductionDef& r : kernel.reductions) f(r.position);
  for (const Indirect& i : kernel.indirects) f(i.size);
  visit_all(kernel, [&](const Expr& e) {
    if (e.kind == Expr::Kind::Load || e.kind == Expr::Kind::Index) f(e.index);
    for (const RangeCheck& c : e.checks) {
      f(c.value);
      f(c.lower);
      f(c.upper);
    }
  });
}

std::vector<Dim> Kernel::symbols() const {
  std::map<std::string, Dim> found;
  std::set<std::string> indirect;
  for (const Indirect& i : indirects) indirect.insert(i.symbol);
  std::function<void(const Dim&)> add = [&](const Dim& d) {
    for (const Dim& s : d.symbols()) {
      if (!s.terms()[0].factors[0]->is_loop && !indirect.count(s.symbol_name())) found.emplace(s.symbol_name(), s);
    }
  };
  visit_dims(*this, add);
  std::vector<Dim> out;
  for (auto& [name, symbol] : found) out.push_back(symbol);
  return out;
}

bool Schedule::is_vector(const Loop& loop) const {
  return loop.variable.is_symbol() &&
         std::find(vector_loops.begin(), vector_loops.end(), loop.variable.symbol_name()) != vector_loops.end();
}

bool Schedule::is_outermost(const Loop& loop) const {
  if (!loop.variable.is_symbol()) return false;
  const std::string& name = loop.variable.symbol_name();
  return name == batch_loop || name == row_loop;
}

const Schedule::Tile* Schedule::tile_of(const Loop& loop) const {
  if (!loop.variable.is_symbol()) return nullptr;
  for (const Tile& tile : tiles) {
    if (tile.loop == loop.variable.symbol_name()) return &tile;
  }
  return nullptr;
}

namespace {

std::string number_str(const Expr& e) {
  if (!is_float(e.dtype)) return std::to_string(e.integer);
  std::ostringstream out;
  out.precision(is_float(e.dtype) && e.dtype == DType::f64 ? 17 : 9);
  out << e.number;
  return out.str();
}

void print_loops(std::ostringstream& out, const std::vector<Loop>& loops) {
  for (const Loop& loop : loops) {
    out << " " << loop.variable.str() << "<" << loop.extent.str();
    if (loop.limit) out << " limit " << loop.limit->str();
  }
}

std::string sort_str(const SortDef& sort) {
  auto row = [](const SortDef::Row& r) {
    return "b" + std::to_string(r.buffer) + "[" + r.offset.str() + " by " + r.stride.str() + "]";
  };
  return row(sort.order) + " = order of " + row(sort.keys) + ", first " + sort.count.str() + " of " + sort.size.str() +
         (sort.descending ? " descending" : " ascending") + ", scratch b" + std::to_string(sort.scratch) + "[" +
         sort.scratch_offset.str() + "]";
}

// Expressions as text; a shared one is named and written once.
class ExprPrinter {
 public:
  explicit ExprPrinter(const Kernel* kernel) {
    if (!kernel) return;
    std::map<const Expr*, int> uses;
    visit_all(*kernel, [&](const Expr& e) {
      for (const ExprPtr& arg : e.args) ++uses[arg.get()];
    });
    visit_all(*kernel, [&](const Expr& e) {
      bool worth_naming = e.kind == Expr::Kind::Apply || e.kind == Expr::Kind::Guard || e.kind == Expr::Kind::Cast ||
                          e.kind == Expr::Kind::BitCast;
      if (uses[&e] > 1 && worth_naming) {
        std::string text = write(e);
        names_[&e] = "t" + std::to_string(names_.size());
        definitions_.push_back(names_[&e] + " = " + text);
      }
    });
  }

  const std::vector<std::string>& definitions() const { return definitions_; }

  std::string operator()(const Expr& e) const {
    auto it = names_.find(&e);
    return it == names_.end() ? write(e) : it->second;
  }

 private:
  std::string write(const Expr& e) const {
    switch (e.kind) {
      case Expr::Kind::Constant:
        return number_str(e);
      case Expr::Kind::Index:
        return std::string(name_of(e.dtype)) + "(" + e.index.str() + ")";
      case Expr::Kind::Load:
        return "b" + std::to_string(e.buffer) + "[" + e.index.str() + "]";
      case Expr::Kind::Reduction:
        return "r" + std::to_string(e.id);
      case Expr::Kind::Cast:
        return std::string(name_of(e.dtype)) + "(" + (*this)(*e.args[0]) + ")";
      case Expr::Kind::BitCast:
        return std::string(name_of(e.dtype)) + " of bits(" + (*this)(*e.args[0]) + ")";
      case Expr::Kind::Apply: {
        std::string s = std::string(info(e.fn).name) + "(";
        for (size_t i = 0; i < e.args.size(); ++i) s += (i ? ", " : "") + (*this)(*e.args[i]);
        return s + ")";
      }
      case Expr::Kind::Guard: {
        std::string s = "guard(";
        for (size_t i = 0; i < e.checks.size(); ++i) {
          const RangeCheck& c = e.checks[i];
          s += (i ? " && " : "") + c.lower.str() + " <= " + c.value.str() + " < " + c.upper.str();
        }
        return s + " ? " + (*this)(*e.args[0]) + " : " + (*this)(*e.args[1]) + ")";
      }
    }
    return "?";
  }

  std::map<const Expr*, std::string> names_;
  std::vector<std::string> definitions_;
};

}  // namespace

std::string Kernel::str() const {
  std::ostringstream out;
  ExprPrinter text(this);
  out << "kernel " << name << "\n  for";
  print_loops(out, outer);
  out << "   # first " << schedule.parallel_loops << " parallel";
  for (const std::string& loop : schedule.vector_loops) {
    out << ", vector " << loop << " x" << schedule.lanes << "x" << schedule.vector_tile;
  }
  for (const Schedule::Tile& tile : schedule.tiles) out << ", tile " << tile.loop << " by " << tile.size;
  if (!schedule.dot_loop.empty()) out << ", dot " << schedule.dot_loop;
  if (!schedule.row_loop.empty()) out << ", bands of " << schedule.row_loop;
  if (schedule.prefetch) {
    out << ", prefetch b" << schedule.prefetch->buffer << "[" << schedule.prefetch->offset.str() << "] x"
        << schedule.prefetch->lines;
  }
  out << "\n";
  for (const std::string& definition : text.definitions()) out << "    " << definition << "\n";
  for (const Phase& phase : phases) {
    out << "    phase";
    print_loops(out, phase.loops);
    out << (phase.ordered ? " in order\n" : "\n");
    for (int id : phase.reductions) {
      const ReductionDef& r = reductions[static_cast<size_t>(id)];
      out << "      r" << id << " = " << name_of(r.fn) << " " << text(*r.value) << "\n";
    }
    for (const StoreDef& store : phase.stores) {
      out << "      b" << store.buffer << "[" << store.offset.str()
          << "] = " << (store.combine ? std::string(name_of(*store.combine)) + " " : "") << text(*store.value) << "\n";
    }
    if (phase.sort) out << "      " << sort_str(*phase.sort) << "\n";
  }
  for (const Indirect& i : indirects)
    out << "    " << i.symbol << " = " << text(*i.value) << " in " << i.size.str() << "\n";
  return out.str();
}

}  // namespace cuvil
