// Operators of the domain ai.onnx.ml on numbers: what converters of classical models export.
#include <cmath>
#include <map>
#include <set>

#include "import/onnx/call.hpp"

namespace cuvil::onnx {

namespace {

Value* vector_of(Call& c, const std::vector<double>& values, DType dtype) {
  return c.b.constant(Tensor::vector(dtype, values));
}

// These operators compute on floats whatever the input's type.
Value* as_float(Call& c, Value* x) {
  return is_float(x->type.dtype) ? x : c.b.cast(x, DType::f32);
}

void array_feature_extractor(Call& c) {
  Value *x = c.input(0), *index = c.input(1);
  if (x->type.rank() == 1) x = c.b.unsqueeze(x, {0});
  c.set(c.b.gather(x, c.b.reshape(index, {index->type.num_elements()}), static_cast<int>(x->type.rank()) - 1));
}

void binarizer(Call& c) {
  Value* x = c.input(0);
  c.set(c.b.cast(c.b.binary(Fn::Gt, x, c.number(x->type.dtype, c.real("threshold", 0))), x->type.dtype));
}

void scaler(Call& c) {
  Value* x = as_float(c, c.input(0));
  const std::vector<double> offset = c.reals("offset"), scale = c.reals("scale");
  if (!offset.empty()) x = c.b.sub(x, vector_of(c, offset, x->type.dtype));
  if (!scale.empty()) x = c.b.mul(x, vector_of(c, scale, x->type.dtype));
  c.set(c.b.cast(x, DType::f32));
}

void imputer(Call& c) {
  Value* x = c.input(0);
  const DType t = x->type.dtype;
  Value *missing, *with;
  if (is_float(t)) {
    const double replaced = c.real("replaced_value_float", 0);
    missing = std::isnan(replaced) ? c.b.unary(Fn::IsNan, x) : c.b.binary(Fn::Eq, x, c.b.scalar(t, replaced));
    const std::vector<double> values = c.reals("imputed_value_floats");
    c.require(!values.empty(), "imputed_value_floats is missing");
    with = vector_of(c, values, t);
  } else {
    missing = c.b.binary(Fn::Eq, x, c.b.scalar_int(t, c.integer("replaced_value_int64", 0)));
    const std::vector<int64_t> values = c.ints("imputed_value_int64s");
    c.require(!values.empty(), "imputed_value_int64s is missing");
    with = c.b.constant(Tensor::vector_int(t, values));
  }
  c.set(c.b.select(missing, with, x));
}

// A row whose norm is 0 stays as it is.
void normalizer(Call& c) {
  Builder& b = c.b;
  Value* x = b.cast(c.input(0), DType::f32);
  const std::string kind = c.text("norm", "MAX");
  Value* norm;
  if (kind == "MAX") {
    norm = b.reduce(ReduceFn::Max, x, {-1}, true);
  } else if (kind == "L1") {
    norm = b.reduce(ReduceFn::Sum, b.unary(Fn::Abs, x), {-1}, true);
  } else {
    c.require(kind == "L2", "norm must be MAX, L1 or L2");
    norm = b.unary(Fn::Sqrt, b.reduce(ReduceFn::Sum, b.mul(x, x), {-1}, true));
  }
  c.set(b.select(b.binary(Fn::Eq, norm, 0.0), x, b.div(x, norm)));
}

Value* post_transform(Call& c, Value* scores, std::string_view kind) {
  if (kind == "NONE") return scores;
  if (kind == "SOFTMAX") return c.b.softmax(scores, -1, false);
  if (kind == "LOGISTIC") return c.b.unary(Fn::Sigmoid, scores);
  c.fail("post_transform " + std::string(kind) + " is not supported; NONE, SOFTMAX and LOGISTIC are");
}

void linear_regressor(Call& c) {
  Builder& b = c.b;
  Value* x = b.cast(c.input(0), DType::f32);
  if (x->type.rank() == 1) x = b.unsqueeze(x, {0});
  const int64_t targets = c.integer("targets", 1);
  const std::vector<double> coefficients = c.reals("coefficients"), intercepts = c.reals("intercepts");
  const auto count = static_cast<int64_t>(coefficients.size());
  c.require(targets > 0 && count % targets == 0, "coefficients are not one row per target");
  Value* w = b.reshape(vector_of(c, coefficients, DType::f32), {targets, count / targets});
  Value* y = b.matmul(x, b.transpose_last(w));
  if (!intercepts.empty()) y = b.add(y, vector_of(c, intercepts, DType::f32));
  c.set(post_transform(c, y, c.text("post_transform", "NONE")));
}

void feature_vectorizer(Call& c) {
  std::vector<Value*> parts;
  for (Value* x : c.inputs()) {
    c.require(x, "an input is missing");
    Value* part = c.b.cast(x, DType::f32);
    parts.push_back(part->type.rank() == 1 ? c.b.unsqueeze(part, {1}) : part);
  }
  const std::vector<int64_t> widths = c.ints("inputdimensions");
  for (size_t i = 0; i < parts.size() && i < widths.size(); ++i) {
    parts[i] = c.b.slice_axis(parts[i], 1, 0, widths[i]);
  }
  c.set(c.b.concat(parts, 1));
}

// The numbers of one side of a LabelEncoder's map, or nothing.
std::optional<Tensor> labels(Call& c, const std::string& side) {
  if (c.attribute(side + "_tensor")) {
    Tensor t = c.tensor(side + "_tensor");
    return t.reshaped({t.num_elements()});
  }
  if (c.attribute(side + "_int64s")) return Tensor::vector_int(DType::i64, c.ints(side + "_int64s"));
  if (c.attribute(side + "_floats")) return Tensor::vector(DType::f32, c.reals(side + "_floats"));
  return std::nullopt;
}

// NaN is a key like any other.
void label_encoder(Call& c) {
  Builder& b = c.b;
  Value* x = c.input(0);
  const std::optional<Tensor> keys = labels(c, "keys"), values = labels(c, "values");
  c.require(keys && values, "labels that are strings are not supported");
  const int64_t count = keys->num_elements();
  c.require(count > 0 && count == values->num_elements(), "keys and values differ in number");
  const DType t = values->dtype();
  Value* fallback;
  if (c.attribute("default_tensor")) {
    Tensor given = c.tensor("default_tensor");
    c.require(given.num_elements() == 1, "default_tensor must have one element");
    fallback = b.constant(given.reshaped({}));
  } else {
    fallback =
        is_float(t) ? b.scalar(t, c.real("default_float", -0.0)) : b.scalar_int(t, c.integer("default_int64", -1));
  }
  Value* key = b.constant(*keys);
  Value* each = b.unsqueeze(x, {-1});
  Value* same = b.binary(Fn::Eq, each, b.cast(key, x->type.dtype));
  if (is_float(x->type.dtype)) {
    same = b.binary(Fn::Or, same,
                    b.binary(Fn::And, b.unary(Fn::IsNan, each), b.unary(Fn::IsNan, b.cast(key, x->type.dtype))));
  }
  Value* number = b.select(same, b.iota({count}, 0, DType::i64), b.scalar_int(DType::i64, -1));
  Value* found = b.reduce(ReduceFn::Max, number, {-1}, false);
  Value* value = b.gather(b.constant(*values), b.binary(Fn::Max, found, b.scalar_int(DType::i64, 0)), 0);
  c.set(b.select(b.binary(Fn::Ge, found, b.scalar_int(DType::i64, 0)), value, fallback));
}

enum class Mode : int64_t { Leq, Lt, Gte, Gt, Eq, Neq, Leaf };

// All trees of an ensemble in one numbering. A leaf's next node is itself.
struct Forest {
  struct Node {
    int64_t feature = 0;
    Mode mode = Mode::Leaf;
    double threshold = 0;
    bool missing_is_true = false;
    int64_t if_true = 0, if_false = 0;
  };
  std::vector<Node> nodes;
  std::vector<int64_t> roots;
  std::vector<std::map<int64_t, double>> weights;  // of leaves, by target

