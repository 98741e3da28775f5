#include "procedure/execute.hpp"

#include <algorithm>

#include "support/error.hpp"

namespace cuvil {

namespace {

class Frame {
 public:
  Frame(const Procedure& procedure, const RunSegment& run, Bindings symbols = {})
      : procedure_(procedure), run_(run), slots_(procedure.slots.size()), symbols_(std::move(symbols)) {
    for (const Procedure::Constant& c : procedure.constants) slots_[static_cast<size_t>(c.slot)] = c.tensor;
  }

  std::vector<Tensor> operator()(std::vector<Tensor> inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) set(procedure_.inputs[i], std::move(inputs[i]));
    for (const Instruction& instruction : procedure_.code) {
      step(instruction);
      for (int slot : instruction.last_uses) slots_[static_cast<size_t>(slot)] = {};
    }
    std::vector<Tensor> outputs;
    for (int slot : procedure_.outputs) outputs.push_back(slots_[static_cast<size_t>(slot)]);
    return outputs;
  }

 private:
  void set(int slot, Tensor t) {
    if (slot < 0) return;
    const Shape& shape = procedure_.slots[static_cast<size_t>(slot)].shape;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis].is_symbol()) symbols_[shape[axis].symbol_name()] = t.shape()[axis];
    }
    slots_[static_cast<size_t>(slot)] = std::move(t);
  }

  const Tensor& get(int slot) const { return slots_[static_cast<size_t>(slot)]; }

  int64_t value_of(const Dim& d) const {
    return d.evaluate([&](const std::string& name) {
      auto it = symbols_.find(name);
      CUVIL_CHECK(it != symbols_.end(), "size symbol " + name + " has no value");
      return it->second;
    });
  }

  [[noreturn]] static void fail(const Instruction& instruction, const std::string& why) {
    throw RunError("node '" + instruction.source + "': " + why);
  }

  void step(const Instruction& instruction) {
    switch (instruction.kind) {
      case Instruction::Kind::Segment:
        return run_segment(instruction);
      case Instruction::Kind::If:
        return run_if(instruction);
      case Instruction::Kind::Loop:
        return run_loop(instruction);
      case Instruction::Kind::Sizes:
        return bind_sizes(instruction);
      case Instruction::Kind::CheckEqual:
        return check_equal(instruction);
    }
  }

  void run_segment(const Instruction& instruction) {
    std::vector<Tensor> inputs;
    for (int slot : instruction.operands) inputs.push_back(get(slot));
    if (!instruction.sizes.empty()) {
      std::vector<int64_t> shape;
      for (const Dim& d : instruction.sizes) shape.push_back(value_of(d));
      shape.push_back(0);
      inputs.emplace_back(DType::u8, std::move(shape), nullptr, nullptr);
    }
    std::vector<Tensor> outputs = run_(instruction.segment, inputs);
    for (size_t i = 0; i < outputs.size(); ++i) set(instruction.results[i], std::move(outputs[i]));
  }

  void run_if(const Instruction& instruction) {
    const Tensor& condition = get(instruction.operands[0]);
    std::vector<Tensor> inputs;
    for (size_t i = 1; i < instruction.operands.size(); ++i) inputs.push_back(get(instruction.operands[i]));
    const Procedure& region = *instruction.regions[condition.get_int(0) ? 0 : 1];
    std::vector<Tensor> outputs = Frame(region, run_)(std::move(inputs));
    for (size_t i = 0; i < instruction.results.size(); ++i) set(instruction.results[i], std::move(outputs[i]));
  }

  void run_loop(const Instruction& instruction) {
    const Procedure& body = *instruction.regions[0];
    const int64_t most = get(instruction.operands[0]).get_int(0);
    const auto carried = static_cast<size_t>(instruction.carried);
    const size_t stacks = body.outputs.size() - 1 - carried;
    std::vector<Tensor> values;  // condition, carried
    for (size_t i = 0; i <= carried; ++i) values.push_back(get(instruction.operands[i + 1]));
    std::vector<std::vector<Tensor>> rows(stacks);
    for (int64_t trip = 0; trip < most && values[0].get_int(0); ++trip) {
      std::vector<Tensor> inputs = {Tensor::scalar_int(DType::i64, trip)};
      for (Tensor& t : values) inputs.push_back(std::move(t));
      for (size_t i = carried + 2; i < instruction.operands.size(); ++i) inputs.push_back(get(instruction.operands[i]));
      std::vector<Tensor> outputs = Frame(body, run_)(std::move(inputs));
      for (size_t i = 0; i < stacks; ++i) {
        Tensor& row = outputs[1 + carried + i];
        if (!rows[i].empty() && row.shape() != rows[i].front().shape()) {
          fail(instruction, "the rows of output " + std::to_string(carried + i) + " differ in shape");
        }
        rows[i].push_back(std::move(row));
      }
      outputs.resize(1 + carried);
      values = std::move(outputs);
    }
    for (size_t i = 0; i < instruction.results.size(); ++i) {
      int slot = instruction.results[i];
      if (slot < 0) continue;
      if (i < carried) {
        set(slot, std::move(values[i + 1]));
      } else {
        set(slot, stack(rows[i - carried], procedure_.slots[static_cast<size_t>(slot)]));
      }
    }
  }

  // Sizes that only the rows would tell are 0 when there are none.
  Tensor stack(const std::vector<Tensor>& rows, const Type& type) const {
    std::vector<int64_t> shape = {static_cast<int64_t>(rows.size())};
    if (rows.empty()) {
      for (size_t axis = 1; axis < type.shape.size(); ++axis) {
        const Dim& d = type.shape[axis];
        const std::vector<Dim> symbols = d.symbols();
        bool known = std::all_of(symbols.begin(), symbols.end(),
                                 [&](const Dim& s) { return symbols_.count(s.symbol_name()) > 0; });
        shape.push_back(known ? value_of(d) : 0);
      }
      return {type.dtype, shape};
    }
    shape.insert(shape.end(), rows[0].shape().begin(), rows[0].shape().end());
    Tensor out = Tensor::uninitialized(type.dtype, shape);
    const size_t bytes = rows[0].num_bytes();
    char* to = out.mutable_as<char>();
    for (const Tensor& row : rows) {
      if (bytes) std::memcpy(to, row.data(), bytes);
      to += bytes;
    }
    return out;
  }

  void bind_sizes(const Instruction& instruction) {
    const Tensor& t = get(instruction.operands[0]);
    for (size_t i = 0; i < instruction.sizes.size(); ++i) {
      const Dim& symbol = instruction.sizes[i];
      const int64_t value = t.get_int(static_cast<int64_t>(i));
      const DimAtom& atom = *symbol.terms()[0].factors[0];
      if (value < atom.min || value > atom.max) {
        fail(instruction, "a size is " + std::to_string(value) + ", which is not possible there");
      }
      symbols_[symbol.symbol_name()] = value;
    }
  }

  void check_equal(const Instruction& instruction) const {
    for (size_t i = 0; i < instruction.sizes.size(); ++i) {
      const Dim &l = instruction.sizes[i], &r = instruction.right_sides[i];
      if (value_of(l) == value_of(r)) continue;
      if (!instruction.message.empty()) throw RunError(instruction.message);
      fail(instruction, "sizes that must be equal differ: " + std::to_string(value_of(l)) + " and " +
                            std::to_string(value_of(r)) + " (" + l.str() + " and " + r.str() + ")");
    }
  }

  const Procedure& procedure_;
  const RunSegment& run_;
  std::vector<Tensor> slots_;
  Bindings symbols_;
};

}  // namespace

std::vector<Tensor> execute(const Procedure& procedure, const std::vector<Tensor>& inputs, const RunSegment& run) {
  if (inputs.size() != procedure.inputs.size()) {
    throw RunError("expected " + std::to_string(procedure.inputs.size()) + " inputs, got " +
                   std::to_string(inputs.size()));
  }
  // Sizes that several inputs share are checked here; segments see their own inputs only.
  Graph signature;
  std::vector<std::vector<int64_t>> shapes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    signature.add_input(procedure.input_names[i], procedure.slots[static_cast<size_t>(procedure.inputs[i])]);
    shapes.push_back(inputs[i].shape());
  }
  return Frame(procedure, run, bind_symbols(signature, shapes))(inputs);
}

std::vector<Tensor> evaluate_with_control_flow(const Graph& graph, const std::vector<Tensor>& inputs) {
  if (!has_host_ops(graph)) return evaluate(graph, inputs);
  const Module module = partition(graph);
  return execute(module.main, inputs, [&](int index, const std::vector<Tensor>& values) {
    return evaluate(module.segments[static_cast<size_t>(index)], values);
  });
}

}  // namespace cuvil
