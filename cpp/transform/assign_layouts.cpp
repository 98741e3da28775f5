// Channel blocks for convolutional regions.
//
// A blocked value of logical type [n, c, s…] is [n, c/B, s…, B]: one vector of channels side by side, c rounded up to a
// multiple of B. Lanes beyond c hold values that nobody may depend on: a blocked value is only ever used element by
// element, or through its logical view, which cuts them off.
//
// The pass walks the graph once. A convolution with constant weights gets a blocked result; ops that work element by
// element or along spatial axes stay blocked when their operands are. Every other use reads the logical view, which
// consists of index-like ops only, so nothing is converted until something needs to be stored.
#include <algorithm>
#include <map>
#include <numeric>

#include "ir/builder.hpp"
#include "support/error.hpp"
#include "transform/pack.hpp"
#include "transform/pass.hpp"
#include "transform/winograd.hpp"

namespace cuvil {

namespace {

class LayoutAssigner {
 public:
  LayoutAssigner(Graph& graph, int64_t block, bool strict = false, int64_t dot = 0)
      : graph_(graph), block_(block), strict_(strict), dot_(dot), b_(graph) {}

  void run() {
    std::vector<Node*> nodes;
    for (const auto& node : graph_.nodes()) nodes.push_back(node.get());
    const Graph::Users users = graph_.users();
    for (Node* node : nodes) {
      // New nodes follow the one they replace, and so all of its operands' views.
      b_.set_position(node);
      b_.set_source(node->source);
      if (Value* blocked = convert(*node)) {
        if (node->op == Op::Conv && !ends_in_registers(*node, users)) blocked = b_.unary(Fn::Identity, blocked);
        Value* view = unblock(blocked, node->type().shape);
        blocked_[view] = blocked;
        graph_.replace_all_uses(node->result.get(), view);
        if (node->op == Op::Conv) release_filter(*node);
      }
    }
    graph_.erase_dead_nodes();
  }

 private:
  // Whether all that use a convolution's result work element by element, so that they will be part of its kernel, and
  // what is stored is theirs. Else the result itself must be held to its blocks, which are but a change of indices.
  bool ends_in_registers(const Node& conv, const Graph::Users& users) const {
    auto it = users.find(conv.result.get());
    return it != users.end() && !graph_.is_output(conv.result.get()) &&
           std::all_of(it->second.begin(), it->second.end(),
                       [](const Node* user) { return user->op == Op::Pointwise; });
  }

  // Frees the filter of a replaced convolution, so that filters are in memory twice only one at a time.
  void release_filter(const Node& conv) {
    const Value* filter = conv.operand(1);
    bool shared =
        graph_.is_output(filter) || std::any_of(graph_.nodes().begin(), graph_.nodes().end(), [&](auto& node) {
          return node.get() != &conv && std::count(node->operands.begin(), node->operands.end(), filter);
        });
    if (!shared && filter->producer->op == Op::Constant)
      filter->producer->attributes["value"] = Tensor(DType::f32, {0});
  }

  Value* find(const Value* v) const {
    auto it = blocked_.find(v);
    return it == blocked_.end() ? nullptr : it->second;
  }

  Dim blocks_of(const Dim& channels) const { return ceil_div(channels, block_); }

  // [n, c, s…] → [n, c/B, s…, B]
  Value* block(Value* v) {
    const Shape& shape = v->type.shape;
    size_t rank = shape.size();
    Dim blocks = blocks_of(shape[1]), padding = blocks * block_ - shape[1];
    std::vector<Dim> none(rank, Dim(0)), high = none;
    high[1] = padding;
    Value* padded = b_.pad(v, none, high, 0);
    Shape split{shape[0], blocks, block_};
    split.insert(split.end(), shape.begin() + 2, shape.end());
    std::vector<int64_t> perm{0, 1};
    for (size_t i = 2; i < rank; ++i) perm.push_back(static_cast<int64_t>(i) + 1);
    perm.push_back(2);
    return b_.transpose(b_.reshape(padded, split), perm);
  }

