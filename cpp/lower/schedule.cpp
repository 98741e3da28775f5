#include "lower/schedule.hpp"

#include <algorithm>
#include <set>

#include "support/error.hpp"

namespace cuvil {

namespace {

enum class Walk { Uniform, Contiguous, Scattered };

Walk walk_of(const Dim& index, const Dim& variable) {
  if (!variable.is_symbol() || !index.contains(variable)) return Walk::Uniform;
  auto c = index.coefficient_of(variable);
  return c && *c == Dim(1) ? Walk::Contiguous : Walk::Scattered;
}

struct Accesses {
  int contiguous = 0, scattered = 0;
  void add(Walk w) {
    contiguous += w == Walk::Contiguous;
    scattered += w == Walk::Scattered;
  }
};

// The load of a widened operand of a product; null if it is computed otherwise.
const Expr* widened_load(const Expr& e, DType dtype) {
  bool is = e.kind == Expr::Kind::Cast && e.args[0]->kind == Expr::Kind::Load && e.args[0]->dtype == dtype;
  return is ? e.args[0].get() : nullptr;
}

// Finds the loop that an instruction's sum of products covers.
void find_dot_loop(Kernel& kernel, const TargetDescription& target) {
  if (!target.dot || !kernel.contraction || kernel.reductions.size() != 1) return;
  const ReductionDef& r = kernel.reductions[0];
  if (r.fn != ReduceFn::Sum || r.dtype != DType::i32 || r.value->kind != Expr::Kind::Apply) return;
  const bool bytes = target.dot == 4;
  const Expr* rows = widened_load(*r.value->args[0], bytes ? DType::u8 : DType::i16);
  const Expr* columns = widened_load(*r.value->args[1], bytes ? DType::i8 : DType::i16);
  if (!rows || !columns) return;
  for (const Phase& phase : kernel.phases) {
    if (phase.reductions.empty()) continue;
    for (const Loop& loop : phase.loops) {
      bool side_by_side =
          rows->index.coefficient_of(loop.variable) == Dim(1) && columns->index.coefficient_of(loop.variable) == Dim(1);
      if (loop.extent != Dim(target.dot) || loop.limit || !side_by_side) continue;
      kernel.schedule.dot_loop = loop.variable.symbol_name();
      kernel.schedule.dot = target.dot;
    }
  }
}

// The indices that the offset takes from memory may move with the variable too, anywhere.
Walk walk_of(const Dim& index, const Kernel& kernel, const Dim& variable) {
  for (const Indirect& i : kernel.indirects) {
    if (!index.contains(Dim::symbol(i.symbol, 0))) continue;
    bool moves = false;
    visit(i.value, [&](const Expr& x) {
      if (x.kind == Expr::Kind::Load || x.kind == Expr::Kind::Index)
        moves |= walk_of(x.index, kernel, variable) != Walk::Uniform;
    });
    if (moves) return Walk::Scattered;
  }
  return walk_of(index, variable);
}

void add_loads(const ExprPtr& e, const Kernel& kernel, const Dim& variable, Accesses& out) {
  visit(e, [&](const Expr& x) {
    if (x.kind != Expr::Kind::Load) return;
    // Columns of a dot product lie side by side in groups.
    const Schedule& plan = kernel.schedule;
    bool narrow = x.dtype == DType::i8 || x.dtype == DType::i16;
    bool grouped = !plan.dot_loop.empty() && narrow && x.index.coefficient_of(variable) == Dim(plan.dot);
    out.add(grouped ? Walk::Contiguous : walk_of(x.index, kernel, variable));
  });
}

Accesses phase_accesses(const Kernel& kernel, const Phase& phase, const Dim& variable) {
  Accesses a;
  for (int id : phase.reductions) add_loads(kernel.reductions[static_cast<size_t>(id)].value, kernel, variable, a);
  for (const StoreDef& store : phase.stores) {
    a.add(walk_of(store.offset, kernel, variable));
    add_loads(store.value, kernel, variable, a);
  }
  return a;
}

// The store's address must move with an outer vector loop, else lanes would overwrite each other.
bool stores_move(const Kernel& kernel, const Dim& variable) {
  for (const Phase& phase : kernel.phases) {
    if (phase.sort) return false;
    for (const StoreDef& store : phase.stores) {
      if (walk_of(store.offset, variable) == Walk::Uniform) return false;
    }
  }
  return true;
}

// A size to plan with: symbols count as 1, so that loops whose size is known are preferred for tiles.
int64_t extent_hint(const Dim& extent) {
  return std::max<int64_t>(1, extent.evaluate([](const std::string&) { return int64_t{1}; }));
}

// For vectors, a size that varies is worth them unless its bounds say otherwise.
int64_t vector_extent(const Dim& extent) {
  if (auto c = extent.constant()) return *c;
  return std::min<int64_t>(extent.upper_bound().value_or(64), 64);
}

struct VectorChoice {
  std::vector<std::string> loops;
  bool outer = false;
  int quality = 0;
  int64_t extent = 0;
};

VectorChoice best_outer(const Kernel& kernel, int lanes) {
  VectorChoice best;
  for (const Loop& loop : kernel.outer) {
    if (!loop.variable.is_symbol() || kernel.schedule.is_outermost(loop) || !stores_move(kernel, loop.variable))
      continue;
    Accesses a;
    for (const Phase& phase : kernel.phases) {
      Accesses p = phase_accesses(kernel, phase, loop.variable);
      a.contiguous += p.contiguous;
      a.scattered += p.scattered;
    }
    VectorChoice c{{loop.variable.symbol_name()}, true, a.scattered ? 1 : 2, vector_extent(loop.extent)};
    if (c.extent * 2 <= lanes) c.quality = std::min(c.quality, 1);
    auto rank = [&](const VectorChoice& v) {
      return std::make_pair(v.quality, v.quality == 2 ? std::min<int64_t>(v.extent, lanes) : -a.scattered);
    };
    if (best.loops.empty() || rank(c) >= rank(best)) best = c;
  }
  return best;
}

VectorChoice best_rows(const Kernel& kernel, int lanes) {
  VectorChoice choice;
  choice.quality = 2;
  choice.extent = 0;
  for (const Phase& phase : kernel.phases) {
    if (phase.ordered) continue;
    const Loop* best = nullptr;
    int best_quality = 0;
    for (const Loop& loop : phase.loops) {
      Accesses a = phase_accesses(kernel, phase, loop.variable);
      int q = a.scattered ? 1 : 2;
      if (vector_extent(loop.extent) * 2 <= lanes) q = 1;
      if (!best || q >= best_quality) {
        best = &loop;
        best_quality = q;
      }
    }
    if (!best) continue;
    choice.loops.push_back(best->variable.symbol_name());
    choice.quality = std::min(choice.quality, best_quality);
    choice.extent = std::max(choice.extent, vector_extent(best->extent));
  }
  if (choice.loops.empty()) choice.quality = 0;
  return choice;
}

VectorChoice choose_vector_loops(const Kernel& kernel, int lanes) {
  VectorChoice outer = best_outer(kernel, lanes), rows = best_rows(kernel, lanes);
  if (rows.loops.empty()) return outer;
  if (outer.loops.empty()) return rows;
  if (outer.quality != rows.quality) return outer.quality > rows.quality ? outer : rows;
  return rows.extent >= outer.extent || rows.extent >= lanes ? rows : outer;
}

// Lanes are set by the widest element, so that one vector of each operand is at most one register.
int lanes_of(const Kernel& kernel, const TargetDescription& target) {
  size_t widest = 1;
  for (const KernelBuffer& b : kernel.buffers)
    widest = std::max(widest, is_float(b.dtype) ? std::max<size_t>(4, size_of(b.dtype)) : size_of(b.dtype));
  visit_all(kernel, [&](const Expr& e) {
    size_t bytes = is_float(e.dtype)           ? std::max<size_t>(4, size_of(e.dtype))
                   : e.dtype == DType::boolean ? 1
                                               : size_of(e.dtype);
    widest = std::max(widest, bytes);
  });
  return std::max(1, target.lanes(static_cast<int>(std::max<size_t>(widest, 4))));
}

int costly_functions(const Kernel& kernel) {
  int n = 0;
  visit_all(kernel, [&](const Expr& e) {
    if (e.kind != Expr::Kind::Apply) return;
    switch (e.fn) {
      case Fn::Exp:
      case Fn::Expm1:
      case Fn::Log:
      case Fn::Log1p:
      case Fn::Sin:
      case Fn::Cos:
      case Fn::Tanh:
      case Fn::Sigmoid:
      case Fn::Erf:
      case Fn::Pow:
      case Fn::Div:
        ++n;
        break;
      default:
        break;
    }
  });
  return n;
}

class Scheduler {
 public:
  Scheduler(Kernel& kernel, const TargetDescription& target, const ScheduleChoice& choice)
      : kernel_(kernel), target_(target), choice_(choice), plan_(kernel.schedule) {}

