// LSTM, GRU, RNN: what does not depend on the state is one product over all steps; the rest is a loop over the steps.
#include <algorithm>
#include <functional>

#include "import/onnx/control.hpp"

namespace cuvil::onnx {

namespace {

using Activation = std::function<Value*(Builder&, Value*)>;

// The activations of one direction, in the operator's order.
class Activations {
 public:
  explicit Activations(Call& c, std::vector<std::string> defaults) : c_(c), defaults_(std::move(defaults)) {
    if (const AttributeProto* a = c.attribute("activations")) {
      for (std::string_view name : a->strings) names_.emplace_back(name);
    }
    if (const AttributeProto* a = c.attribute("activation_alpha")) alphas_ = a->floats;
    if (const AttributeProto* a = c.attribute("activation_beta")) betas_ = a->floats;
  }

  std::vector<Activation> of_direction(size_t direction) {
    std::vector<Activation> list;
    for (size_t i = 0; i < defaults_.size(); ++i) {
      const size_t at = direction * defaults_.size() + i;
      if (!names_.empty() && at >= names_.size()) c_.fail("too few activations");
      list.push_back(named(names_.empty() ? defaults_[i] : names_[at]));
    }
    return list;
  }

 private:
  // Parameters are given for the activations that take one, in order.
  static double next(const std::vector<float>& list, size_t& at, double fallback) {
    return at < list.size() ? static_cast<double>(list[at++]) : fallback;
  }

  Activation named(std::string name) {
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char ch) { return std::tolower(ch); });
    if (name == "relu") return [](Builder& b, Value* x) { return b.relu(x); };
    if (name == "tanh") return [](Builder& b, Value* x) { return b.unary(Fn::Tanh, x); };
    if (name == "sigmoid") return [](Builder& b, Value* x) { return b.unary(Fn::Sigmoid, x); };
    if (name == "softplus") return [](Builder& b, Value* x) { return b.softplus(x); };
    if (name == "softsign") {
      return [](Builder& b, Value* x) { return b.div(x, b.binary(Fn::Add, b.unary(Fn::Abs, x), 1)); };
    }
    if (name == "leakyrelu" || name == "elu" || name == "thresholdedrelu") {
      const double alpha = next(alphas_, alpha_, name == "leakyrelu" ? 0.01 : 1);
      return [alpha, name](Builder& b, Value* x) {
        if (name == "thresholdedrelu") {
          return b.select(b.binary(Fn::Gt, x, b.scalar(x->type.dtype, alpha)), x, b.scalar(x->type.dtype, 0));
        }
        Value* negative = name == "elu" ? b.unary(Fn::Expm1, x) : x;
        Value* zero = b.scalar(x->type.dtype, 0);
        return b.select(b.binary(Fn::Ge, x, zero), x, b.binary(Fn::Mul, negative, alpha));
      };
    }
    if (name == "affine" || name == "scaledtanh" || name == "hardsigmoid") {
      const bool hard = name == "hardsigmoid";
      const double alpha = next(alphas_, alpha_, hard ? 0.2 : 1), beta = next(betas_, beta_,
                                                                              hard               ? 0.5
                                                                              : name == "affine" ? 0
                                                                                                 : 1);
      return [alpha, beta, name](Builder& b, Value* x) {
        if (name == "scaledtanh") return b.binary(Fn::Mul, b.unary(Fn::Tanh, b.binary(Fn::Mul, x, beta)), alpha);
        Value* line = b.binary(Fn::Add, b.binary(Fn::Mul, x, alpha), beta);
        return name == "affine" ? line : b.clamp(line, 0, 1);
      };
    }
    c_.fail("activation '" + name + "' is not known");
  }

  Call& c_;
  std::vector<std::string> defaults_, names_;
  std::vector<float> alphas_, betas_;
  size_t alpha_ = 0, beta_ = 0;
};

// One direction's operands. Weights are [gates · hidden, …]; projected is x Wᵀ + b for all steps, [s, n, gates ·
// hidden].
struct Direction {
  Value *projected, *recurrent, *recurrent_bias;
  std::vector<Value*> states;  // [n, hidden]
  Value* peepholes;            // [3 · hidden], or null
  std::vector<Activation> activations;
};

struct Cell {
  int64_t gates = 1;
  size_t states = 1;
  std::vector<std::string> activations;
  /// The next states, the first of which is the output. `use` gives the region's own value of a direction's operand.
  std::function<std::vector<Value*>(Builder&, const Direction&, Value* projected, const std::vector<Value*>& states,
                                    const std::function<Value*(Value*)>& use)>
      step;
};

