#include "lower/plan_bands.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "support/error.hpp"

namespace cuvil {

namespace {

const StoreDef* only_store(const Kernel& kernel) {
  const StoreDef* store = nullptr;
  for (const Phase& phase : kernel.phases) {
    if (phase.sort) return nullptr;
    for (const StoreDef& s : phase.stores) {
      if (store) return nullptr;
      store = &s;
    }
  }
  return store;
}

bool is_fill(const Kernel& kernel) {
  return kernel.reductions.empty() && std::all_of(kernel.phases.begin(), kernel.phases.end(), [](const Phase& phase) {
           return std::all_of(phase.stores.begin(), phase.stores.end(),
                              [](const StoreDef& s) { return s.value->kind == Expr::Kind::Constant; });
         });
}

std::optional<int64_t> constant_coefficient(const Dim& d, const Dim& variable) {
  auto c = d.coefficient_of(variable);
  return c ? c->constant() : std::nullopt;
}

const Loop* find_loop(const Kernel& kernel, const std::string& name) {
  for (const Loop& loop : kernel.outer) {
    if (loop.variable.is_symbol() && loop.variable.symbol_name() == name) return &loop;
  }
  return nullptr;
}

// Rows of the producer that row r of the consumer needs: [scale·r + low, scale·r + high].
struct RowMap {
  int64_t scale = 1, low = 0, high = 0;
};

// How the consumer's loop over `to` reads what the producer's loop over `from` stores in one buffer; nullopt if rows
// cannot be told apart, or if an image of the consumer (`batch`: the loop over images of both) reads of another image.
// Offsets fall apart into rows and columns, since a column's moves are smaller than a row.
std::optional<RowMap> row_map(const Kernel& producer, const Loop& from, const Kernel& consumer, int buffer,
                              const Loop& to, const Loop* batch) {
  const StoreDef& store = *only_store(producer);
  std::optional<int64_t> image;
  if (batch && batch->extent != Dim(1)) {
    image = constant_coefficient(store.offset, batch->variable);
    if (!image || *image <= 0) return std::nullopt;
  }
  auto row = constant_coefficient(store.offset, from.variable);
  if (!row || *row <= 1) return std::nullopt;
  std::set<int64_t> planes;  // strides of the producer's loops that are longer than all its rows
  for (const Loop& loop : producer.outer) {
    auto c = loop.variable.is_symbol() ? constant_coefficient(store.offset, loop.variable) : std::nullopt;
    if (c && *c >= *row * from.extent.value()) planes.insert(*c);
  }
  std::map<std::string, int64_t> extents;
  auto note = [&](const std::vector<Loop>& loops) {
    for (const Loop& loop : loops) {
      if (loop.variable.is_symbol()) extents[loop.variable.symbol_name()] = loop.extent.constant().value_or(-1);
    }
  };
  note(consumer.outer);
  for (const Phase& phase : consumer.phases) note(phase.loops);

  std::optional<RowMap> map;
  bool clear = true;
  visit_all(consumer, [&](const Expr& e) {
    if (e.kind != Expr::Kind::Load || e.buffer != buffer || !clear) return;
    RowMap here{0, 0, 0};
    int64_t columns = 0, row_moves = 0;
    if (image && constant_coefficient(e.index, batch->variable) != image) {
      clear = false;
      return;
    }
    for (const Dim& symbol : e.index.symbols()) {
      auto c = constant_coefficient(e.index, symbol);
      const std::string& name = symbol.symbol_name();
      if (!c || *c < 0 || !extents.count(name)) {
        clear = false;
        return;
      }
      if (image && *c >= *image && symbol != batch->variable) {
        clear = false;
      } else if (symbol == to.variable) {
        clear = clear && *c % *row == 0 && *c > 0;
        here.scale = *c / *row;
      } else if (planes.count(*c)) {
        continue;
      } else if (extents[name] < 0) {
        clear = false;
      } else if (*c % *row == 0) {
        row_moves += *c / *row * (extents[name] - 1);
      } else {
        columns += *c * (extents[name] - 1);
      }
    }
    int64_t origin = 0;
    for (const Dim* d : {&e.index, &store.offset}) {
      bool has_constant = !d->terms().empty() && d->terms()[0].factors.empty();
      origin += (d == &e.index ? 1 : -1) * (has_constant ? d->terms()[0].coefficient : 0);
    }
    int64_t row_offset = (origin + *row / 2 + (origin + *row / 2 < 0 ? 1 - *row : 0)) / *row;
    int64_t column = origin - row_offset * *row;
    clear = clear && here.scale >= 1 && column + columns <= *row && row_moves < from.extent.value();
    here.low = row_offset;
    here.high = row_offset + row_moves;
    if (map) {
      clear = clear && map->scale == here.scale;
      here.low = std::min(here.low, map->low);
      here.high = std::max(here.high, map->high);
    }
    map = here;
  });
  return clear ? map : std::nullopt;
}

class BandPlanner {
 public:
  BandPlanner(Program& program, const TargetDescription& target) : program_(program), target_(target) {}