  void run() {
    split_loops(kernel_);
    merge_loops(kernel_);
    plan_.lanes = lanes_of(kernel_, target_);
    find_dot_loop(kernel_, target_);
    VectorChoice choice = plan_.lanes > 1 ? choose_vector_loops(kernel_, plan_.lanes) : VectorChoice{};
    if (choice.quality == 1 && choice.extent < plan_.lanes) choice = {};
    if (choice.quality < 2 && move_columns_inside()) choice = {};
    plan_.vector_loops = choice.loops;
    if (choice.loops.empty()) plan_.lanes = 1;
    if (!choice.outer || !dot_columns_follow(choice)) plan_.dot_loop.clear();
    unroll_selectors();
    bool folds = std::any_of(kernel_.phases.begin(), kernel_.phases.end(),
                             [](const Phase& p) { return !p.loops.empty() && !p.reductions.empty(); });
    if (choice.outer && folds) {
      if (kernel_.contraction) {
        stream_columns_operand();
        describe_product();
      }
      tile_outputs();
    } else {
      int64_t vectors = (choice.extent + plan_.lanes - 1) / std::max(1, plan_.lanes);
      plan_.vector_tile = static_cast<int>(std::clamp<int64_t>(vectors, 1, costly_functions(kernel_) > 0 ? 2 : 4));
    }
    order_loops(folds);
    set_unroll();
    set_chunk();
    if (plan_.product && choice_.prefetch) {
      if (const Expr* columns = load_of(columns_in_second())) plan_prefetch(kernel_, *columns, target_);
      plan_.product->prefetched = plan_.prefetch.has_value();
    }
  }

