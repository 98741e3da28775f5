#include "lower/fuse.hpp"

#include <algorithm>
#include <set>

#include "lower/build_kernel.hpp"
#include "lower/schedule.hpp"
#include "support/error.hpp"

namespace cuvil {

namespace {

bool computes(const Node& node) {
  OpKind kind = info(node.op).kind;
  return kind != OpKind::Leaf && kind != OpKind::Index;
}

// Parts computed side by side, one index of the axis each: one kernel computes them all.
bool is_stack(const Node& node) {
  return node.op == Op::Concat && std::all_of(node.operands.begin(), node.operands.end(), [&](const Value* v) {
           return v->type.shape[static_cast<size_t>(node.integer("axis"))] == Dim(1) && !constant_of(v);
         });
}

// Ops that no kernel can compute on the way.
bool stands_alone(const Node& node) {
  return node.op == Op::Scatter || node.op == Op::ScatterElements || node.op == Op::SortIndices;
}

bool anchors(const Node& node) {
  return computes(node) && info(node.op).kind != OpKind::Pointwise;
}

// Immediate post-dominators: the first node that every path from a value to the graph's outputs runs through.
class PostDominators {
 public:
  explicit PostDominators(const Graph& graph, const Graph::Users& users) {
    for (auto it = graph.nodes().rbegin(); it != graph.nodes().rend(); ++it) {
      const Node* node = it->get();
      const Node* common = nullptr;
      bool first = true, reaches_end = graph.is_output(node->result.get());
      if (auto u = users.find(node->result.get()); u != users.end()) {
        for (const Node* user : u->second) {
          common = first ? user : meet(common, user);
          first = false;
        }
      }
      if (reaches_end || first) common = nullptr;
      parent_[node] = common;
      depth_[node] = common ? depth_[common] + 1 : 1;
    }
  }
  const Node* of(const Node* node) const { return parent_.at(node); }

 private:
  const Node* meet(const Node* a, const Node* b) {
    while (a != b) {
      if (!a || !b) return nullptr;
      const Node*& deeper = depth_.at(a) >= depth_.at(b) ? a : b;
      deeper = parent_.at(deeper);
    }
    return a;
  }
  std::map<const Node*, const Node*> parent_;
  std::map<const Node*, int> depth_;
};

class Fuser {
 public:
  Fuser(const Graph& graph, const TargetDescription& target, Program& program)
      : graph_(graph), target_(target), program_(program), users_(graph.users()), post_(graph, users_) {}