  void run() {
    for (size_t s = 0; s < program_.steps.size(); ++s) {
      for (int b : program_.steps[s].buffers) users_[b].insert(s);
    }
    std::vector<size_t> order;
    std::vector<Chain> chains;
    for (size_t s = 0; s < program_.steps.size();) {
      Chain chain = best_chain(s);
      if (chain.members.empty()) {
        order.push_back(s++);
        continue;
      }
      // Borders first: they depend on nothing.
      size_t end = chain.members.back().step + 1;
      for (size_t i = s; i < end; ++i) {
        if (!chain.has(i)) order.push_back(i);
      }
      chain.first = order.size();
      for (const Member& m : chain.members) order.push_back(m.step);
      chains.push_back(std::move(chain));
      s = end;
    }
    std::vector<Step> sorted;
    for (size_t i : order) sorted.push_back(std::move(program_.steps[i]));
    program_.steps = std::move(sorted);
    for (const Chain& chain : chains) commit(chain);
  }

 private:
  struct Member {
    size_t step = 0;
    std::string row_loop;
    int64_t rows = 0;
    RowMap needed;  // by the member after it
  };
  struct Chain {
    std::vector<Member> members;
    size_t first = 0;
    int64_t band = 0;
    bool has(size_t step) const {
      return std::any_of(members.begin(), members.end(), [&](const Member& m) { return m.step == step; });
    }
  };

  const Kernel& kernel(size_t step) const { return program_.steps[step].kernel; }

  // For one image: symbols count as 1.
  static int64_t typical(const Dim& d) {
    return d.evaluate([](const std::string&) { return int64_t{1}; });
  }

  int64_t bytes_of(int buffer) const {
    const Buffer& b = program_.buffers[static_cast<size_t>(buffer)];
    return typical(b.elements) * static_cast<int64_t>(size_of(b.dtype));
  }

  // The buffer that the step stores to, in the program.
  int output_of(size_t step) const {
    const StoreDef* store = only_store(kernel(step));
    return program_.steps[step].buffers[static_cast<size_t>(store->buffer)];
  }

  bool may_join(size_t step) const {
    const Kernel& k = kernel(step);
    return only_store(k) && !is_fill(k) && k.indirects.empty() && k.schedule.row_loop.empty();
  }

  // The step that alone reads what `step` writes, if only borders lie between them.
  std::optional<size_t> next_of(size_t step) const {
    int written = output_of(step);
    if (program_.buffers[static_cast<size_t>(written)].kind != Buffer::Kind::Arena) return std::nullopt;
    size_t next = step + 1;
    while (next < program_.steps.size() && is_fill(kernel(next))) ++next;
    if (next == program_.steps.size() || !may_join(next)) return std::nullopt;
    for (size_t user : users_.at(written)) {
      if (user != step && user != next && !(user > step && user < next)) return std::nullopt;
    }
    return users_.at(written).count(next) ? std::optional(next) : std::nullopt;
  }

  Chain best_chain(size_t start) const {
    Chain best;
    if (!may_join(start)) return best;
    for (const Loop& loop : kernel(start).outer) {
      if (loop.limit || !loop.variable.is_symbol() || !loop.extent.is_constant()) continue;
      Chain chain;
      chain.members.push_back({start, loop.variable.symbol_name(), loop.extent.value(), {}});
      do {
        if (chain.members.size() > best.members.size() && choose_band(chain)) best = chain;
      } while (chain.members.size() < 3 && extend(chain));
    }
    return best;
  }