 private:
  // Stores whose lanes would lie apart are better made one by one, in the order of memory: columns inside the steps
  // that must keep their order. Whether there are such steps.
  bool move_columns_inside() {
    // Wide enough for stores to have arrived before a load a row (often 4 KiB) further on would wait for them.
    constexpr int64_t block = 256;
    if (kernel_.phases.size() != 1 || !kernel_.phases[0].ordered) return false;
    Phase& phase = kernel_.phases[0];
    for (size_t i = 0; i < kernel_.outer.size() && !phase.loops.empty(); ++i) {
      const Loop columns = kernel_.outer[i];
      if (columns.limit || walk_of(phase.stores[0].offset, columns.variable) != Walk::Contiguous) continue;
      const std::string& name = columns.variable.symbol_name();
      const Dim blocks = ceil_div(columns.extent, block);
      Loop outer{Dim::loop_variable(name + "o", blocks), blocks, {}},
          inner{Dim::loop_variable(name + "i", block), block, {}};
      if (!exact_div(columns.extent, block)) inner.limit = columns.extent - outer.variable * block;
      std::map<std::string, Dim> map{{name, outer.variable * block + inner.variable}};
      kernel_.outer[i] = outer;
      phase.loops.push_back(inner);
      rewrite_dims(kernel_, [&](const Dim& d) { return d.substitute(map); });
      std::erase_if(kernel_.outer, [](const Loop& l) { return l.extent == Dim(1); });
      break;
    }
    return true;
  }

  // Small loops that choose between the parts of a stack run unrolled, so that each step is its part alone.
  void unroll_selectors() {
    constexpr int64_t most = 64;
    std::set<std::string> names;
    visit_all(kernel_, [&](const Expr& e) {
      if (e.kind != Expr::Kind::Guard || e.args[1]->kind == Expr::Kind::Constant) return;
      for (const RangeCheck& c : e.checks) {
        std::vector<Dim> symbols = c.value.symbols();
        if (symbols.size() == 1) names.insert(symbols[0].symbol_name());
      }
    });
    int64_t points = 1;
    for (const Loop& loop : kernel_.outer) {
      if (!loop.variable.is_symbol() || !names.count(loop.variable.symbol_name()) || plan_.is_vector(loop)) continue;
      auto extent = loop.extent.constant();
      if (!extent || points * *extent > most) continue;
      points *= *extent;
      plan_.tiles.push_back({loop.variable.symbol_name(), static_cast<int>(*extent), true});
    }
  }