Value* part(Builder& b, Value* x, int64_t index, const Dim& size) {
  return b.slice_axis(x, -1, size * index, size * (index + 1));
}

void recurrent(Call& c, const Cell& cell) {
  Value* x = c.input(0);
  Value* w = c.input(1);
  Value* r = c.input(2);
  Value* bias = c.optional_input(3);
  Value* lengths = c.optional_input(4);
  c.require(x->type.rank() == 3 && w->type.rank() == 3 && r->type.rank() == 3, "X, W and R must have rank 3");
  const bool batch_first = c.integer("layout", 0) != 0;
  if (batch_first) x = c.b.transpose(x, {1, 0, 2});
  const Dim steps = x->type.shape[0], batch = x->type.shape[1], hidden = r->type.shape[2];
  const std::string direction = c.text("direction", "forward");
  const size_t directions = direction == "bidirectional" ? 2 : 1;
  c.require(w->type.shape[0] == Dim(static_cast<int64_t>(directions)), "W has another number of directions");
  const int64_t gates = cell.gates;
  c.require(r->type.shape[1] == hidden * gates && w->type.shape[1] == hidden * gates, "W and R do not fit together");
  Activations activations(c, cell.activations);
  std::vector<Value*> ys;
  std::vector<std::vector<Value*>> lasts(cell.states);
  for (size_t d = 0; d < directions; ++d) {
    const auto at = static_cast<int64_t>(d);
    auto of = [&](Value* v) {
      Shape rest(v->type.shape.begin() + 1, v->type.shape.end());
      return c.b.reshape(c.b.slice_axis(v, 0, at, at + 1), rest);
    };
    Direction own;
    own.activations = activations.of_direction(d);
    own.recurrent = c.b.transpose_last(of(r));
    own.recurrent_bias = bias ? part(c.b, of(bias), 1, hidden * gates) : nullptr;
    own.projected = c.b.matmul(x, c.b.transpose_last(of(w)));
    if (bias) own.projected = c.b.add(own.projected, part(c.b, of(bias), 0, hidden * gates));
    for (size_t s = 0; s < cell.states; ++s) {
      Value* first = c.optional_input(5 + s);
      if (first && batch_first) first = c.b.transpose(first, {1, 0, 2});
      own.states.push_back(first ? of(first) : c.b.full({batch, hidden}, x->type.dtype, 0));
    }
    own.peepholes = cell.states == 2 && c.optional_input(7) ? of(c.input(7)) : nullptr;
    const bool backward = direction == "reverse" || d == 1;
    auto step = [&](Builder& b, Value* index, const std::vector<Value*>& states,
                    const std::function<Value*(Value*)>& use) {
      if (backward) index = b.sub(b.dim_value(steps - 1), index);
      std::vector<Value*> next = cell.step(b, own, b.gather(use(own.projected), index, 0), states, use);
      Value* y = next[0];
      if (lengths) {
        // Beyond a row's length its state stays as it is, and its output is 0.
        Value* inside = b.binary(Fn::Lt, index, b.cast(use(lengths), DType::i64));
        inside = b.reshape(inside, {batch, 1});
        y = b.select(inside, y, b.scalar(y->type.dtype, 0));
        for (size_t s = 0; s < next.size(); ++s) next[s] = b.select(inside, next[s], states[s]);
      }
      next.push_back(y);
      return next;
    };
    std::vector<Value*> results;
    if (steps == Dim(1)) {
      results = step(c.b, c.b.scalar_int(DType::i64, 0), own.states, [](Value* v) { return v; });
      results.back() = c.b.unsqueeze(results.back(), {0});
    } else {
      results = add_loop(c, loop_over(c, steps, own.states), [&](Builder& b, const std::vector<Value*>& inputs) {
        std::vector<Value*> next =
            step(b, inputs[0], {inputs.begin() + 2, inputs.end()}, [&](Value* v) { return c.around.capture(v); });
        next.insert(next.begin(), b.scalar_int(DType::boolean, 1));
        return next;
      });
    }
    Value* y = results.back();
    if (backward) y = c.b.slice_axis(y, 0, steps - 1, -1, -1);
    ys.push_back(c.b.unsqueeze(y, {1}));
    for (size_t s = 0; s < cell.states; ++s) lasts[s].push_back(c.b.unsqueeze(results[s], {0}));
  }
  Value* y = c.b.concat(ys, 1);
  c.set(batch_first ? c.b.transpose(y, {2, 0, 1, 3}) : y);
  for (const std::vector<Value*>& last : lasts) {
    Value* v = c.b.concat(last, 0);
    c.set(batch_first ? c.b.transpose(v, {1, 0, 2}) : v);
  }
}

