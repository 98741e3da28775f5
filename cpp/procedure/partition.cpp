#include <algorithm>
#include <map>
#include <set>

#include "procedure/procedure.hpp"
#include "support/error.hpp"

namespace cuvil {

bool has_host_ops(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                     [](const auto& node) { return info(node->op).kind == OpKind::Host; });
}

namespace {

bool is_host(const Node& node) {
  return info(node.op).kind == OpKind::Host;
}

// Its results (or symbols) are there after the segment of its stage; a check comes before that segment.
bool makes_token(const Node& node) {
  return is_host(node) && node.op != Op::Result && node.op != Op::CheckEqual;
}

// Symbols that the node gives values to.
std::vector<Dim> bound_by(const Node& node) {
  std::vector<Dim> symbols;
  if (node.op == Op::Sizes) symbols = node.dims("dims");
  if (node.op == Op::Result) {
    for (const Dim& d : node.dims("shape")) {
      if (d.is_symbol()) symbols.push_back(d);
    }
  }
  return symbols;
}

using Names = std::set<std::string>;

void add_symbols(const Dim& d, Names& names) {
  for (const Dim& s : d.symbols()) names.insert(s.symbol_name());
}

class Partition {
 public:
  Partition(const Graph& graph, std::vector<Graph>& segments) : graph_(graph), segments_(segments) {}

  Procedure run() {
    find_live();
    find_copied();
    assign_stages();
    for (const auto& input : graph_.inputs()) {
      procedure_.inputs.push_back(slot_of(input.get()));
      procedure_.input_names.push_back(input->name);
    }
    for (const auto& output : graph_.outputs()) {
      procedure_.output_names.push_back(output.name);
      materialize(output.value);
    }
    for (const Node* node : live_nodes_) {
      if (!makes_token(*node)) continue;
      for (const Value* operand : node->operands) materialize(operand);
    }
    for (int stage = 0; stage <= last_stage_; ++stage) {
      for (const Node* node : live_nodes_) {
        if (node->op == Op::CheckEqual && stages_.at(node->result.get()) == stage) add_host(*node);
      }
      add_segment(stage);
      for (const Node* node : live_nodes_) {
        if (makes_token(*node) && stages_.at(node->result.get()) == stage + 1) add_host(*node);
      }
    }
    for (const auto& output : graph_.outputs()) procedure_.outputs.push_back(slot_of(output.value));
    find_last_uses();
    return std::move(procedure_);
  }

 private:
  void find_live() {
    std::set<const Value*> needed;
    Names symbols;
    for (const auto& output : graph_.outputs()) {
      needed.insert(output.value);
      for (const Dim& d : output.value->type.shape) add_symbols(d, symbols);
    }
    for (auto it = graph_.nodes().rbegin(); it != graph_.nodes().rend(); ++it) {
      const Node& node = **it;
      bool live = needed.count(node.result.get()) || node.op == Op::CheckEqual;
      for (const Dim& s : bound_by(node)) live |= symbols.count(s.symbol_name()) > 0;
      if (!live) continue;
      needed.insert(node.operands.begin(), node.operands.end());
      visit_dims(node, [&](const Dim& d) { add_symbols(d, symbols); });
      for (const Value* operand : node.operands) {
        for (const Dim& d : operand->type.shape) add_symbols(d, symbols);
      }
      live_nodes_.push_back(&node);
    }
    std::reverse(live_nodes_.begin(), live_nodes_.end());
  }

  // What is made of nothing but sizes and constants by moving elements is made again by each segment that needs it.
  void find_copied() {
    for (const Node* node : live_nodes_) {
      OpKind kind = info(node->op).kind;
      bool copied = kind == OpKind::Leaf || kind == OpKind::Index;
      for (const Value* operand : node->operands) copied &= copied_.count(operand) > 0;
      if (copied) copied_.insert(node->result.get());
    }
  }