  bool extend(Chain& chain) const {
    Member& last = chain.members.back();
    auto next = next_of(last.step);
    if (!next) return false;
    const Kernel &from = kernel(last.step), &to = kernel(*next);
    if (batch_loop(from) != batch_loop(to)) return false;
    const Loop& rows = *find_loop(from, last.row_loop);
    int written = output_of(last.step);
    for (const Loop& loop : to.outer) {
      if (loop.limit || !loop.variable.is_symbol() || !loop.extent.is_constant()) continue;
      std::optional<RowMap> map;
      bool clear = true;
      for (size_t b = 0; b < program_.steps[*next].buffers.size(); ++b) {
        if (program_.steps[*next].buffers[b] != written) continue;
        auto here = row_map(from, rows, to, static_cast<int>(b), loop, find_loop(to, "$i0"));
        clear = clear && here && !map;
        map = here;
      }
      if (!clear || !map) continue;
      last.needed = *map;
      chain.members.push_back({*next, loop.variable.symbol_name(), loop.extent.value(), {}});
      return true;
    }
    return false;
  }

  // The loop over images, if there is one.
  static std::optional<std::pair<std::string, Dim>> batch_loop(const Kernel& kernel) {
    const Loop* loop = find_loop(kernel, "$i0");
    return loop ? std::optional(std::pair(loop->variable.symbol_name(), loop->extent)) : std::nullopt;
  }

  // Rows per band, so that a band's values take at most half of L2; false if bands would not help.
  bool choose_band(Chain& chain) const {
    if (chain.members.size() < 2) return false;
    const auto half = static_cast<double>(target_.l2_bytes) / 2;
    int64_t weights = 0;
    double moved = 0, flops = 0;
    double halo = 0, per_row = 0;  // bytes
    double scale = 1;
    for (size_t i = chain.members.size(); i-- > 0;) {
      const Member& m = chain.members[i];
      if (auto batch = batch_loop(kernel(m.step)); batch && batch->first == m.row_loop) return false;
      double row = static_cast<double>(bytes_of(output_of(m.step))) / static_cast<double>(m.rows);
      if (row == 0) return false;
      if (i + 1 < chain.members.size()) {
        scale *= static_cast<double>(m.needed.scale);
        halo += row * static_cast<double>(m.needed.high - m.needed.low);
        const auto bytes = static_cast<double>(bytes_of(output_of(m.step)));
        if (bytes > half) moved += 2 * bytes;  // written and read
      }
      per_row += row * scale;
      flops += static_cast<double>(typical(program_.steps[m.step].flops));
      for (int b : program_.steps[m.step].buffers) {
        if (program_.buffers[static_cast<size_t>(b)].kind == Buffer::Kind::Constant) weights += bytes_of(b);
      }
    }
    if (weights > target_.l2_bytes / 4) return false;
    // Cycles at two fused multiply-adds each. Less traffic than that hides behind the arithmetic.
    const double arithmetic = flops / (4.0 * target_.lanes(DType::f32));
    if (moved / target_.l3_bytes_per_cycle <= arithmetic * 2 / 3) return false;
    const int64_t rows = chain.members.back().rows;
    chain.band = std::min(static_cast<int64_t>((half - halo) / per_row), rows / 4);
    return chain.band >= 1;
  }

  void commit(const Chain& chain) {
    BandGroup group;
    group.first = chain.first;
    group.band = chain.band;
    for (size_t i = 0; i < chain.members.size(); ++i) {
      const Member& m = chain.members[i];
      group.members.push_back({m.rows, m.needed.scale, m.needed.low, m.needed.high});
      Kernel& k = program_.steps[chain.first + i].kernel;
      k.schedule.row_loop = m.row_loop;
      if (auto batch = batch_loop(k)) {
        k.schedule.batch_loop = batch->first;
        group.batch = batch->second;
      }
    }
    program_.bands.push_back(std::move(group));
  }

  Program& program_;
  const TargetDescription& target_;
  std::map<int, std::set<size_t>> users_;
};

}  // namespace

void plan_bands(Program& program, const TargetDescription& target) {
  BandPlanner(program, target).run();
}

void check_bands(Program& program) {
  std::erase_if(program.bands, [&](const BandGroup& group) {
    for (size_t i = 0; i < group.members.size(); ++i) {
      const Kernel& k = program.steps[group.first + i].kernel;
      size_t at = k.schedule.batch_loop.empty() ? 0 : 1;
      if (static_cast<size_t>(k.schedule.parallel_loops) <= at || !k.outer[at].variable.is_symbol() ||
          k.outer[at].variable.symbol_name() != k.schedule.row_loop) {
        return true;
      }
      if (at == 1 && k.outer[0].variable.symbol_name() != k.schedule.batch_loop) return true;
    }
    return false;
  });
}

}  // namespace cuvil