  // Whether the vector loop walks the columns of the dot product, and nothing else of it.
  bool dot_columns_follow(const VectorChoice& choice) {
    if (plan_.dot_loop.empty()) return false;
    const Dim& lane = outer_loop(choice.loops[0])->variable;
    const Expr& product = *kernel_.reductions[0].value;
    return !product.args[0]->args[0]->index.contains(lane) &&
           product.args[1]->args[0]->index.coefficient_of(lane) == Dim(plan_.dot);
  }

  Loop* outer_loop(const std::string& name) {
    for (Loop& loop : kernel_.outer) {
      if (loop.variable.is_symbol() && loop.variable.symbol_name() == name) return &loop;
    }
    return nullptr;
  }

  // Which operands of the anchor's product (or the one operand) change with the loop.
  struct Use {
    bool first = false, second = false;
  };
  Use use_of(const Loop& loop) const {
    Use use;
    for (const ReductionDef& r : kernel_.reductions) {
      auto moves = [&](const ExprPtr& e) {
        bool found = false;
        visit(e, [&](const Expr& x) { found |= (x.kind == Expr::Kind::Load) && x.index.contains(loop.variable); });
        return found;
      };
      if (kernel_.contraction && r.value->kind == Expr::Kind::Apply) {
        use.first |= moves(r.value->args[0]);
        use.second |= moves(r.value->args[1]);
      } else {
        use.first |= moves(r.value);
      }
    }
    return use;
  }

  // Steps of a loop whose size varies are many, for all we know.
  static bool may_be_long(const Loop& loop) { return !loop.extent.is_constant(); }

  // Registers for accumulators. All of them live through the epilogue, whose costly functions need registers of their
  // own.
  int accumulator_budget() const {
    if (target_.vector_registers < 32) return target_.vector_registers - 4;
    return costly_functions(kernel_) > 0 ? 16 : 28;
  }

  // Whether another loop ends at different places for the points of a tile of this one.
  bool limits_another(const Loop& loop) const {
    return std::any_of(kernel_.outer.begin(), kernel_.outer.end(),
                       [&](const Loop& other) { return other.limit && other.limit->contains(loop.variable); });
  }

  // Which operand of the product holds the columns: the one that changes with the vector loop alone.
  bool columns_in_second() const {
    for (const Loop& loop : kernel_.outer) {
      if (plan_.is_vector(loop)) return use_of(loop).second;
    }
    return true;
  }

  const Expr* load_of(bool second) const {
    for (const ReductionDef& r : kernel_.reductions) {
      if (r.value->kind != Expr::Kind::Apply || r.value->args.size() != 2) continue;
      const Expr* e = r.value->args[second ? 1 : 0].get();
      while (e->kind == Expr::Kind::Guard || e->kind == Expr::Kind::Cast) e = e->args[0].get();
      if (e->kind == Expr::Kind::Load) return e;
    }
    return nullptr;
  }

  // The loops of the product in the order in which the columns' operand lies in memory, so that it is read as one
  // stream.
  void stream_columns_operand() {
    const Expr* load = load_of(columns_in_second());
    if (!load) return;
    for (Phase& phase : kernel_.phases) {
      if (phase.reductions.empty()) continue;
      std::map<std::string, int64_t> strides;
      for (const Loop& loop : phase.loops) {
        auto c = load->index.coefficient_of(loop.variable);
        if (!c || !c->is_constant() || loop.limit) return;
        strides[loop.variable.symbol_name()] = c->value();
      }
      std::stable_sort(phase.loops.begin(), phase.loops.end(), [&](const Loop& a, const Loop& b) {
        return strides[a.variable.symbol_name()] > strides[b.variable.symbol_name()];
      });
    }
  }