  Value* unblock(Value* blocked, const Shape& logical) {
    size_t rank = logical.size();
    std::vector<int64_t> perm{0, 1, static_cast<int64_t>(rank)};
    for (size_t i = 2; i < rank; ++i) perm.push_back(static_cast<int64_t>(i));
    Shape padded = logical;
    padded[1] = blocks_of(logical[1]) * block_;
    Value* v = b_.reshape(b_.transpose(blocked, perm), padded);
    return b_.slice_axis(v, 1, 0, logical[1]);
  }

  // The blocked form of the node's result, or null if the node stays as it is.
  Value* convert(const Node& node) {
    switch (node.op) {
      case Op::Conv:
        return convert_conv(node);
      case Op::Pointwise:
      case Op::Cast:
        return convert_pointwise(node);
      case Op::Pad:
        return convert_pad(node);
      case Op::WindowReduce:
        return convert_window(node);
      case Op::Reduce:
        return convert_reduce(node);
      case Op::Concat:
        return convert_concat(node);
      case Op::Slice:
        return convert_slice(node);
      default:
        return nullptr;
    }
  }

  // A convolution of narrow integers with constant ones (see narrow-products). Its input is stored in blocks, whose
  // neighbouring channels one instruction multiplies.
  Value* convert_narrow_conv(const Node& node) {
    const Tensor* w = constant_of(node.operand(1)->producer->operand(0));
    if (!w || !is_integer(w->dtype()) || w->num_elements() == 0 || node.integer("groups") != 1) return nullptr;
    const int64_t oc = w->shape()[0], bi = std::gcd(w->shape()[1], block_);
    if (bi % dot_ != 0 || oc * 2 < block_) return nullptr;
    Value* x = node.operand(0);
    if (!find(x)) {
      if (!is_op(x, Op::Cast)) return nullptr;
      Value* narrow = x->producer->operand(0);
      Value* blocked = blocked_form(narrow);
      if (!find(narrow) && !is_op(narrow, Op::Pad)) blocked = b_.unary(Fn::Identity, blocked);
      x = unblock(b_.cast(blocked, x->type.dtype), x->type.shape);
    }
    Value* filter = pack_filter(b_, *w, panel_columns(oc, block_, false), bi, nullptr, dot_);
    return block(b_.node(Op::Conv, {x, b_.cast(filter, x->type.dtype)}, node.attributes));
  }

  Value* convert_conv(const Node& node) {
    if (dot_ > 0 && node.type().dtype == DType::i32 && is_op(node.operand(1), Op::Cast))
      return convert_narrow_conv(node);
    const Tensor* w = constant_of(node.operand(1));
    Value* x = node.operand(0);
    if (!w || w->dtype() != DType::f32 || w->num_elements() == 0 || !x->type.shape[1].is_constant()) return nullptr;
    int64_t groups = node.integer("groups"), oc = w->shape()[0], ic = w->shape()[1];
    if (oc * 2 < block_) return nullptr;
    if (Value* blocked = convert_by_winograd(node, *w)) return blocked;
    bool depthwise = groups > 1 && ic == 1 && oc == groups;
    Value* filter;
    if (depthwise) {
      if (!find(x)) x = unblock(blocked_form(x), x->type.shape);
      // One filter per lane: the panel is the block itself.
      filter = pack_filter(b_, *w, block_, 1);
    } else if (groups == 1) {
      Value* scale = take_channel_scale(node, *w, x);
      filter = pack_filter(b_, *w, panel_columns(oc, block_, false), std::gcd(ic, block_), scale);
    } else {
      int64_t per_group = oc / groups;
      if (per_group % block_ != 0) return nullptr;
      filter = pack_filter(b_, *w, per_group % (2 * block_) == 0 ? 2 * block_ : block_, std::gcd(ic, block_));
    }
    return block(b_.node(Op::Conv, {x, filter}, node.attributes));
  }

