#include "lower/build_kernel.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "support/error.hpp"

namespace cuvil {

std::vector<Dim> row_major_strides(const Shape& shape) {
  std::vector<Dim> strides(shape.size(), Dim(1));
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

namespace {

using Indices = std::vector<Dim>;

// Values as functions of their indices, evaluated lazily: index-like ops only rewrite the indices.
class KernelBuilder {
 public:
  KernelBuilder(const StorageMap& storage, BuiltKernel& out) : storage_(storage), out_(out), kernel_(out.kernel) {}

  void build(const Value* root, const Storage& target) {
    Indices indices;
    for (size_t i = 0; i < root->type.shape.size(); ++i) {
      Dim variable = Dim::loop_variable("$i" + std::to_string(i), root->type.shape[i]);
      root_loops_.push_back({variable, root->type.shape[i], {}});
      indices.push_back(variable);
    }
    ExprPtr value = storage_.count(root) ? load(root, indices) : compute(root, indices);
    Dim offset = target.offset;
    for (size_t i = 0; i < indices.size(); ++i) offset = offset + indices[i] * target.strides[i];
    int buffer = use_buffer(target.buffer, root->type.dtype, true);
    if (!out_.obstacle.empty()) return;
    arrange(StoreDef{buffer, offset, moved(value), {}});
    check(root);
  }

  // Loops over the updates. Those that alone decide where an update goes may run in any order; the others may lead to
  // one place twice.
  void build_scatter(const Node& node, const Storage& target) {
    const bool elements = node.op == Op::ScatterElements;
    const Type& index = node.operand(1)->type;
    const Type& updates = node.operand(2)->type;
    const auto first = static_cast<size_t>(node.integer("axis"));
    const size_t last = first + (elements ? 1 : index.shape.size());
    const Dim& size = node.type().shape[first];
    Phase phase;
    phase.ordered = true;
    // No update has a place on an empty axis.
    if (!provably_le(1, size)) {
      Dim once = minimum(size, 1);
      phase.loops.push_back({Dim::loop_variable("$u", once), once, {}});
    }
    Indices at_update;
    for (size_t i = 0; i < updates.shape.size(); ++i) {
      const Dim& extent = updates.shape[i];
      Dim variable = Dim::loop_variable("$i" + std::to_string(i), extent);
      at_update.push_back(variable);
      if (extent != Dim(1)) (i >= first && i < last ? phase.loops : kernel_.outer).push_back({variable, extent, {}});
    }
    auto from = at_update.begin() + static_cast<long>(first), to = at_update.begin() + static_cast<long>(last);
    Indices place(at_update.begin(), from);
    place.push_back(indirect(at(node.operand(1), elements ? at_update : Indices(from, to)), size));
    place.insert(place.end(), to, at_update.end());
    ExprPtr value = at(node.operand(2), at_update);
    Dim offset = target.offset;
    for (size_t i = 0; i < place.size(); ++i) offset = offset + place[i] * target.strides[i];
    StoreDef store{use_buffer(target.buffer, node.type().dtype, true), offset, value, {}};
    if (node.attributes.count("fn")) store.combine = node.reduce_fn();
    phase.stores.push_back(std::move(store));
    kernel_.phases.push_back(std::move(phase));
    out_.nodes.push_back(&node);
  }

 private:
  // What is only moved is moved as bits.
  static ExprPtr moved(const ExprPtr& value) {
    const bool half = value->dtype == DType::f16 || value->dtype == DType::bf16;
    const bool moves = value->kind == Expr::Kind::Load || value->kind == Expr::Kind::BitCast;
    return half && moves ? bitcast_expr(DType::u16, value) : value;
  }

  struct Anchor {
    const Node* node;
    Indices indices;
    std::vector<Loop> loops;
    int id;
    int level;
  };

  int use_buffer(int program_buffer, DType dtype, bool written) {
    for (size_t i = 0; i < out_.buffers.size(); ++i) {
      if (out_.buffers[i] == program_buffer && kernel_.buffers[i].dtype == dtype) {
        kernel_.buffers[i].written |= written;
        return static_cast<int>(i);
      }
    }
    out_.buffers.push_back(program_buffer);
    kernel_.buffers.push_back({dtype, written});
    return static_cast<int>(out_.buffers.size()) - 1;
  }

  ExprPtr load(const Value* v, const Indices& indices) {
    const Storage& s = storage_.at(v);
    Dim offset = s.offset;
    for (size_t i = 0; i < indices.size(); ++i) offset = offset + indices[i] * s.strides[i];
    return load_expr(v->type.dtype, use_buffer(s.buffer, v->type.dtype, false), offset);
  }

  static ExprPtr scalar(const Tensor& tensor) {
    return is_float(tensor.dtype()) ? constant_expr(tensor.dtype(), tensor.get_double(0))
                                    : constant_int_expr(tensor.dtype(), tensor.get_int(0));
  }

  ExprPtr at(const Value* v, const Indices& indices) {
    if (!out_.obstacle.empty()) return constant_expr(v->type.dtype, 0);
    if (const Tensor* tensor = constant_of(v); tensor && tensor->num_elements() == 1) return scalar(*tensor);
    auto key = std::make_pair(v, indices);
    if (auto it = memo_.find(key); it != memo_.end()) return it->second;
    ExprPtr e = storage_.count(v) ? load(v, indices) : compute(v, indices);
    memo_.emplace(std::move(key), e);
    return e;
  }

  static Indices broadcast_indices(const Indices& indices, const Type& to) {
    Indices result;
    size_t skip = indices.size() - to.shape.size();
    for (size_t i = 0; i < to.shape.size(); ++i) result.push_back(to.shape[i] == Dim(1) ? Dim(0) : indices[skip + i]);
    return result;
  }

  ExprPtr compute(const Value* v, const Indices& indices) {
    CUVIL_CHECK(v->producer, "graph input without storage");
    const Node& node = *v->producer;
    ExprPtr e = compute_node(node, indices);
    if (std::find(out_.nodes.begin(), out_.nodes.end(), &node) == out_.nodes.end()) out_.nodes.push_back(&node);
    return e;
  }

  ExprPtr compute_node(const Node& node, const Indices& indices) {
    const DType dtype = node.type().dtype;
    switch (node.op) {
      case Op::Constant:
        CUVIL_CHECK(node.tensor().num_elements() == 1, "a constant without storage");
        return scalar(node.tensor());
      case Op::DimValue:
        return index_expr(dtype, node.get<Dim>("value"));
      case Op::Iota:
        return index_expr(dtype, indices[static_cast<size_t>(node.integer("axis"))]);
      case Op::Pointwise: {
        std::vector<ExprPtr> args;
        for (const Value* operand : node.operands)
          args.push_back(at(operand, broadcast_indices(indices, operand->type)));
        return apply_expr(node.fn(), dtype, std::move(args));
      }
      case Op::Cast:
        return cast_expr(dtype, at(node.operand(0), indices));
      case Op::BitCast:
        return bitcast_expr(dtype, at(node.operand(0), indices));
      case Op::Reshape:
        return at(node.operand(0), reshape_indices(indices, node.type().shape, node.operand(0)->type.shape));
      case Op::Transpose: {
        Indices inner(indices.size());
        const auto& perm = node.ints("perm");
        for (size_t i = 0; i < perm.size(); ++i) inner[static_cast<size_t>(perm[i])] = indices[i];
        return at(node.operand(0), inner);
      }
      case Op::Broadcast:
        return at(node.operand(0), broadcast_indices(indices, node.operand(0)->type));
      case Op::Slice: {
        Indices inner;
        for (size_t i = 0; i < indices.size(); ++i) {
          inner.push_back(node.dims("starts")[i] + indices[i] * node.ints("steps")[i]);
        }
        return at(node.operand(0), inner);
      }
      case Op::Pad: {
        Indices inner;
        std::vector<RangeCheck> checks;
        const Shape& shape = node.operand(0)->type.shape;
        for (size_t i = 0; i < indices.size(); ++i) {
          inner.push_back(indices[i] - node.dims("low")[i]);
          checks.push_back({inner.back(), 0, shape[i]});
        }
        double value = node.get<double>("value");
        return guard_expr(checks, at(node.operand(0), inner), constant_expr(dtype, value));
      }
      case Op::Concat: {
        auto axis = static_cast<size_t>(node.integer("axis"));
        Dim end = node.type().shape[axis];
        ExprPtr result;
        for (size_t n = node.operands.size(); n-- > 0;) {
          const Value* part = node.operand(n);
          Dim begin = end - part->type.shape[axis];
          Dim offset = indices[axis] - begin;
          Indices inner = indices;
          inner[axis] = part->type.shape[axis] == Dim(1) ? Dim(0) : offset;
          ExprPtr e = at(part, inner);
          result = result ? guard_expr({{offset, 0, part->type.shape[axis]}}, e, result) : e;
          end = begin;
        }
        return result;
      }
      case Op::Gather: {
        auto axis = static_cast<size_t>(node.integer("axis"));
        const Value* index = node.operand(1);
        size_t rank = index->type.shape.size();
        Indices where(indices.begin() + static_cast<long>(axis), indices.begin() + static_cast<long>(axis + rank));
        Indices inner(indices.begin(), indices.begin() + static_cast<long>(axis));
        inner.push_back(indirect(at(index, where), node.operand(0)->type.shape[axis]));
        inner.insert(inner.end(), indices.begin() + static_cast<long>(axis + rank), indices.end());
        return at(node.operand(0), inner);
      }
      case Op::GatherElements: {
        auto axis = static_cast<size_t>(node.integer("axis"));
        Indices inner = indices;
        inner[axis] = indirect(at(node.operand(1), indices), node.operand(0)->type.shape[axis]);
        return at(node.operand(0), inner);
      }
      case Op::Reduce:
      case Op::WindowReduce:
      case Op::Matmul:
      case Op::Conv:
      case Op::Scan:
        return fold(node, indices);
      case Op::Scatter:
      case Op::ScatterElements:
      case Op::SortIndices:
        obstacle(std::string(info(node.op).name) + " is a kernel of its own");
        return constant_expr(dtype, 0);
      case Op::If:
      case Op::Loop:
      case Op::Result:
      case Op::Sizes:
      case Op::CheckEqual:
        break;
    }
    throw InternalError("not an op of a straight graph");
  }

  static Indices reshape_indices(const Indices& indices, const Shape& from, const Shape& to) {
    // Nothing has an index in an empty tensor; what would have stays in the loop that does not run.
    if (auto none = std::find(to.begin(), to.end(), Dim(0)); none != to.end()) {
      auto empty = std::find(from.begin(), from.end(), Dim(0));
      Indices inner(to.size(), Dim(0));
      if (empty == from.end()) return inner;  // its emptiness shows at run time
      inner[static_cast<size_t>(none - to.begin())] = indices[static_cast<size_t>(empty - from.begin())];
      return inner;
    }
    // Leading and trailing axes that agree keep their indices.
    size_t head = 0, tail = 0;
    while (head < from.size() && head < to.size() && from[head] == to[head]) ++head;
    while (tail + head < from.size() && tail + head < to.size() &&
           from[from.size() - 1 - tail] == to[to.size() - 1 - tail]) {
      ++tail;
    }
    Dim linear = 0;
    for (size_t i = head; i + tail < from.size(); ++i) linear = linear * from[i] + indices[i];
    Indices inner(indices.begin(), indices.begin() + static_cast<long>(head));
    Indices middle;
    for (size_t i = to.size() - tail; i-- > head;) {
      bool outermost = i == head;
      middle.push_back(to[i] == Dim(1) ? Dim(0) : outermost ? linear : floor_mod(linear, to[i]));
      if (!outermost && to[i] != Dim(1)) linear = floor_div(linear, to[i]);
    }
    inner.insert(inner.end(), middle.rbegin(), middle.rend());
    inner.insert(inner.end(), indices.end() - static_cast<long>(tail), indices.end());
    return inner;
  }

  Dim indirect(const ExprPtr& value, const Dim& size) {
    for (const Indirect& known : kernel_.indirects) {
      if (known.value == value && known.size == size) return Dim::symbol(known.symbol, 0);
    }
    std::string name = "@" + std::to_string(kernel_.indirects.size());
    kernel_.indirects.push_back({name, value, size});
    return Dim::symbol(name, 0);
  }

  // Scan counts as a contraction: its result is as large as its operand.
  static bool mixes_badly(const Node& node) { return node.op != Op::Reduce; }

  // Starts a reduction of this kernel whose value at `indices` is asked for.
  ExprPtr fold(const Node& node, const Indices& indices) {
    const DType dtype = node.type().dtype;
    for (const Anchor& known : anchors_) {
      if (known.node == &node && known.indices == indices) return reduction_expr(dtype, known.id);
    }
    if (!anchors_.empty() && (mixes_badly(node) || mixes_badly(*anchors_[0].node))) {
      obstacle("a contraction or window beside other reductions");
    }
    if (!out_.obstacle.empty()) return constant_expr(dtype, 0);  // nobody will use this kernel
    Anchor anchor{&node, indices, {}, -1, 0};
    ReductionDef def;
    def.dtype = node.operand(0)->type.dtype;
    switch (node.op) {
      case Op::Reduce:
        fold_axes(node, indices, anchor, def);
        break;
      case Op::WindowReduce:
        fold_window(node, indices, anchor, def);
        break;
      case Op::Matmul:
        fold_matmul(node, indices, anchor, def);
        break;
      case Op::Conv:
        fold_conv(node, indices, anchor, def);
        break;
      case Op::Scan:
        fold_scan(node, indices, anchor, def);
        break;
      default:
        throw InternalError("not a reduction");
    }
    anchor.id = static_cast<int>(kernel_.reductions.size());
    visit(def.value, [&](const Expr& e) {
      if (e.kind == Expr::Kind::Reduction) {
        for (const Anchor& a : anchors_) {
          if (a.id == e.id) anchor.level = std::max(anchor.level, a.level + 1);
        }
      }
    });
    kernel_.reductions.push_back(std::move(def));
    anchors_.push_back(std::move(anchor));
    return reduction_expr(dtype, anchors_.back().id);
  }

  Dim fold_loop(Anchor& anchor, const Dim& extent) {
    // Loop variables are named by position and extent's place so that equal rows share them.
    Dim variable = Dim::loop_variable("$r" + std::to_string(anchor.loops.size()), extent);
    anchor.loops.push_back({variable, extent, {}});
    return variable;
  }

  void fold_axes(const Node& node, const Indices& indices, Anchor& anchor, ReductionDef& def) {
    const auto& axes = node.ints("axes");
    bool keepdims = node.get<bool>("keepdims");
    const Shape& shape = node.operand(0)->type.shape;
    Indices inner;
    size_t next = 0;
    for (size_t i = 0; i < shape.size(); ++i) {
      bool folded = std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end();
      if (folded) {
        inner.push_back(fold_loop(anchor, shape[i]));
        def.position = inner.back();
        next += keepdims;
      } else {
        inner.push_back(indices[next++]);
      }
    }
    def.fn = node.reduce_fn();
    def.value = at(node.operand(0), inner);
  }

  // A running fold is a fold over the elements up to the index.
  void fold_scan(const Node& node, const Indices& indices, Anchor& anchor, ReductionDef& def) {
    auto axis = static_cast<size_t>(node.integer("axis"));
    bool exclusive = node.get<bool>("exclusive"), reverse = node.get<bool>("reverse");
    const Dim& size = node.type().shape[axis];
    Indices inner = indices;
    inner[axis] = fold_loop(anchor, size);
    Dim first = reverse ? indices[axis] + (exclusive ? 1 : 0) : Dim(0);
    Dim last = reverse ? size : indices[axis] + (exclusive ? 0 : 1);
    def.fn = node.reduce_fn();
    def.value = guard_expr({{inner[axis], first, last}}, at(node.operand(0), inner),
                           constant_expr(def.dtype, def.fn == ReduceFn::Prod ? 1 : 0));
  }

  void fold_window(const Node& node, const Indices& indices, Anchor& anchor, ReductionDef& def) {
    const auto& window = node.ints("window");
    size_t spatial = window.size(), lead = indices.size() - spatial;
    Indices inner(indices.begin(), indices.begin() + static_cast<long>(lead));
    for (size_t i = 0; i < spatial; ++i) {
      inner.push_back(indices[lead + i] * node.ints("strides")[i] +
                      fold_loop(anchor, window[i]) * node.ints("dilations")[i]);
    }
    def.fn = node.reduce_fn();
    def.value = at(node.operand(0), inner);
  }

  void fold_matmul(const Node& node, const Indices& indices, Anchor& anchor, ReductionDef& def) {
    const Type& a = node.operand(0)->type;
    const Type& b = node.operand(1)->type;
    size_t rank = indices.size();
    Dim k = fold_loop(anchor, a.shape.back());
    Indices ia = indices, ib = indices;
    ia[rank - 1] = k;
    ib[rank - 2] = k;
    ExprPtr ea = at(node.operand(0), broadcast_indices(ia, a));
    ExprPtr eb = at(node.operand(1), broadcast_indices(ib, b));
    def.value = apply_expr(Fn::Mul, a.dtype, {ea, eb});
    kernel_.contraction = true;
  }

  void fold_conv(const Node& node, const Indices& indices, Anchor& anchor, ReductionDef& def) {
    const Type& x = node.operand(0)->type;
    const Type& w = node.operand(1)->type;
    int64_t groups = node.integer("groups");
    Dim out_per_group = floor_div(w.shape[0], groups);
    Dim group = groups == 1 ? Dim(0) : floor_div(indices[1], out_per_group);
    Dim ic = fold_loop(anchor, w.shape[1]);
    Indices ix{indices[0], group * w.shape[1] + ic}, iw{indices[1], ic};
    for (size_t i = 2; i < indices.size(); ++i) {
      Dim k = fold_loop(anchor, w.shape[i]);
      ix.push_back(indices[i] * node.ints("strides")[i - 2] + k * node.ints("dilations")[i - 2]);
      iw.push_back(k);
    }
    def.value = apply_expr(Fn::Mul, x.dtype, {at(node.operand(0), ix), at(node.operand(1), iw)});
    kernel_.contraction = true;
  }

  // Also through indices that are read from memory.
  bool depends_on(const Indices& indices, const Dim& variable) const {
    return std::any_of(indices.begin(), indices.end(), [&](const Dim& d) { return depends_on(d, variable); });
  }
  bool depends_on(const Dim& d, const Dim& variable) const {
    if (d.contains(variable)) return true;
    return std::any_of(kernel_.indirects.begin(), kernel_.indirects.end(), [&](const Indirect& i) {
      if (!d.contains(Dim::symbol(i.symbol, 0))) return false;
      bool found = false;
      visit(i.value, [&](const Expr& e) {
        if (e.kind == Expr::Kind::Load || e.kind == Expr::Kind::Index) found |= depends_on(e.index, variable);
      });
      return found;
    });
  }

  // Sorts loops and reductions into outer loops and phases.
  void arrange(StoreDef store) {
    std::vector<Loop> row;
    for (const Loop& loop : root_loops_) {
      if (loop.extent == Dim(1)) continue;
      bool outer = anchors_.empty();
      for (const Anchor& anchor : anchors_) outer |= depends_on(anchor.indices, loop.variable);
      (outer ? kernel_.outer : row).push_back(loop);
    }
    std::map<int, std::vector<const Anchor*>> by_level;
    for (const Anchor& anchor : anchors_) by_level[anchor.level].push_back(&anchor);
    for (auto& [level, list] : by_level) {
      std::vector<const Anchor*> rest = list;
      while (!rest.empty()) {
        Phase phase;
        phase.loops = rest.front()->loops;
        std::vector<const Anchor*> other;
        for (const Anchor* anchor : rest) {
          bool same = anchor->loops.size() == phase.loops.size();
          for (size_t i = 0; same && i < phase.loops.size(); ++i)
            same = anchor->loops[i].extent == phase.loops[i].extent;
          if (same) {
            phase.reductions.push_back(anchor->id);
          } else {
            other.push_back(anchor);
          }
        }
        std::erase_if(phase.loops, [](const Loop& l) { return l.extent == Dim(1); });
        kernel_.phases.push_back(std::move(phase));
        rest = std::move(other);
      }
    }
    if (kernel_.phases.size() > 1) name_loops_by_phase();
    kernel_.phases.push_back({std::move(row), {}, {std::move(store)}});
  }

  // Loops are transformed phase by phase, so phases must not share variables.
  void name_loops_by_phase() {
    if (!kernel_.indirects.empty()) obstacle("an indirect index inside several reductions");
    for (size_t p = 0; p < kernel_.phases.size(); ++p) {
      Phase& phase = kernel_.phases[p];
      std::map<std::string, Dim> map;
      for (Loop& loop : phase.loops) {
        Dim renamed = Dim::loop_variable(loop.variable.symbol_name() + "p" + std::to_string(p), loop.extent);
        map.emplace(loop.variable.symbol_name(), renamed);
        loop.variable = renamed;
      }
      ExprRewriter rewrite([&](const Dim& d) { return d.substitute(map); });
      for (int id : phase.reductions) {
        ReductionDef& r = kernel_.reductions[static_cast<size_t>(id)];
        r.value = rewrite(r.value);
        r.position = r.position.substitute(map);
      }
    }
  }

  void obstacle(std::string why) {
    if (out_.obstacle.empty()) out_.obstacle = std::move(why);
  }

  // One kernel must not compute any reduction twice, nor mix reductions over different rows.
  void check(const Value* root) {
    std::set<const Node*> seen;
    for (const Anchor& anchor : anchors_) {
      if (!seen.insert(anchor.node).second) obstacle("a reduction is needed at two indices");
      bool contraction = mixes_badly(*anchor.node);
      Dim points = 1;
      for (const Loop& loop : root_loops_) {
        bool depends = depends_on(anchor.indices, loop.variable);
        if (depends) points = points * loop.extent;
        bool outer = std::any_of(kernel_.outer.begin(), kernel_.outer.end(),
                                 [&](const Loop& l) { return l.variable == loop.variable; });
        if (loop.extent != Dim(1) && outer && !depends) obstacle("reductions over different rows");
      }
      Dim wanted = anchor.node->type().num_elements();
      if (points != wanted) {
        auto p = points.constant(), w = wanted.constant();
        bool padded = contraction && p && w && *p >= *w && *p < 4 * *w;
        if (!padded && !(contraction && padded_channels(anchor, points)))
          obstacle("a reduction would be computed more than once");
      }
      if (anchor.node->op == Op::Reduce && root->type.num_elements() != wanted && anchors_.size() > 0) {
        Dim row = root->type.num_elements();
        Dim folded = anchor.node->operand(0)->type.num_elements();
        if (row != folded && !exact_div(folded, row)) obstacle("the rows stored are not the rows reduced");
      }
    }
    if (kernel_.contraction) {
      for (const ReductionDef& r : kernel_.reductions) {
        for (const ExprPtr& operand : r.value->args) {
          const Expr* e = operand.get();
          while (e->kind == Expr::Kind::Guard || e->kind == Expr::Kind::Cast) e = e->args[0].get();
          if (e->kind != Expr::Kind::Load && e->kind != Expr::Kind::Constant)
            obstacle("a contraction's operand is computed");
        }
      }
    }
  }

  // With a symbolic batch, the channel padding of a blocked result still is a constant factor.
  static bool padded_channels(const Anchor& anchor, const Dim& points) {
    const Shape& shape = anchor.node->type().shape;
    if (shape.size() < 2) return false;
    Dim rest = 1;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (i != 1) rest = rest * shape[i];
    }
    auto channels = exact_div(points, rest);
    return channels && channels->is_constant() && shape[1].is_constant() && channels->value() >= shape[1].value() &&
           channels->value() < 4 * shape[1].value() + 16;
  }

  const StorageMap& storage_;
  BuiltKernel& out_;
  Kernel& kernel_;
  std::vector<Loop> root_loops_;
  std::vector<Anchor> anchors_;
  std::map<std::pair<const Value*, Indices>, ExprPtr> memo_;
};

}  // namespace

BuiltKernel build_kernel(const Value* root, const StorageMap& storage, const Storage& target) {
  BuiltKernel out;
  KernelBuilder(storage, out).build(root, target);
  return out;
}

BuiltKernel build_scatter(const Node& node, const StorageMap& storage, const Storage& target) {
  BuiltKernel out;
  KernelBuilder(storage, out).build_scatter(node, target);
  return out;
}

BuiltKernel build_sort(const Node& node, const Storage& keys, const Storage& target, int scratch, Dim& scratch_size) {
  BuiltKernel out;
  const Type& x = node.operand(0)->type;
  const auto axis = static_cast<size_t>(node.integer("axis"));
  SortDef sort;
  sort.keys = {0, keys.offset, keys.strides[axis]};
  sort.order = {1, target.offset, target.strides[axis]};
  sort.scratch = 2;
  sort.size = x.shape[axis];
  sort.count = node.get<Dim>("count");
  sort.descending = node.get<bool>("descending");
  Dim row = 0, rows = 1;
  for (size_t i = 0; i < x.shape.size(); ++i) {
    const Dim& extent = x.shape[i];
    if (i == axis || extent == Dim(1)) continue;
    Dim variable = Dim::loop_variable("$i" + std::to_string(i), extent);
    out.kernel.outer.push_back({variable, extent, {}});
    sort.keys.offset = sort.keys.offset + variable * keys.strides[i];
    sort.order.offset = sort.order.offset + variable * target.strides[i];
    row = row * extent + variable;
    rows = rows * extent;
  }
  const Dim per_row = SortDef::scratch_elements(x.dtype, sort.size, sort.count);
  sort.scratch_offset = row * per_row;
  scratch_size = rows * per_row;
  out.buffers = {keys.buffer, target.buffer, scratch};
  out.kernel.buffers = {{x.dtype, false}, {DType::i64, true}, {DType::i64, true}};
  out.kernel.phases.emplace_back();
  out.kernel.phases.back().sort = std::move(sort);
  out.nodes.push_back(&node);
  return out;
}

}  // namespace cuvil