  int64_t add_leaf() {
    const auto id = static_cast<int64_t>(nodes.size());
    nodes.push_back({0, Mode::Leaf, 0, false, id, id});
    weights.resize(nodes.size());
    return id;
  }

  /// The most decisions from a root to a leaf.
  int64_t depth(Call& c) const {
    int64_t levels = 0;
    std::set<int64_t> at(roots.begin(), roots.end());
    for (;; ++levels) {
      c.require(levels <= static_cast<int64_t>(nodes.size()), "a tree's branches lead in a circle");
      std::set<int64_t> below;
      for (int64_t id : at) {
        c.require(id >= 0 && id < static_cast<int64_t>(nodes.size()),
                  "a tree's branch leads to a node that doesn't exist");
        const Node& n = nodes[static_cast<size_t>(id)];
        if (n.mode == Mode::Leaf) continue;
        c.require(n.feature >= 0, "a node's feature is negative");
        below.insert({n.if_true, n.if_false});
      }
      if (below.empty()) return levels;
      at = std::move(below);
    }
  }
};

// Every tree descends one level per step, all rows together: positions [n, trees].
Value* leaves_of(Call& c, const Forest& forest, Value* x) {
  Builder& b = c.b;
  auto integers = [&](auto&& get) {
    std::vector<int64_t> column;
    for (const Forest::Node& n : forest.nodes) column.push_back(get(n));
    return b.constant(Tensor::vector_int(DType::i64, column));
  };
  Value* feature = integers([](const Forest::Node& n) { return n.feature; });
  Value* mode = integers([](const Forest::Node& n) { return static_cast<int64_t>(n.mode); });
  Value* if_true = integers([](const Forest::Node& n) { return n.if_true; });
  Value* if_false = integers([](const Forest::Node& n) { return n.if_false; });
  Value* missing = integers([](const Forest::Node& n) { return n.missing_is_true ? 1 : 0; });
  std::vector<double> thresholds;
  std::set<Mode> modes;
  bool any_missing = false;
  for (const Forest::Node& n : forest.nodes) {
    thresholds.push_back(n.threshold);
    modes.insert(n.mode);
    any_missing |= n.missing_is_true;
  }
  Value* threshold = vector_of(c, thresholds, x->type.dtype);
  static constexpr std::pair<Mode, Fn> comparisons[] = {{Mode::Leq, Fn::Le}, {Mode::Lt, Fn::Lt}, {Mode::Gte, Fn::Ge},
                                                        {Mode::Gt, Fn::Gt},  {Mode::Eq, Fn::Eq}, {Mode::Neq, Fn::Ne}};

  Value* roots = b.constant(Tensor::vector_int(DType::i64, forest.roots));
  Value* at = b.broadcast(roots, {x->type.shape[0], static_cast<int64_t>(forest.roots.size())});
  for (int64_t level = forest.depth(c); level > 0; --level) {
    Value* value = b.gather_elements(x, b.gather(feature, at, 0), 1);
    Value* limit = b.gather(threshold, at, 0);
    Value* here = b.gather(mode, at, 0);
    Value* holds = nullptr;
    for (auto [which, fn] : comparisons) {
      if (!modes.count(which)) continue;
      Value* result = b.binary(fn, value, limit);
      holds =
          holds ? b.select(b.binary(Fn::Eq, here, b.scalar_int(DType::i64, static_cast<int64_t>(which))), result, holds)
                : result;
    }
    if (any_missing) {
      Value* taken = b.binary(Fn::Ne, b.gather(missing, at, 0), b.scalar_int(DType::i64, 0));
      holds = b.binary(Fn::Or, holds, b.binary(Fn::And, b.unary(Fn::IsNan, value), taken));
    }
    at = b.select(holds, b.gather(if_true, at, 0), b.gather(if_false, at, 0));
  }
  return at;
}

// [n, targets]
Value* score(Call& c, const Forest& forest, Value* x, int64_t targets, std::string_view aggregate) {
  Builder& b = c.b;
  const auto count = static_cast<int64_t>(forest.nodes.size());
  const bool extreme = aggregate == "MIN" || aggregate == "MAX";
  c.require(targets > 0, "n_targets is missing");
  c.require(!extreme || targets == 1, "the least or greatest of several targets is not supported");
  Tensor weights = Tensor::uninitialized(x->type.dtype, {count, targets});
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t t = 0; t < targets; ++t) weights.set_double(i * targets + t, 0);
    for (auto [target, weight] : forest.weights[static_cast<size_t>(i)]) {
      c.require(target >= 0 && target < targets, "a leaf's target doesn't exist");
      weights.set_double(i * targets + target, weight);
    }
  }
  Value* each = b.gather(b.constant(std::move(weights)), leaves_of(c, forest, x), 0);  // [n, trees, targets]
  if (aggregate == "MIN") return b.reduce(ReduceFn::Min, each, {1}, false);
  if (aggregate == "MAX") return b.reduce(ReduceFn::Max, each, {1}, false);
  if (aggregate == "AVERAGE") return b.mean(each, {1}, false);
  c.require(aggregate == "SUM", "aggregate_function must be SUM, AVERAGE, MIN or MAX");
  return b.reduce(ReduceFn::Sum, each, {1}, false);
}

