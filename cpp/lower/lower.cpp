#include <set>
#include <sstream>

#include "lower/fuse.hpp"
#include "lower/plan_bands.hpp"
#include "lower/plan_memory.hpp"
#include "lower/program.hpp"
#include "lower/schedule.hpp"

namespace cuvil {

namespace {

void describe_interface(const Graph& graph, Program& program) {
  std::set<std::string> seen;
  for (const auto& input : graph.inputs()) {
    program.input_names.push_back(input->name);
    program.inputs.push_back(input->type);
    for (const Dim& d : input->type.shape) {
      for (const Dim& s : d.symbols()) {
        if (seen.insert(s.symbol_name()).second) program.symbols.push_back(s);
      }
    }
  }
  for (const auto& output : graph.outputs()) {
    program.output_names.push_back(output.name);
    program.outputs.push_back(output.value->type);
  }
}

// "conv_add_relu_12": the anchor first, then what is fused after it.
void name_kernels(Program& program) {
  for (size_t i = 0; i < program.steps.size(); ++i) {
    Step& step = program.steps[i];
    std::vector<std::string> parts;
    std::set<std::string> seen;
    for (const std::string& op : step.ops) {
      bool index = op == "reshape" || op == "transpose" || op == "broadcast" || op == "slice" || op == "pad" ||
                   op == "constant" || op == "identity";
      if (!index && seen.insert(op).second && parts.size() < 5) parts.push_back(op);
    }
    if (parts.empty())
      parts.push_back(step.kernel.phases.back().stores[0].value->kind == Expr::Kind::Constant ? "fill" : "copy");
    std::string name;
    for (const std::string& part : parts) name += part + "_";
    step.kernel.name = name + std::to_string(i);
  }
}

// At least what has to move: every buffer once.
Dim bytes_moved(const Program& program, const Step& step) {
  Dim sum = 0;
  std::set<int> seen;
  for (int b : step.buffers) {
    const Buffer& buffer = program.buffers[static_cast<size_t>(b)];
    if (seen.insert(b).second) sum = sum + buffer.elements * static_cast<int64_t>(size_of(buffer.dtype));
  }
  return sum;
}

}  // namespace

Program lower(const Graph& graph, const TargetDescription& target, const ChooseSchedule& choose) {
  Program program;
  describe_interface(graph, program);
  fuse(graph, target, program);
  for (Step& step : program.steps) split_loops(step.kernel);
  plan_bands(program, target);
  for (Step& step : program.steps) {
    if (choose) {
      std::vector<Kernel> candidates = schedule_candidates(step.kernel, target);
      step.kernel = std::move(candidates.at(choose(program, step, candidates)));
    } else {
      schedule(step.kernel, target);
    }
    step.bytes = bytes_moved(program, step);
  }
  check_bands(program);
  name_kernels(program);
  plan_memory(program);
  return program;
}

std::string Program::str() const {
  std::ostringstream out;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Buffer& b = buffers[i];
    const char* kinds[] = {"input", "output", "constant", "arena"};
    out << "buffer B" << i << ": " << kinds[static_cast<int>(b.kind)];
    if (b.kind != Buffer::Kind::Arena) out << " " << b.index;
    out << " " << name_of(b.dtype) << "[" << b.elements.str() << "]";
    if (b.kind == Buffer::Kind::Arena)
      out << " at " << b.offset.str() << ", steps " << b.first_use << ".." << b.last_use;
    out << "\n";
  }
  for (const BandGroup& group : bands) {
    out << "bands of " << group.band << " rows: steps " << group.first << ".." << group.first + group.members.size() - 1
        << "\n";
  }
  for (const Step& step : steps) {
    out << step.kernel.str() << "    on";
    for (size_t i = 0; i < step.buffers.size(); ++i) out << " b" << i << "=B" << step.buffers[i];
    out << "\n";
  }
  return out.str();
}

}  // namespace cuvil