  // conv(x · s, W) = conv(x, W · s) for a factor s per input channel of one image, such as a squeeze-and-excitation
  // block's: with fewer weights than there are elements of x, the factor is better multiplied into them. Returns s as a
  // vector and takes it off x; null if that does not apply.
  Value* take_channel_scale(const Node& conv, const Tensor& filter, Value*& x) {
    Value* blocked = find(x);
    if (strict_ || !blocked || !is_op(blocked, Op::Pointwise) || blocked->producer->fn() != Fn::Mul) return nullptr;
    auto elements = blocked->type.num_elements().constant();
    if (!elements || *elements < 2 * filter.num_elements() || blocked->type.shape[0] != Dim(1)) return nullptr;
    for (const auto& node : graph_.nodes()) {
      if (node.get() != &conv && std::count(node->operands.begin(), node->operands.end(), x)) return nullptr;
    }
    for (size_t side : {0, 1}) {
      Value* map = blocked->producer->operand(side);
      Value* factor = blocked->producer->operand(1 - side);
      Shape per_channel(blocked->type.shape.size(), Dim(1));
      per_channel[1] = blocked->type.shape[1];
      per_channel.back() = block_;
      if (map->type != blocked->type || factor->type.shape != per_channel) continue;
      Value* channels = b_.reshape(factor, {per_channel[1] * block_});
      Value* scale = b_.slice_axis(channels, 0, 0, x->type.shape[1]);
      x = unblock(map, x->type.shape);
      return scale;
    }
    return nullptr;
  }

  Value* convert_by_winograd(const Node& node, const Tensor& w) {
    auto all_are = [&](const char* name, int64_t v) {
      const auto& list = node.ints(name);
      return std::all_of(list.begin(), list.end(), [&](int64_t i) { return i == v; });
    };
    if (w.rank() != 4 || w.shape()[2] != 3 || w.shape()[3] != 3 || !all_are("strides", 1) || !all_are("dilations", 1) ||
        node.integer("groups") != 1 || w.shape()[1] % block_ != 0) {
      return nullptr;
    }
    // A size that varies is planned as a typical one.
    auto size = [&](size_t axis) { return node.type().shape[axis].constant().value_or(56); };
    Winograd form = choose_winograd(w.shape()[1], w.shape()[0], size(2), size(3), block_, strict_);
    if (!form.m) return nullptr;
    return winograd_conv(b_, blocked_form(node.operand(0)), w, block_, form);
  }

  // x in blocked form; a border is added to that form, so that it is stored blocked.
  Value* blocked_form(Value* x) {
    if (Value* blocked = find(x)) return blocked;
    if (is_op(x, Op::Pad) && !find(x->producer->operand(0))) {
      const Node& pad = *x->producer;
      Value* inner = pad.operand(0);
      blocked_[inner] = block(inner);
      Value* blocked = convert_pad(pad);
      blocked_.erase(inner);
      if (blocked) return blocked;
    }
    return block(x);
  }

  // Whether v shows channels that lie side by side in memory, so that its blocks are vectors there already.
  bool shows_channels_last(const Value* v, const Shape& shape) const {
    if (!is_op(v, Op::Transpose) || v->type.shape != shape || shape.size() < 4) return false;
    const auto& perm = v->producer->ints("perm");
    const auto rank = static_cast<int64_t>(perm.size());
    for (int64_t i = 0; i < rank; ++i) {
      if (perm[static_cast<size_t>(i)] != (i == 0 ? 0 : i == 1 ? rank - 1 : i - 1)) return false;
    }
    return shape[1].is_constant() && shape[1].value() % block_ == 0;
  }

  // An operand of a pointwise op in blocked form: blocked already or as good as blocked, the same for all channels, or
  // a vector over channels.
  Value* blocked_operand(Value* v, const Shape& shape) {
    if (Value* blocked = find(v)) return v->type.shape[1] == shape[1] ? blocked : nullptr;
    if (shows_channels_last(v, shape)) return block(v);
    if (v->type.num_elements() == Dim(1)) return b_.reshape(v, {});
    size_t rank = shape.size(), own = v->type.shape.size();
    if (own > rank) return nullptr;
    Shape full(rank - own, Dim(1));
    full.insert(full.end(), v->type.shape.begin(), v->type.shape.end());
    if (full[0] != Dim(1)) return nullptr;
    for (size_t i = 2; i < rank; ++i) {
      if (full[i] != Dim(1)) return nullptr;
    }
    if (full[1] != shape[1]) return nullptr;
    const Tensor* t = constant_of(v);
    if (!t) return block(b_.reshape(v, full));
    int64_t block_size = block_;
    Tensor packed = pack_constant(*t, [&](Builder& p, Value* in) {
      LayoutAssigner inner(p.graph(), block_size);
      return inner.block(p.reshape(in, full));
    });
    return b_.constant(std::move(packed));
  }