  void assign_stages() {
    std::map<std::string, int> symbol_stages;
    for (const auto& input : graph_.inputs()) stages_[input.get()] = 0;
    for (const Node* node : live_nodes_) {
      int stage = 0;
      for (const Value* operand : node->operands) stage = std::max(stage, stages_.at(operand));
      Names names;
      visit_dims(*node, [&](const Dim& d) { add_symbols(d, names); });
      const std::vector<Dim> bound = bound_by(*node);
      for (const Dim& s : bound) names.erase(s.symbol_name());
      for (const std::string& name : names) {
        if (auto it = symbol_stages.find(name); it != symbol_stages.end()) stage = std::max(stage, it->second);
      }
      if (makes_token(*node)) ++stage;
      for (const Dim& s : bound) symbol_stages.emplace(s.symbol_name(), stage);
      stages_[node->result.get()] = stage;
      last_stage_ = std::max(last_stage_, stage);
    }
  }

  int slot_of(const Value* v) {
    auto [it, is_new] = slots_.emplace(v, static_cast<int>(procedure_.slots.size()));
    if (is_new) procedure_.slots.push_back(v->type);
    return it->second;
  }

  // The value must be in a slot: somebody outside of segments needs it.
  void materialize(const Value* v) {
    if (v->type.shape.empty() && is_token(v)) return;
    if (const Tensor* t = constant_of(v)) {
      if (!slots_.count(v)) procedure_.constants.push_back({slot_of(v), *t});
    } else if (v->producer && !is_host(*v->producer)) {
      wanted_[stages_.at(v)].insert(v);
    }
  }

  static bool is_token(const Value* v) { return v->producer && is_host(*v->producer) && v->producer->op != Op::Result; }

  void add_segment(int stage) {
    // What later stages need of this one.
    std::set<const Value*>& wanted = wanted_[stage];
    std::vector<const Node*> nodes;
    for (const Node* node : live_nodes_) {
      if (is_host(*node) || copied_.count(node->result.get())) continue;
      const int own = stages_.at(node->result.get());
      if (own == stage) nodes.push_back(node);
      if (own <= stage) continue;
      for (const Value* operand : node->operands) want(operand, stage, wanted);
    }
    if (nodes.empty() && wanted.empty()) return;
    Segment segment;
    for (const Node* node : nodes) segment.copy(*node, *this);
    Instruction instruction;
    for (const Node* node : live_nodes_) {
      const Value* v = node->result.get();
      if (!wanted.count(v)) continue;
      segment.graph.add_output("o" + std::to_string(instruction.results.size()), segment.use(v, *this));
      instruction.results.push_back(slot_of(v));
    }
    if (instruction.results.empty()) return;
    segment.graph.erase_dead_nodes();
    instruction.operands = std::move(segment.operands);
    instruction.sizes = unbound_symbols(segment.graph);
    if (!instruction.sizes.empty()) {
      Shape shape = instruction.sizes;
      shape.push_back(0);
      segment.graph.add_input("sizes", {DType::u8, shape});
    }
    instruction.segment = static_cast<int>(segments_.size());
    segment.graph.name = "segment_" + std::to_string(instruction.segment);
    segments_.push_back(std::move(segment.graph));
    procedure_.code.push_back(std::move(instruction));
  }

  // Marks the value, or what a copied value is made of, if it is computed in this stage.
  void want(const Value* v, int stage, std::set<const Value*>& wanted) {
    if (!v->producer || is_host(*v->producer) || copied_.count(v)) return;
    if (stages_.at(v) == stage) wanted.insert(v);
  }

  struct Segment {
    Graph graph;
    std::map<const Value*, Value*> values;
    std::vector<int> operands;