  // Rows whose loop is too short for a tile are walked together with the next loop of rows: p stands for (p / e, p %
  // e).
  bool flatten_rows(Loop& rows, int most, bool weights_second) {
    auto inner = rows.extent.constant();
    if (!inner || *inner * 3 > most * 2) return false;
    for (size_t i = 0; i < kernel_.outer.size(); ++i) {
      Loop& other = kernel_.outer[i];
      auto extent = other.extent.constant();
      if (&other == &rows || !extent || *extent < 2 || other.limit || !other.variable.is_symbol()) continue;
      if (plan_.tile_of(other) || plan_.is_vector(other) || plan_.is_outermost(other)) continue;
      Use use = use_of(other);
      if (weights_second ? use.second || !use.first : use.first || !use.second) continue;
      Dim both = Dim::loop_variable(other.variable.symbol_name() + rows.variable.symbol_name(), *extent * *inner);
      std::map<std::string, Dim> map{{other.variable.symbol_name(), floor_div(both, *inner)},
                                     {rows.variable.symbol_name(), floor_mod(both, *inner)}};
      rows = {both, *extent * *inner, {}};
      kernel_.outer.erase(kernel_.outer.begin() + static_cast<long>(i));
      rewrite_dims(kernel_, [&](const Dim& d) { return d.substitute(map); });
      return true;
    }
    return false;
  }

  // Register tile of a kernel whose lanes are different outputs: columns (vectors) × rows (points that share the
  // columns' operand).
  void tile_outputs() {
    Loop* vector = outer_loop(plan_.vector_loops[0]);
    Use columns = use_of(*vector);
    bool weights_second = columns.second;
    int vectors = 1;
    // Further columns: a small loop that only the columns' operand and the store follow.
    for (Loop& loop : kernel_.outer) {
      if (&loop == vector || !loop.variable.is_symbol() || !loop.extent.is_constant() || plan_.is_outermost(loop))
        continue;
      Use use = use_of(loop);
      bool column = kernel_.contraction && (weights_second ? use.second && !use.first : use.first && !use.second);
      if (column && loop.extent.value() * vectors <= 4 && is_inner_part(loop) && !limits_another(loop)) {
        plan_.tiles.push_back({loop.variable.symbol_name(), static_cast<int>(loop.extent.value()), true});
        vectors *= static_cast<int>(loop.extent.value());
      }
    }
    int64_t in_loop = (vector_extent(vector->extent) + plan_.lanes - 1) / plan_.lanes;
    if (vectors == 1 && kernel_.contraction && !(columns.first && columns.second)) {
      plan_.vector_tile = static_cast<int>(std::clamp<int64_t>(in_loop, 1, rows_hint(weights_second) <= 2 ? 4 : 2));
      vectors = plan_.vector_tile;
    }
    Loop* rows = nullptr;
    int64_t best = 0;
    for (Loop& loop : kernel_.outer) {
      if (&loop == vector || loop.limit || !loop.variable.is_symbol() || plan_.tile_of(loop) || limits_another(loop) ||
          plan_.is_outermost(loop)) {
        continue;
      }
      Use use = use_of(loop);
      bool row = !kernel_.contraction ? use.first
                 : weights_second     ? use.first && !use.second
                                      : use.second && !use.first;
      int64_t extent = std::min<int64_t>(extent_hint(loop.extent), accumulator_budget());
      if (row && extent >= best) {
        best = extent;
        rows = &loop;
      }
    }
    if (!rows) return;
    int most = std::max(1, accumulator_budget() / vectors);
    if (!kernel_.contraction) most = std::min(most, 8);
    if (kernel_.contraction) {
      std::string name = rows->variable.symbol_name();
      if (flatten_rows(*rows, most, weights_second)) {
        rows = nullptr;
        for (Loop& loop : kernel_.outer) {
          if (loop.variable.is_symbol() && loop.variable.symbol_name().ends_with(name)) rows = &loop;
        }
        CUVIL_CHECK(rows, "the flattened loop is gone");
      }
    }
    most = evenly(*rows, choice_.most_rows ? std::min(most, choice_.most_rows) : most);
    if (plan_.product) {
      plan_.product->tile_columns = vectors;
      if (!choice_.most_rows) most = cheapest_rows(*rows, most);
      plan_.product->tile_rows = most;
    }
    if (most > 1) plan_.tiles.push_back({rows->variable.symbol_name(), most, false});
  }