  void run() {
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const Value* v = graph_.inputs()[i].get();
      storage_[v] = {add_buffer(Buffer::Kind::Input, static_cast<int>(i), v->type), 0,
                     row_major_strides(v->type.shape)};
    }
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const Value* v = graph_.outputs()[i].value;
      output_buffers_.push_back(add_buffer(Buffer::Kind::Output, static_cast<int>(i), v->type));
    }
    for (const auto& node : graph_.nodes()) {
      if (node->op == Op::Constant) add_constant(*node);
    }
    for (const auto& node : graph_.nodes()) {
      if (done_.count(node.get()) || dissolves(*node)) continue;
      if (node->op == Op::SortIndices) {
        materialize_sort(*node);
      } else if (stands_alone(*node)) {
        materialize_scatter(*node);
      } else if (computes(*node)) {
        materialize_group(node.get());
      } else if (node->op == Op::Concat && !joined_.count(node.get())) {
        materialize_concat(*node);
      } else if (node->op == Op::Pad && (storage_.count(node->result.get()) || feeds_anchor(node->result.get()))) {
        materialize_pad(*node);
      }
    }
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const Value* v = graph_.outputs()[i].value;
      auto s = storage_.find(v);
      if (s != storage_.end() && s->second.buffer == output_buffers_[i]) continue;
      emit(build_kernel(v, storage_, {output_buffers_[i], 0, row_major_strides(v->type.shape)}));
    }
  }

 private:
  int add_buffer(Buffer::Kind kind, int index, const Type& type) {
    return add_buffer(kind, index, type.dtype, type.num_elements());
  }

  int add_buffer(Buffer::Kind kind, int index, DType dtype, Dim elements) {
    Buffer b;
    b.kind = kind;
    b.index = index;
    b.dtype = dtype;
    b.elements = std::move(elements);
    program_.buffers.push_back(b);
    return static_cast<int>(program_.buffers.size()) - 1;
  }

  void add_constant(const Node& node) {
    const Tensor& tensor = node.tensor();
    if (tensor.num_elements() == 1) return;
    program_.constants.push_back(tensor);
    int buffer = add_buffer(Buffer::Kind::Constant, static_cast<int>(program_.constants.size()) - 1, node.type());
    storage_[node.result.get()] = {buffer, 0, row_major_strides(node.type().shape)};
  }

  // Whether an op that reads its operand many times, through index-like ops only, uses v.
  bool feeds_anchor(const Value* v) const {
    auto it = users_.find(v);
    if (it == users_.end()) return false;
    if (std::set<const Node*>(it->second.begin(), it->second.end()).size() > 2) return true;
    return std::any_of(it->second.begin(), it->second.end(), [&](const Node* user) {
      if (user->op == Op::Cast) return feeds_anchor(user->result.get());
      if (computes(*user)) return info(user->op).kind == OpKind::Contract || user->op == Op::WindowReduce;
      return !storage_.count(user->result.get()) && feeds_anchor(user->result.get());
    });
  }

  // Whether a node is a conversion that only products read: it is done as they load.
  bool dissolves(const Node& node) const {
    return node.op == Op::Cast && !graph_.is_output(node.result.get()) && only_products_read(node.result.get());
  }
  bool only_products_read(const Value* v) const {
    auto it = users_.find(v);
    if (it == users_.end() || graph_.is_output(v)) return false;
    return std::all_of(it->second.begin(), it->second.end(), [&](const Node* user) {
      if (computes(*user)) return info(user->op).kind == OpKind::Contract;
      return only_products_read(user->result.get());
    });
  }

  // Where v is to be stored: straight into an output, inside the border or the concatenation that uses it, or alone.
  Storage place(const Value* v) {
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      if (graph_.outputs()[i].value == v && !taken_.count(static_cast<int>(i))) {
        taken_.insert(static_cast<int>(i));
        return {output_buffers_[i], 0, row_major_strides(v->type.shape)};
      }
    }
    if (auto it = users_.find(v); it != users_.end()) {
      for (const Node* user : it->second) {
        if (storage_.count(user->result.get()) && user->op == Op::Pad) continue;
        if (done_.count(user)) continue;
        if (user->op == Op::Pad && feeds_anchor(user->result.get())) {
          Storage outer = place(user->result.get());
          storage_[user->result.get()] = outer;
          unfinished_.insert(user->result.get());
          return interior(*user, outer);
        }
        if (user->op == Op::Concat && std::count(user->operands.begin(), user->operands.end(), v) == 1) {
          const Value* joined = user->result.get();
          if (!storage_.count(joined)) storage_[joined] = place(joined);
          unfinished_.insert(joined);
          Storage part = storage_[joined];
          auto axis = static_cast<size_t>(user->integer("axis"));
          for (const Value* operand : user->operands) {
            if (operand == v) break;
            part.offset = part.offset + operand->type.shape[axis] * part.strides[axis];
          }
          placed_.insert({user, v});
          return part;
        }
      }
    }
    Storage alone{-1, 0, spread_strides(v->type)};
    Dim elements = v->type.shape.empty() ? Dim(1) : alone.strides[0] * v->type.shape[0];
    alone.buffer = add_buffer(Buffer::Kind::Arena, 0, v->type.dtype, elements);
    return alone;
  }

  // Where a pad's operand lies inside its result.
  static Storage interior(const Node& pad, Storage whole) {
    for (size_t i = 0; i < whole.strides.size(); ++i)
      whole.offset = whole.offset + pad.dims("low")[i] * whole.strides[i];
    return whole;
  }

  // Row-major strides, but none a multiple of 4 KiB over more than a few steps: those would all
  // compete for the same few lines.
  static std::vector<Dim> spread_strides(const Type& type) {
    constexpr int64_t page = 4096, line = 64, few = 3;
    const auto size = static_cast<int64_t>(size_of(type.dtype));
    std::vector<Dim> strides(type.shape.size(), Dim(1));
    for (size_t i = strides.size(); i-- > 1;) {
      strides[i - 1] = strides[i] * type.shape[i];
      auto bytes = (strides[i - 1] * size).constant();
      auto steps = type.shape[i - 1].constant();
      if (bytes && *bytes > 0 && *bytes % page == 0 && (!steps || *steps > few))
        strides[i - 1] = strides[i - 1] + line / size;
    }
    return strides;
  }

  void materialize(const Value* v) {
    if (storage_.count(v)) return;
    Storage s = place(v);
    emit(build_kernel(v, storage_, s));
    storage_[v] = s;
  }

  // The data first, then the updates over it.
  void materialize_scatter(const Node& node) {
    Storage s = place(node.result.get());
    emit(build_kernel(node.operand(0), storage_, s));
    if (node.operand(2)->type.num_elements() != Dim(0)) emit(build_scatter(node, storage_, s));
    storage_[node.result.get()] = s;
  }

  void materialize_sort(const Node& node) {
    materialize(node.operand(0));
    Storage s = place(node.result.get());
    int scratch = add_buffer(Buffer::Kind::Arena, 0, DType::i64, 0);
    Dim scratch_size;
    BuiltKernel built = build_sort(node, storage_.at(node.operand(0)), s, scratch, scratch_size);
    program_.buffers[static_cast<size_t>(scratch)].elements = scratch_size;
    emit(std::move(built));
    storage_[node.result.get()] = s;
  }

  void materialize_concat(const Node& node) {
    const Value* joined = node.result.get();
    if (!storage_.count(joined)) storage_[joined] = place(joined);
    unfinished_.erase(joined);
    done_.insert(&node);
    Storage part = storage_[joined];
    auto axis = static_cast<size_t>(node.integer("axis"));
    for (const Value* operand : node.operands) {
      if (!placed_.count({&node, operand}) && operand->type.num_elements() != Dim(0)) {
        emit(build_kernel(operand, storage_, part), &node);
      }
      part.offset = part.offset + operand->type.shape[axis] * part.strides[axis];
    }
  }

  void materialize_pad(const Node& node) {
    const Value* v = node.result.get();
    if (!storage_.count(v)) {
      Storage whole = place(v);
      emit(build_kernel(node.operand(0), storage_, interior(node, whole)), &node);
      storage_[v] = whole;
    }
    unfinished_.erase(v);
    emit(fill_border(node, storage_[v]), &node);
  }

  // Writes the border around an interior that is there already: outer loops over the axes without a border, a phase for
  // each slab.
  static BuiltKernel fill_border(const Node& node, const Storage& s) {
    BuiltKernel built;
    Kernel& kernel = built.kernel;
    const Type& type = node.type();
    const auto &low = node.dims("low"), &high = node.dims("high");
    Dim offset = s.offset;
    std::vector<size_t> within;  // axes walked inside the phases
    for (size_t i = 0; i < type.shape.size(); ++i) {
      if (!within.empty() || low[i] != Dim(0) || high[i] != Dim(0)) {
        within.push_back(i);
      } else if (type.shape[i] != Dim(1)) {
        Dim variable = Dim::loop_variable("$i" + std::to_string(i), type.shape[i]);
        kernel.outer.push_back({variable, type.shape[i], {}});
        offset = offset + variable * s.strides[i];
      }
    }
    auto slab = [&](size_t axis, const Dim& begin, const Dim& extent) {
      if (extent == Dim(0)) return;
      Phase phase;
      Dim at = offset + begin * s.strides[axis];
      for (size_t i : within) {
        Dim size = i == axis ? extent : type.shape[i];
        if (size == Dim(1)) continue;
        Dim variable = Dim::loop_variable("$s" + std::to_string(kernel.phases.size()) + "_" + std::to_string(i), size);
        phase.loops.push_back({variable, size, {}});
        at = at + variable * s.strides[i];
      }
      phase.stores.push_back({0, at, constant_expr(type.dtype, node.get<double>("value"))});
      kernel.phases.push_back(std::move(phase));
    };
    for (size_t axis : within) {
      slab(axis, 0, low[axis]);
      slab(axis, type.shape[axis] - high[axis], high[axis]);
    }
    kernel.buffers.push_back({type.dtype, true});
    built.buffers.push_back(s.buffer);
    return built;
  }

  // Every value computed in the kernel is used only there, so nothing is computed twice.
  bool closed(const BuiltKernel& built, const Value* root) const {
    std::set<const Node*> inside(built.nodes.begin(), built.nodes.end());
    for (const Node* node : built.nodes) {
      if (!computes(*node) || node->result.get() == root || dissolves(*node)) continue;
      if (graph_.is_output(node->result.get())) return false;
      for (const Node* user : users_.at(node->result.get())) {
        if (!inside.count(user)) return false;
      }
    }
    return true;
  }

  BuiltKernel try_build(const Value* root) const {
    BuiltKernel built = build_kernel(root, storage_, {-1, 0, row_major_strides(root->type.shape)});
    if (built.obstacle.empty() && !closed(built, root)) built.obstacle = "a value inside has users outside";
    if (built.kernel.contraction && built.obstacle.empty() &&
        std::any_of(built.nodes.begin(), built.nodes.end(), [](const Node* node) { return is_stack(*node); })) {
      built.obstacle = "the tile of a product is not that of a stack";
    }
    for (const Node* node : built.nodes) {
      for (const Value* operand : node->operands) {
        if (unfinished_.count(operand)) built.obstacle = "it reads a value that is still being assembled";
      }
    }
    return built;
  }

  // Grows the group that starts at `seed` along its post-dominators while it stays one good kernel.
  void materialize_group(const Node* seed) {
    if (seed->op == Op::Matmul) prepare_right_operand(*seed);
    const Node* best = seed;
    BuiltKernel built = try_build(seed->result.get());
    CUVIL_CHECK(built.obstacle.empty(),
                std::string(info(seed->op).name) + " (" + seed->source + "): " + built.obstacle);
    bool anchored = anchors(*seed) && seed->op != Op::Reduce;
    int quality = access_quality(built.kernel, target_);
    for (const Node* next = post_.of(seed); next; next = post_.of(next)) {
      // A border or concatenation whose place is fixed takes its parts one by one.
      if (storage_.count(next->result.get())) break;
      if (done_.count(next) || dissolves(*next) || info(next->op).kind == OpKind::Contract ||
          next->op == Op::WindowReduce || next->op == Op::Scan || stands_alone(*next) ||
          (next->op == Op::Concat && !is_stack(*next)) || (anchored && next->op == Op::Reduce)) {
        break;
      }
      if (next->op == Op::Pad && feeds_anchor(next->result.get()) && !is_channel_pad(*next)) break;
      const bool must_improve = !computes(*next) && next->op != Op::Concat;
      if (must_improve && quality == kBestQuality) continue;
      BuiltKernel larger = try_build(next->result.get());
      if (!larger.obstacle.empty()) {
        if (computes(*next)) break;
        continue;
      }
      int q = access_quality(larger.kernel, target_);
      if (must_improve ? q > quality : q >= quality) {
        best = next;
        quality = q;
      }
    }
    const Value* root = best->result.get();
    Storage s = place(root);
    built = build_kernel(root, storage_, s);
    for (const Node* node : built.nodes) {
      if (computes(*node)) done_.insert(node);
      if (node->op == Op::Concat) joined_.insert(node);
    }
    done_.insert(best);
    emit(std::move(built));
    storage_[root] = s;
  }

  // Padding of an axis that a following reshape splits: part of a change of layout, not a border.
  bool is_channel_pad(const Node& pad) const {
    const auto& list = users_.at(pad.result.get());
    return std::all_of(list.begin(), list.end(), [](const Node* user) { return user->op == Op::Reshape; });
  }

  // The columns of a product are its vectors: they must lie side by side.
  void prepare_right_operand(const Node& matmul) {
    const Value* b = matmul.operand(1);
    if (storage_.count(b) || !b->producer || constant_of(b)) return;
    BuiltKernel built = try_build(matmul.result.get());
    if (built.obstacle.empty() && access_quality(built.kernel, target_) >= 2) return;
    materialize(b);
  }

  void emit(BuiltKernel built, const Node* as = nullptr) {
    for (const Loop& loop : built.kernel.outer) {
      if (loop.extent == Dim(0)) return;  // nothing to compute
    }
    Step step;
    step.kernel = std::move(built.kernel);
    step.buffers = std::move(built.buffers);
    if (as) built.nodes.push_back(as);
    Dim work = 0;
    for (const Node* node : built.nodes) {
      std::string name(node->op == Op::Pointwise ? info(node->fn()).name : info(node->op).name);
      if (node->op == Op::Reduce || node->op == Op::WindowReduce)
        name = std::string(name_of(node->reduce_fn())) + "_" + name;
      step.ops.push_back(name);
      if (!node->source.empty() &&
          std::find(step.sources.begin(), step.sources.end(), node->source) == step.sources.end()) {
        step.sources.push_back(node->source);
      }
      work = work + flops_of(*node);
    }
    step.flops = work;
    program_.steps.push_back(std::move(step));
  }

  static Dim flops_of(const Node& node) {
    switch (node.op) {
      case Op::Matmul:
        return node.type().num_elements() * node.operand(0)->type.shape.back() * 2;
      case Op::Conv: {
        Dim k = 1;
        const Shape& w = node.operand(1)->type.shape;
        for (size_t i = 1; i < w.size(); ++i) k = k * w[i];
        return node.type().num_elements() * k * 2;
      }
      case Op::Reduce:
      case Op::WindowReduce: {
        if (node.op == Op::Reduce) return node.operand(0)->type.num_elements();
        Dim k = 1;
        for (int64_t w : node.ints("window")) k = k * w;
        return node.type().num_elements() * k;
      }
      case Op::Pointwise:
        return node.type().num_elements();
      default:
        return 0;
    }
  }

  const Graph& graph_;
  const TargetDescription& target_;
  Program& program_;
  Graph::Users users_;
  PostDominators post_;
  StorageMap storage_;
  std::vector<int> output_buffers_;
  std::set<int> taken_;
  std::set<const Value*> unfinished_;  // borders and concatenations with storage whose own step is still to come
  std::set<const Node*> done_;
  std::set<const Node*> joined_;                           // concatenations that dissolved in a kernel
  std::set<std::pair<const Node*, const Value*>> placed_;  // (concat, operand stored in it)
};

}  // namespace

void fuse(const Graph& graph, const TargetDescription& target, Program& program) {
  Fuser(graph, target, program).run();
}

}  // namespace cuvil