    Value* use(const Value* v, Partition& partition) {
      if (auto it = values.find(v); it != values.end()) return it->second;
      if (partition.copied_.count(v)) return copy(*v->producer, partition);
      operands.push_back(partition.slot_of(v));
      std::string name = v->name.empty() ? "v" + std::to_string(operands.back()) : v->name;
      return values[v] = graph.add_input(std::move(name), v->type);
    }
    Value* copy(const Node& node, Partition& partition) {
      std::vector<Value*> inputs;
      for (const Value* operand : node.operands) inputs.push_back(use(operand, partition));
      Node* n = graph.add_node(node.op, std::move(inputs), node.attributes, node.source);
      n->result->name = node.result->name;
      return values[node.result.get()] = n->result.get();
    }
  };

  static std::vector<Dim> unbound_symbols(const Graph& graph) {
    Names bound;
    std::map<std::string, Dim> used;
    auto use = [&](const Dim& d) {
      for (const Dim& s : d.symbols()) used.emplace(s.symbol_name(), s);
    };
    for (const auto& input : graph.inputs()) {
      for (const Dim& d : input->type.shape) {
        use(d);
        if (d.is_symbol()) bound.insert(d.symbol_name());
      }
    }
    for (const auto& node : graph.nodes()) visit_dims(*node, use);
    std::vector<Dim> symbols;
    for (const auto& [name, symbol] : used) {
      if (!bound.count(name)) symbols.push_back(symbol);
    }
    return symbols;
  }

  void add_host(const Node& node) {
    Instruction instruction;
    instruction.source = node.source;
    for (const Value* operand : node.operands) instruction.operands.push_back(slot_of(operand));
    for (const Node* other : live_nodes_) {
      if (other->op != Op::Result || other->operand(0) != node.result.get()) continue;
      auto index = static_cast<size_t>(other->integer("index"));
      if (instruction.results.size() <= index) instruction.results.resize(index + 1, -1);
      // Several nodes may read one result.
      if (instruction.results[index] < 0) instruction.results[index] = slot_of(other->result.get());
      slots_[other->result.get()] = instruction.results[index];
    }
    auto add_region = [&](std::string_view name) {
      instruction.regions.push_back(std::make_shared<const Procedure>(Partition(node.region(name), segments_).run()));
    };
    switch (node.op) {
      case Op::If:
        instruction.kind = Instruction::Kind::If;
        add_region("then");
        add_region("else");
        break;
      case Op::Loop:
        instruction.kind = Instruction::Kind::Loop;
        instruction.carried = node.integer("carried");
        add_region("body");
        break;
      case Op::Sizes:
        instruction.kind = Instruction::Kind::Sizes;
        instruction.sizes = node.dims("dims");
        break;
      default:
        CUVIL_CHECK(node.op == Op::CheckEqual, "an unknown host op");
        instruction.kind = Instruction::Kind::CheckEqual;
        instruction.sizes = node.dims("lhs");
        instruction.right_sides = node.dims("rhs");
        if (node.attributes.count("message")) instruction.message = node.get<std::string>("message");
    }
    procedure_.code.push_back(std::move(instruction));
  }

  void find_last_uses() {
    std::set<int> kept(procedure_.outputs.begin(), procedure_.outputs.end());
    for (auto it = procedure_.code.rbegin(); it != procedure_.code.rend(); ++it) {
      for (const std::vector<int>* slots : {&it->operands, &it->results}) {
        for (int slot : *slots) {
          if (slot >= 0 && kept.insert(slot).second) it->last_uses.push_back(slot);
        }
      }
    }
  }

  const Graph& graph_;
  std::vector<Graph>& segments_;
  Procedure procedure_;
  std::vector<const Node*> live_nodes_;
  std::set<const Value*> copied_;
  std::map<const Value*, int> stages_;  // of a token: the one after the stage whose values its node uses
  int last_stage_ = 0;
  std::map<const Value*, int> slots_;
  std::map<int, std::set<const Value*>> wanted_;  // by stage: values its segment must put in slots
};

}  // namespace

Module partition(const Graph& graph) {
  Module module;
  module.main = Partition(graph, module.segments).run();
  module.main.output_names.resize(graph.outputs().size());
  return module;
}

}  // namespace cuvil