  // Rows per tile when the loop is split into as many tiles of at most `most` as needed, of even sizes.
  static int evenly(const Loop& rows, int most) {
    auto extent = rows.extent.constant();
    if (!extent || *extent == 0) return most;
    int64_t steps = (*extent + most - 1) / most;
    return static_cast<int>((*extent + steps - 1) / steps);
  }

  int cheapest_rows(const Loop& rows, int most) const {
    int best = most;
    double least = 0;
    for (int n = most; n >= std::max(1, most / 2); --n) {
      ProductPlan plan = *plan_.product;
      plan.tile_rows = evenly(rows, n);
      double cycles = estimated_cycles(plan, target_);
      if (n == most || cycles < least) {
        least = cycles;
        best = plan.tile_rows;
      }
    }
    return best;
  }

  // The product's sizes, if one operand holds the columns and the other the rows.
  void describe_product() {
    const bool second = columns_in_second();
    ProductPlan plan;
    for (const Phase& phase : kernel_.phases) {
      if (phase.reductions.empty()) continue;
      for (const Loop& loop : phase.loops) plan.k *= static_cast<double>(extent_hint(loop.extent));
    }
    for (const Loop& loop : kernel_.outer) {
      Use use = use_of(loop);
      if (use.first && use.second && plan_.is_vector(loop)) return;
      double& size = use.first && use.second ? plan.batch : use.second == second ? plan.columns : plan.rows;
      size *= static_cast<double>(extent_hint(loop.extent));
    }
    if (!plan_.dot_loop.empty()) plan.k /= plan_.dot;
    plan.columns = std::max(1.0, plan.columns / plan_.lanes);
    plan_.product = plan;
  }

  // How many rows the kernel has at all.
  int64_t rows_hint(bool weights_second) const {
    int64_t rows = 1;
    for (const Loop& loop : kernel_.outer) {
      Use use = use_of(loop);
      if (weights_second ? use.first && !use.second : use.second && !use.first)
        rows *= may_be_long(loop) ? 64 : extent_hint(loop.extent);
    }
    return rows;
  }

  // The low part of a split loop: its steps lie inside one packed panel.
  static bool is_inner_part(const Loop& loop) { return loop.variable.symbol_name().back() == 'i'; }

  // Whether the rows are walked outside the panels of columns: when all columns fit into half of L2 and the rows do
  // not, so that each is read from beyond L2 once.
  bool rows_outside() const {
    if (!plan_.product) return false;
    if (choice_.rows_outside) return *choice_.rows_outside;
    const ProductPlan& p = *plan_.product;
    const double half = static_cast<double>(target_.l2_bytes) / 2;
    return p.batch == 1 && p.columns * plan_.lanes * p.k * 4 <= half && p.rows * p.k * 4 > 2 * half;
  }

  // Parallel loops first: panels, then rows; the vector loop last. Loops whose end depends on others stay serial.
  void order_loops(bool folds) {
    const bool rows_first = folds && rows_outside();
    if (plan_.product) plan_.product->rows_outside = rows_first;
    const bool second = folds && kernel_.contraction && columns_in_second();
    auto rank = [&](const Loop& loop) {
      if (plan_.is_outermost(loop)) return loop.variable.symbol_name() == plan_.batch_loop ? -2 : -1;
      if (plan_.is_vector(loop)) return folds ? 3 : 5;
      const Schedule::Tile* tile = plan_.tile_of(loop);
      if (tile && tile->exact) return 4;
      if (loop.limit) return 4;
      if (!folds || !kernel_.contraction) return 1;
      Use use = use_of(loop);
      if (use.first && use.second) return 0;
      return (second ? use.second : use.first) != rows_first ? 1 : 2;
    };
    std::stable_sort(kernel_.outer.begin(), kernel_.outer.end(),
                     [&](const Loop& a, const Loop& b) { return rank(a) < rank(b); });
    // A vector loop over several panels of columns is walked before the rows.
    if (folds && kernel_.contraction && !rows_first) {
      auto v =
          std::find_if(kernel_.outer.begin(), kernel_.outer.end(), [&](const Loop& l) { return plan_.is_vector(l); });
      if (v != kernel_.outer.end() && !v->limit) {
        auto first_row = std::find_if(kernel_.outer.begin(), v, [&](const Loop& l) { return rank(l) == 2; });
        std::rotate(first_row, v, v + 1);
      }
    }
    int parallel = 0;
    for (const Loop& loop : kernel_.outer) {
      const Schedule::Tile* tile = plan_.tile_of(loop);
      if (loop.limit || (tile && tile->exact)) break;
      if (!folds && plan_.is_vector(loop) && parallel > 0) break;
      ++parallel;
    }
    plan_.parallel_loops = parallel;
  }

