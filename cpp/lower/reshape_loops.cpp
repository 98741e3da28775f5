// Splitting and merging of loops, until accesses are affine in as few loops as possible.
#include <algorithm>

#include "lower/schedule.hpp"
#include "support/error.hpp"

namespace cuvil {

namespace {

// The smallest constant by which a bare `variable` is divided (or taken modulo) anywhere in d.
void find_divisor(const Dim& d, const Dim& variable, std::optional<int64_t>& best) {
  for (const DimTerm& term : d.terms()) {
    for (const DimAtomPtr& atom : term.factors) {
      if (atom->kind == DimAtom::Kind::Symbol) continue;
      bool division = atom->kind == DimAtom::Kind::FloorDiv || atom->kind == DimAtom::Kind::Mod;
      if (division && atom->a == variable && atom->b.is_constant()) {
        int64_t k = atom->b.value();
        if (!best || k < *best) best = k;
      }
      find_divisor(atom->a, variable, best);
      find_divisor(atom->b, variable, best);
    }
  }
}

bool split_one(Kernel& kernel, std::vector<Loop>& loops) {
  for (size_t i = 0; i < loops.size(); ++i) {
    if (!loops[i].variable.is_symbol()) continue;
    std::optional<int64_t> k;
    visit_dims(kernel, [&](const Dim& d) { find_divisor(d, loops[i].variable, k); });
    if (!k) continue;
    Loop whole = loops[i];
    const std::string& name = whole.variable.symbol_name();
    Dim blocks = ceil_div(whole.extent, *k);
    bool exact = exact_div(whole.extent, *k).has_value();
    Loop outer{Dim::loop_variable(name + "o", blocks), blocks, {}};
    Loop inner{Dim::loop_variable(name + "i", *k), *k, {}};
    if (!exact) inner.limit = whole.extent - outer.variable * *k;
    if (whole.limit) {
      Dim limit = *whole.limit - outer.variable * *k;
      inner.limit = inner.limit ? minimum(*inner.limit, limit) : limit;
    }
    std::map<std::string, Dim> map{{name, outer.variable * *k + inner.variable}};
    loops[i] = inner;
    loops.insert(loops.begin() + static_cast<long>(i), outer);
    std::erase_if(loops, [](const Loop& l) { return l.extent == Dim(1) && !l.limit; });
    rewrite_dims(kernel, [&](const Dim& d) { return d.substitute(map); });
    return true;
  }
  return false;
}

// Whether every Dim walks (a, b) as the one index a·extent(b) + b.
bool walks_as_one(const Kernel& kernel, const Loop& a, const Loop& b) {
  if (a.limit || b.limit || kernel.schedule.is_outermost(a) || kernel.schedule.is_outermost(b)) return false;
  bool ok = true;
  visit_dims(kernel, [&](const Dim& d) {
    if (!ok) return;
    auto ca = d.coefficient_of(a.variable), cb = d.coefficient_of(b.variable);
    ok = ca && cb && *ca == *cb * b.extent;
  });
  return ok;
}

void merge_in(Kernel& kernel, std::vector<Loop>& loops) {
  for (size_t i = 0; i + 1 < loops.size();) {
    Loop a = loops[i], b = loops[i + 1];
    if (!a.variable.is_symbol() || !b.variable.is_symbol() || !walks_as_one(kernel, a, b)) {
      ++i;
      continue;
    }
    Dim extent = a.extent * b.extent;
    Dim merged = Dim::loop_variable(a.variable.symbol_name() + b.variable.symbol_name(), extent);
    std::map<std::string, Dim> map{{a.variable.symbol_name(), Dim(0)}, {b.variable.symbol_name(), merged}};
    loops.erase(loops.begin() + static_cast<long>(i));
    loops[i] = {merged, extent, {}};
    rewrite_dims(kernel, [&](const Dim& d) { return d.substitute(map); });
  }
}

}  // namespace

void split_loops(Kernel& kernel) {
  for (int guard = 0; guard < 64; ++guard) {
    bool changed = split_one(kernel, kernel.outer);
    for (Phase& phase : kernel.phases) changed = changed || split_one(kernel, phase.loops);
    if (!changed) return;
  }
}

void merge_loops(Kernel& kernel) {
  merge_in(kernel, kernel.outer);
  for (Phase& phase : kernel.phases) merge_in(kernel, phase.loops);
}

}  // namespace cuvil
