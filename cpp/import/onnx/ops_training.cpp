// Losses, and the steps of optimisers.
#include <numeric>

#include "import/onnx/call.hpp"

namespace cuvil::onnx {

namespace {

// -weight[target] · log_probability[target], reduced; positions whose target is ignore_index count for nothing.
Value* negative_log_likelihood(Call& c, Value* log_probability, Value* target, Value* weight) {
  Builder& b = c.b;
  const DType t = log_probability->type.dtype;
  target = b.cast(target, DType::i64);
  Value* ignored = nullptr;
  if (c.attribute("ignore_index")) {
    ignored = b.binary(Fn::Eq, target, b.scalar_int(DType::i64, c.integer("ignore_index", 0)));
    target = b.select(ignored, b.scalar_int(DType::i64, 0), target);
  }
  Value* picked = b.gather_elements(log_probability, b.unsqueeze(target, {1}), 1);
  Value* loss = b.unary(Fn::Neg, b.squeeze(picked, {1}));
  Value* factor = weight ? b.gather(weight, target, 0) : nullptr;
  if (ignored) {
    Value* one = factor ? factor : b.scalar(t, 1);
    factor = b.select(ignored, b.scalar(t, 0), one);
    loss = b.select(ignored, b.scalar(t, 0), loss);  // not 0 · inf
  }
  if (factor) loss = b.mul(loss, factor);
  const std::string reduction = c.text("reduction", "mean");
  if (reduction == "none") return loss;
  std::vector<int64_t> all(loss->type.shape.size());
  std::iota(all.begin(), all.end(), 0);
  if (reduction == "sum") return b.reduce(ReduceFn::Sum, loss, all, false);
  c.require(reduction == "mean", "reduction is not known");
  if (!factor) return b.mean(loss, all, false);
  factor = b.broadcast(factor, loss->type.shape);
  return b.div(b.reduce(ReduceFn::Sum, loss, all, false), b.reduce(ReduceFn::Sum, factor, all, false));
}

void negative_log_likelihood_loss(Call& c) {
  c.set(negative_log_likelihood(c, c.input(0), c.input(1), c.optional_input(2)));
}

void softmax_cross_entropy_loss(Call& c) {
  Value* log_probability = c.b.softmax(c.input(0), 1, true);
  c.set(negative_log_likelihood(c, log_probability, c.input(1), c.optional_input(2)));
  c.set(log_probability);
}

// Inputs are the rate, the step's number, then `groups` groups of tensors: values, gradients, states. The update gives
// the new value and states of each; results are grouped likewise, without gradients.
template <typename F>
void optimise(Call& c, size_t groups, F update) {
  c.require(c.input_count() > 2 && (c.input_count() - 2) % groups == 0, "has a wrong number of inputs");
  const size_t n = (c.input_count() - 2) / groups;
  c.results.assign(n * (groups - 1), nullptr);
  for (size_t i = 0; i < n; ++i) {
    std::vector<Value*> tensors;
    for (size_t g = 0; g < groups; ++g) tensors.push_back(c.input(2 + g * n + i));
    const std::vector<Value*> fresh = update(tensors);
    for (size_t g = 0; g < fresh.size(); ++g) c.results[g * n + i] = fresh[g];
  }
}

Value* regularized(Call& c, Value* value, Value* gradient) {
  return c.b.add(c.b.binary(Fn::Mul, value, c.real("norm_coefficient", 0)), gradient);
}

void adam(Call& c) {
  Builder& b = c.b;
  const double alpha = c.real("alpha", 0.9), beta = c.real("beta", 0.999), epsilon = c.real("epsilon", 1e-6);
  const double shrink = 1 - c.real("norm_coefficient_post", 0);
  optimise(c, 4, [&](const std::vector<Value*>& t) {
    const DType dtype = t[0]->type.dtype;
    Value* gradient = regularized(c, t[0], t[1]);
    auto blend = [&](Value* old, Value* now, double keep) {
      return b.add(b.binary(Fn::Mul, old, keep), b.binary(Fn::Mul, now, 1 - keep));
    };
    Value* first = blend(t[2], gradient, alpha);
    Value* second = blend(t[3], b.mul(gradient, gradient), beta);
    Value* step = b.cast(c.input(1), dtype);
    auto correction = [&](double base) {
      return b.sub(b.scalar(dtype, 1), b.binary(Fn::Pow, b.scalar(dtype, base), step));
    };
    Value* rate = b.cast(c.input(0), dtype);
    Value* adjusted = b.div(b.mul(rate, b.unary(Fn::Sqrt, correction(beta))), correction(alpha));
    rate = b.select(b.binary(Fn::Gt, step, b.scalar(dtype, 0)), adjusted, rate);
    Value* root = b.binary(Fn::Add, b.unary(Fn::Sqrt, second), epsilon);
    Value* value = b.sub(t[0], b.mul(rate, b.div(first, root)));
    return std::vector<Value*>{b.binary(Fn::Mul, value, shrink), first, second};
  });
}

void adagrad(Call& c) {
  Builder& b = c.b;
  optimise(c, 3, [&](const std::vector<Value*>& t) {
    const DType dtype = t[0]->type.dtype;
    Value* gradient = regularized(c, t[0], t[1]);
    Value* sum = b.add(t[2], b.mul(gradient, gradient));
    Value* decay = b.binary(Fn::Add, b.binary(Fn::Mul, b.cast(c.input(1), dtype), c.real("decay_factor", 0)), 1);
    Value* rate = b.div(b.cast(c.input(0), dtype), decay);
    Value* root = b.binary(Fn::Add, b.unary(Fn::Sqrt, sum), c.real("epsilon", 1e-6));
    return std::vector<Value*>{b.sub(t[0], b.div(b.mul(rate, gradient), root)), sum};
  });
}

void momentum(Call& c) {
  Builder& b = c.b;
  const double alpha = c.real("alpha", 0), beta = c.real("beta", 0);
  const std::string mode = c.text("mode", "standard");
  c.require(mode == "standard" || mode == "nesterov", "mode is not known");
  optimise(c, 3, [&](const std::vector<Value*>& t) {
    const DType dtype = t[0]->type.dtype;
    Value* gradient = regularized(c, t[0], t[1]);
    Value* later = b.binary(Fn::Gt, b.cast(c.input(1), DType::i64), b.scalar_int(DType::i64, 0));
    Value* factor = b.select(later, b.scalar(dtype, beta), b.scalar(dtype, 1));
    Value* speed = b.add(b.binary(Fn::Mul, t[2], alpha), b.mul(factor, gradient));
    Value* move = mode == "standard" ? speed : b.add(gradient, b.binary(Fn::Mul, speed, alpha));
    return std::vector<Value*>{b.sub(t[0], b.mul(b.cast(c.input(0), dtype), move)), speed};
  });
}

}  // namespace

std::vector<Row> training_rows() {
  return {
      {"NegativeLogLikelihoodLoss", negative_log_likelihood_loss},
      {"SoftmaxCrossEntropyLoss", softmax_cross_entropy_loss},
      {"ai.onnx.preview.training.Adagrad", adagrad},
      {"ai.onnx.preview.training.Adam", adam},
      {"ai.onnx.preview.training.Momentum", momentum},
  };
}

}  // namespace cuvil::onnx