  Value* convert_pointwise(const Node& node) {
    const Shape& shape = node.type().shape;
    bool any = false;
    for (Value* v : node.operands) any |= find(v) || shows_channels_last(v, shape);
    if (!any || shape.size() < 2) return nullptr;
    // A blocked operand that is broadcast over channels has no blocked form here.
    std::vector<Value*> operands;
    for (Value* v : node.operands) {
      if (find(v) && v->type.shape.size() != shape.size()) return nullptr;
      Value* blocked = blocked_operand(v, shape);
      if (!blocked) return nullptr;
      operands.push_back(blocked);
    }
    return b_.node(node.op, operands, node.attributes);
  }

  Value* convert_pad(const Node& node) {
    Value* x = find(node.operand(0));
    const auto& low = node.dims("low");
    const auto& high = node.dims("high");
    if (!x || low[0] != Dim(0) || high[0] != Dim(0) || low[1] != Dim(0) || high[1] != Dim(0)) return nullptr;
    std::vector<Dim> l = low, h = high;
    l.push_back(0);
    h.push_back(0);
    return b_.pad(x, l, h, node.get<double>("value"));
  }

  Value* convert_window(const Node& node) {
    Value* x = find(node.operand(0));
    size_t spatial = node.operand(0)->type.shape.size() - 2;
    if (!x || node.ints("window").size() != spatial) return nullptr;
    auto with_one = [](std::vector<int64_t> v) {
      v.push_back(1);
      return v;
    };
    return b_.window_reduce(node.reduce_fn(), x, with_one(node.ints("window")), with_one(node.ints("strides")),
                            with_one(node.ints("dilations")));
  }

  Value* convert_reduce(const Node& node) {
    Value* x = find(node.operand(0));
    const auto& axes = node.ints("axes");
    if (!x || axes.empty() || axes.front() < 2) return nullptr;
    return b_.reduce(node.reduce_fn(), x, axes, node.get<bool>("keepdims"));
  }

  Value* convert_concat(const Node& node) {
    std::vector<Value*> parts;
    int64_t axis = node.integer("axis");
    for (size_t i = 0; i < node.operands.size(); ++i) {
      Value* v = node.operand(i);
      Value* part = find(v);
      if (!part || axis == 0) return nullptr;
      bool whole_blocks = v->type.shape[1].is_constant() && v->type.shape[1].value() % block_ == 0;
      if (axis == 1 && !whole_blocks && i + 1 < node.operands.size()) return nullptr;
      parts.push_back(part);
    }
    return b_.concat(parts, static_cast<int>(axis));
  }

  Value* convert_slice(const Node& node) {
    Value* x = find(node.operand(0));
    if (!x) return nullptr;
    std::vector<Dim> starts = node.dims("starts"), limits = node.dims("limits");
    std::vector<int64_t> steps = node.ints("steps");
    if (!starts[1].is_constant() || !limits[1].is_constant() || steps[1] != 1 || starts[1].value() % block_ != 0)
      return nullptr;
    starts[1] = starts[1].value() / block_;
    limits[1] = ceil_div(limits[1], block_);
    starts.push_back(0);
    limits.push_back(block_);
    steps.push_back(1);
    return b_.slice(x, starts, limits, steps);
  }

  Graph& graph_;
  int64_t block_;
  bool strict_;
  int64_t dot_;
  Builder b_;
  std::map<const Value*, Value*> blocked_;  // logical view → blocked value
};

}  // namespace

void assign_layouts(Graph& graph, const TransformOptions& options) {
  if (options.channel_block > 1) LayoutAssigner(graph, options.channel_block, options.strict, options.dot).run();
}

}  // namespace cuvil