Value* recurrent_product(Builder& b, const Direction& d, Value* h, const std::function<Value*(Value*)>& use) {
  Value* y = b.matmul(h, use(d.recurrent));
  return d.recurrent_bias ? b.add(y, use(d.recurrent_bias)) : y;
}

// Before an activation, values are clipped to [-clip, clip].
std::function<Value*(Builder&, Value*)> clip_of(Call& c) {
  const double limit = c.real("clip", 0);
  return [limit](Builder& b, Value* x) { return limit > 0 ? b.clamp(x, -limit, limit) : x; };
}

void lstm(Call& c) {
  Cell cell{4, 2, {"Sigmoid", "Tanh", "Tanh"}, {}};
  const bool coupled = c.integer("input_forget", 0) != 0;
  const auto clip = clip_of(c);
  cell.step = [=](Builder& b, const Direction& d, Value* projected, const std::vector<Value*>& states,
                  const auto& use) {
    Value *h = states[0], *old = states[1];
    const Dim size = h->type.shape[1];
    Value* gates = b.add(projected, recurrent_product(b, d, h, use));
    auto gate = [&](int64_t index, int64_t peephole, Value* cell_state) {
      Value* g = part(b, gates, index, size);
      if (d.peepholes) g = b.add(g, b.mul(part(b, use(d.peepholes), peephole, size), cell_state));
      return d.activations[0](b, clip(b, g));
    };
    Value* input = gate(0, 0, old);
    Value* forget = coupled ? b.sub(b.scalar(h->type.dtype, 1), input) : gate(2, 2, old);
    Value* candidate = d.activations[1](b, clip(b, part(b, gates, 3, size)));
    Value* now = b.add(b.mul(forget, old), b.mul(input, candidate));
    Value* output = gate(1, 1, now);
    return std::vector<Value*>{b.mul(output, d.activations[2](b, clip(b, now))), now};
  };
  recurrent(c, cell);
}

void gru(Call& c) {
  Cell cell{3, 1, {"Sigmoid", "Tanh"}, {}};
  const bool reset_after = c.integer("linear_before_reset", 0) != 0;
  const auto clip = clip_of(c);
  cell.step = [=](Builder& b, const Direction& d, Value* projected, const std::vector<Value*>& states,
                  const auto& use) {
    Value* h = states[0];
    const Dim size = h->type.shape[1];
    auto columns = [&](Value* v, int64_t from, int64_t to) { return b.slice_axis(v, -1, size * from, size * to); };
    Value* candidate;
    Value* both;  // of the update and reset gates
    if (reset_after) {
      Value* product = recurrent_product(b, d, h, use);
      both = d.activations[0](b, clip(b, b.add(columns(projected, 0, 2), columns(product, 0, 2))));
      Value* kept = b.mul(columns(both, 1, 2), columns(product, 2, 3));
      candidate = b.add(columns(projected, 2, 3), kept);
    } else {
      auto product = [&](Value* v, int64_t from, int64_t to) {
        Value* y = b.matmul(v, columns(use(d.recurrent), from, to));
        return d.recurrent_bias ? b.add(y, columns(use(d.recurrent_bias), from, to)) : y;
      };
      both = d.activations[0](b, clip(b, b.add(columns(projected, 0, 2), product(h, 0, 2))));
      candidate = b.add(columns(projected, 2, 3), product(b.mul(columns(both, 1, 2), h), 2, 3));
    }
    candidate = d.activations[1](b, clip(b, candidate));
    Value* update = columns(both, 0, 1);
    Value* fresh = b.mul(b.sub(b.scalar(h->type.dtype, 1), update), candidate);
    return std::vector<Value*>{b.add(fresh, b.mul(update, h))};
  };
  recurrent(c, cell);
}

void rnn(Call& c) {
  Cell cell{1, 1, {"Tanh"}, {}};
  const auto clip = clip_of(c);
  cell.step = [=](Builder& b, const Direction& d, Value* projected, const std::vector<Value*>& states,
                  const auto& use) {
    Value* sum = b.add(projected, recurrent_product(b, d, states[0], use));
    return std::vector<Value*>{d.activations[0](b, clip(b, sum))};
  };
  recurrent(c, cell);
}

}  // namespace

std::vector<Row> recurrent_rows() {
  return {{"GRU", gru}, {"LSTM", lstm}, {"RNN", rnn}};
}

}  // namespace cuvil::onnx
