#include "lower/plan_memory.hpp"

#include <algorithm>

namespace cuvil {

Dim bytes_of(const Buffer& buffer) {
  return round_up(buffer.elements * static_cast<int64_t>(size_of(buffer.dtype)), kAlignment);
}

namespace {

// A size for comparisons only: symbols count as a typical value.
double typical(const Dim& d) {
  return static_cast<double>(d.evaluate([](const std::string&) { return int64_t{8}; }));
}

struct Slot {
  Dim bytes;
  int free_after = -1;
  std::vector<int> buffers;
};

}  // namespace

void plan_memory(Program& program) {
  for (size_t step = 0; step < program.steps.size(); ++step) {
    for (int b : program.steps[step].buffers) {
      Buffer& buffer = program.buffers[static_cast<size_t>(b)];
      if (buffer.first_use < 0) buffer.first_use = static_cast<int>(step);
      buffer.last_use = static_cast<int>(step);
    }
  }
  // Steps of a band group take turns, so what any of them uses must live as long as all of them.
  for (const BandGroup& group : program.bands) {
    const auto first = static_cast<int>(group.first), last = first + static_cast<int>(group.members.size()) - 1;
    for (size_t step = group.first; step < group.first + group.members.size(); ++step) {
      for (int b : program.steps[step].buffers) {
        Buffer& buffer = program.buffers[static_cast<size_t>(b)];
        buffer.first_use = std::min(buffer.first_use, first);
        buffer.last_use = std::max(buffer.last_use, last);
      }
    }
  }
  std::vector<int> order;
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    Buffer& b = program.buffers[i];
    if (b.kind == Buffer::Kind::Arena && b.first_use >= 0) order.push_back(static_cast<int>(i));
    if (b.kind == Buffer::Kind::Constant && b.first_use >= 0) {
      b.offset = program.weight_bytes;
      program.weight_bytes += bytes_of(b).value();
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return program.buffers[static_cast<size_t>(a)].first_use < program.buffers[static_cast<size_t>(b)].first_use;
  });
  std::vector<Slot> slots;
  for (int id : order) {
    const Buffer& b = program.buffers[static_cast<size_t>(id)];
    Dim bytes = bytes_of(b);
    double size = typical(bytes);
    // The free slot that wastes or grows least.
    Slot* best = nullptr;
    double best_cost = 0;
    for (Slot& slot : slots) {
      if (slot.free_after >= b.first_use) continue;
      double have = typical(slot.bytes);
      double cost = have >= size ? have - size : 2 * (size - have);
      if (!best || cost < best_cost) {
        best = &slot;
        best_cost = cost;
      }
    }
    if (!best || best_cost > 2 * size) {
      slots.push_back({});
      best = &slots.back();
    }
    best->bytes = maximum(best->bytes, bytes);
    best->free_after = b.last_use;
    best->buffers.push_back(id);
  }
  for (const Slot& slot : slots) {
    for (int id : slot.buffers) program.buffers[static_cast<size_t>(id)].offset = program.arena_bytes;
    program.arena_bytes = program.arena_bytes + slot.bytes;
  }
}

}  // namespace cuvil