Value* rows_of_features(Call& c) {
  Value* x = as_float(c, c.input(0));
  c.require(x->type.rank() == 2, "the input must be [rows, features]");
  return x;
}

// Opset 5. Membership in a set becomes a chain of equalities.
void tree_ensemble(Call& c) {
  Value* x = rows_of_features(c);
  const std::vector<int64_t> features = c.ints("nodes_featureids"), trues = c.ints("nodes_truenodeids"),
                             falses = c.ints("nodes_falsenodeids"), true_leafs = c.ints("nodes_trueleafs"),
                             false_leafs = c.ints("nodes_falseleafs"),
                             missing = c.ints("nodes_missing_value_tracks_true"), targets = c.ints("leaf_targetids"),
                             roots = c.ints("tree_roots");
  const Tensor modes = c.tensor("nodes_modes"), splits = c.tensor("nodes_splits"), leaves = c.tensor("leaf_weights");
  const size_t count = features.size();
  c.require(trues.size() == count && falses.size() == count && true_leafs.size() == count &&
                false_leafs.size() == count && (missing.empty() || missing.size() == count) &&
                modes.num_elements() == static_cast<int64_t>(count) &&
                splits.num_elements() == static_cast<int64_t>(count) &&
                leaves.num_elements() == static_cast<int64_t>(targets.size()),
            "the attributes of nodes or leaves differ in length");
  Forest forest;
  forest.nodes.resize(count);
  forest.roots = roots;
  for (size_t i = 0; i < targets.size(); ++i) {
    forest.weights[static_cast<size_t>(forest.add_leaf())] = {{targets[i], leaves.get_double(static_cast<int64_t>(i))}};
  }
  const Tensor members =
      c.attribute("membership_values") ? c.tensor("membership_values") : Tensor::uninitialized(splits.dtype(), {0});
  int64_t member = 0;
  const auto first_leaf = static_cast<int64_t>(count);
  for (size_t i = 0; i < count; ++i) {
    const int64_t mode = modes.get_int(static_cast<int64_t>(i));
    c.require(mode >= 0 && mode <= 6, "a node's mode is not known");
    Forest::Node n{features[i],
                   mode == 6 ? Mode::Eq : static_cast<Mode>(mode),
                   splits.get_double(static_cast<int64_t>(i)),
                   !missing.empty() && missing[i] != 0,
                   trues[i] + (true_leafs[i] ? first_leaf : 0),
                   falses[i] + (false_leafs[i] ? first_leaf : 0)};
    size_t at = i;
    if (mode == 6) {
      std::vector<double> set;
      for (; member < members.num_elements() && !std::isnan(members.get_double(member)); ++member) {
        set.push_back(members.get_double(member));
      }
      ++member;
      c.require(!set.empty(), "a node's set of members is missing");
      const int64_t otherwise = n.if_false;
      for (size_t k = 0; k + 1 < set.size(); ++k) {
        n.threshold = set[k];
        n.if_false = static_cast<int64_t>(forest.nodes.size());
        forest.nodes[at] = n;
        at = forest.nodes.size();
        forest.nodes.emplace_back();
      }
      n.threshold = set.back();
      n.if_false = otherwise;
    }
    forest.nodes[at] = n;
  }
  forest.weights.resize(forest.nodes.size());
  static constexpr std::string_view aggregates[] = {"AVERAGE", "SUM", "MIN", "MAX"};
  static constexpr std::string_view transforms[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
  const int64_t aggregate = c.integer("aggregate_function", 1), transform = c.integer("post_transform", 0);
  c.require(aggregate >= 0 && aggregate < 4 && transform >= 0 && transform < 5,
            "aggregate_function or post_transform is not known");
  Value* y = score(c, forest, x, c.integer("n_targets", 0), aggregates[aggregate]);
  c.set(post_transform(c, y, transforms[transform]));
}

// Such an attribute may be a tensor under another name.
std::vector<double> reals(Call& c, const std::string& name) {
  if (!c.attribute(name + "_as_tensor")) return c.reals(name);
  const Tensor t = c.tensor(name + "_as_tensor");
  std::vector<double> values;
  for (int64_t i = 0; i < t.num_elements(); ++i) values.push_back(t.get_double(i));
  return values;
}

// Nodes are named by tree and number in it. A tree's root is its first node.
void tree_ensemble_regressor(Call& c) {
  Value* x = rows_of_features(c);
  const std::vector<int64_t> trees = c.ints("nodes_treeids"), ids = c.ints("nodes_nodeids"),
                             features = c.ints("nodes_featureids"), trues = c.ints("nodes_truenodeids"),
                             falses = c.ints("nodes_falsenodeids"), missing = c.ints("nodes_missing_value_tracks_true"),
                             target_trees = c.ints("target_treeids"), target_nodes = c.ints("target_nodeids"),
                             target_ids = c.ints("target_ids");
  const std::vector<double> thresholds = reals(c, "nodes_values"), weights = reals(c, "target_weights"),
                            base = reals(c, "base_values");
  const AttributeProto* modes = c.attribute("nodes_modes", AttributeProto::Strings);
  const size_t count = ids.size();
  c.require(modes && modes->strings.size() == count && trees.size() == count && features.size() == count &&
                trues.size() == count && falses.size() == count && thresholds.size() == count &&
                (missing.empty() || missing.size() == count) && target_trees.size() == weights.size() &&
                target_nodes.size() == weights.size() && target_ids.size() == weights.size(),
            "the attributes of nodes or targets differ in length");
  static const std::map<std::string_view, Mode> names = {
      {"BRANCH_LEQ", Mode::Leq}, {"BRANCH_LT", Mode::Lt},   {"BRANCH_GTE", Mode::Gte}, {"BRANCH_GT", Mode::Gt},
      {"BRANCH_EQ", Mode::Eq},   {"BRANCH_NEQ", Mode::Neq}, {"LEAF", Mode::Leaf}};
  std::map<std::pair<int64_t, int64_t>, int64_t> number;
  Forest forest;
  std::set<int64_t> rooted;
  for (size_t i = 0; i < count; ++i) {
    if (rooted.insert(trees[i]).second) forest.roots.push_back(static_cast<int64_t>(i));
    c.require(number.emplace(std::pair{trees[i], ids[i]}, static_cast<int64_t>(i)).second, "a node occurs twice");
  }
  auto find = [&](int64_t tree, int64_t id) {
    auto it = number.find({tree, id});
    c.require(it != number.end(), "a tree's branch or target names a node that doesn't exist");
    return it->second;
  };
  forest.weights.resize(count);
  for (size_t i = 0; i < count; ++i) {
    auto mode = names.find(modes->strings[i]);
    if (mode == names.end()) c.fail("a node's mode is '" + std::string(modes->strings[i]) + "'");
    const auto self = static_cast<int64_t>(i);
    const bool leaf = mode->second == Mode::Leaf;
    forest.nodes.push_back({leaf ? 0 : features[i], mode->second, thresholds[i],
                            !leaf && !missing.empty() && missing[i] != 0, leaf ? self : find(trees[i], trues[i]),
                            leaf ? self : find(trees[i], falses[i])});
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    forest.weights[static_cast<size_t>(find(target_trees[i], target_nodes[i]))][target_ids[i]] += weights[i];
  }
  const int64_t targets = c.integer("n_targets", 1);
  Value* y = score(c, forest, x, targets, c.text("aggregate_function", "SUM"));
  if (!base.empty()) {
    c.require(static_cast<int64_t>(base.size()) == targets, "base_values are not one per target");
    y = c.b.add(y, vector_of(c, base, y->type.dtype));
  }
  c.set(c.b.cast(post_transform(c, y, c.text("post_transform", "NONE")), DType::f32));
}

}  // namespace

std::vector<Row> ml_rows() {
  return {
      {"ai.onnx.ml.ArrayFeatureExtractor", array_feature_extractor},
      {"ai.onnx.ml.Binarizer", binarizer},
      {"ai.onnx.ml.FeatureVectorizer", feature_vectorizer},
      {"ai.onnx.ml.Imputer", imputer},
      {"ai.onnx.ml.LabelEncoder", label_encoder},
      {"ai.onnx.ml.LinearRegressor", linear_regressor},
      {"ai.onnx.ml.Normalizer", normalizer},
      {"ai.onnx.ml.Scaler", scaler},
      {"ai.onnx.ml.TreeEnsemble", tree_ensemble},
      {"ai.onnx.ml.TreeEnsembleRegressor", tree_ensemble_regressor},
  };
}

}  // namespace cuvil::onnx