  void set_unroll() {
    int accumulators = plan_.vector_tile;
    for (const Schedule::Tile& tile : plan_.tiles) accumulators *= tile.size;
    plan_.unroll = kernel_.contraction ? std::clamp(16 / accumulators, 1, 4) : 1;
  }

  void set_chunk() {
    // About 10 µs of work for a thread, counting one vector operation as a quarter of a nanosecond.
    double operations = 0;
    for (const Phase& phase : kernel_.phases) {
      double points = 1;
      for (const Loop& loop : phase.loops) points *= static_cast<double>(extent_hint(loop.extent));
      double per_point = 0;
      auto count = [&](const ExprPtr& e) {
        visit(e, [&](const Expr& x) { per_point += x.kind == Expr::Kind::Constant ? 0 : 1; });
      };
      for (int id : phase.reductions) count(kernel_.reductions[static_cast<size_t>(id)].value);
      for (const StoreDef& store : phase.stores) count(store.value);
      if (phase.sort) per_point += 10 * static_cast<double>(extent_hint(phase.sort->size));
      operations += points * per_point;
    }
    for (size_t i = 0; i < kernel_.outer.size(); ++i) {
      const Loop& loop = kernel_.outer[i];
      double step = plan_.is_vector(loop) ? plan_.lanes * plan_.vector_tile : 1;
      if (const Schedule::Tile* tile = plan_.tile_of(loop)) step = tile->size;
      if (static_cast<int>(i) >= plan_.parallel_loops) step = static_cast<double>(extent_hint(loop.extent));
      operations *= step;
    }
    double cost = 0.25 * operations / plan_.lanes * (1 + 4 * costly_functions(kernel_)) + 5;
    plan_.chunk = std::max<int64_t>(1, static_cast<int64_t>(10000 / cost));
  }

  Kernel& kernel_;
  const TargetDescription& target_;
  const ScheduleChoice& choice_;
  Schedule& plan_;
};

}  // namespace

void schedule(Kernel& kernel, const TargetDescription& target, const ScheduleChoice& choice) {
  Scheduler(kernel, target, choice).run();
}

std::vector<Kernel> schedule_candidates(const Kernel& kernel, const TargetDescription& target) {
  std::vector<Kernel> list;
  std::set<std::string> seen;
  auto add = [&](const ScheduleChoice& choice) {
    Kernel candidate = kernel;
    schedule(candidate, target, choice);
    if (seen.insert(candidate.str()).second) list.push_back(std::move(candidate));
  };
  add({});
  if (!list[0].schedule.product) return list;
  const int rows = list[0].schedule.product->tile_rows;
  for (bool outside : {false, true}) {
    for (bool prefetch : {true, false}) {
      for (int most : {64, rows, rows * 3 / 4, rows / 2}) {
        if (most > 0) add({most, outside, prefetch});
      }
    }
  }
  auto cycles = [&](const Kernel& k) { return estimated_cycles(*k.schedule.product, target); };
  std::stable_sort(list.begin() + 1, list.end(),
                   [&](const Kernel& a, const Kernel& b) { return cycles(a) < cycles(b); });
  return list;
}

int access_quality(const Kernel& kernel, const TargetDescription& target) {
  Kernel copy = kernel;
  split_loops(copy);
  merge_loops(copy);
  find_dot_loop(copy, target);
  int lanes = lanes_of(copy, target);
  VectorChoice choice = choose_vector_loops(copy, lanes);
  // A product is worth a vector loop over its columns only: along k both operands stream.
  if (copy.contraction && !choice.outer) return std::min(choice.quality, 1);
  if (copy.outer.empty() && choice.loops.empty()) return 2;
  return choice.quality;
}

}  // namespace cuvil
