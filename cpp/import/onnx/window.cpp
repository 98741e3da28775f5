#include "import/onnx/window.hpp"

#include <algorithm>

namespace cuvil::onnx {

std::vector<int64_t> per_axis(Call& c, const char* name, size_t spatial) {
  std::vector<int64_t> v = c.ints(name);
  if (v.empty()) v.assign(spatial, 1);
  bool good = v.size() == spatial;
  for (int64_t n : v) good &= n >= 1 && n <= INT32_MAX;
  if (!good) c.fail(std::string(name) + " must have one positive number per spatial axis");
  return v;
}

namespace {

// What auto_pad adds to an axis.
int64_t same_padding(Call& c, const Dim& size, int64_t window, int64_t stride, int64_t dilation) {
  int64_t reach = (window - 1) * dilation + 1;
  if (!size.is_constant()) {
    if (stride != 1) c.fail("auto_pad of an axis whose size varies, with a stride, is not supported");
    return reach - 1;
  }
  int64_t steps = ceil_div(size, stride).value() - 1;
  return std::max<int64_t>(0, (Dim(steps) * stride + reach - size).value());
}

}  // namespace

Window window_of(Call& c, const Value* x, std::vector<int64_t> size) {
  size_t spatial = size.size();
  if (x->type.shape.size() != spatial + 2 || spatial == 0) c.fail("the window must have one size per spatial axis");
  int64_t elements = 1;
  for (int64_t n : size) {
    if (n < 1 || __builtin_mul_overflow(elements, n, &elements) || elements > INT32_MAX)
      c.fail("the window's sizes are out of range");
  }
  Window w{std::move(size), per_axis(c, "strides", spatial), per_axis(c, "dilations", spatial), c.ints("pads")};
  std::string mode = c.text("auto_pad", "NOTSET");
  if (mode == "NOTSET" || mode.empty()) {
    if (w.pads.empty()) w.pads.assign(2 * spatial, 0);
    bool good = w.pads.size() == 2 * spatial;
    for (int64_t n : w.pads) good &= n >= 0 && n <= INT32_MAX;
    if (!good) c.fail("pads must have two numbers per spatial axis, none negative");
    return w;
  }
  w.pads.assign(2 * spatial, 0);
  if (mode == "VALID") return w;
  if (mode != "SAME_UPPER" && mode != "SAME_LOWER") c.fail("auto_pad '" + mode + "' does not exist");
  for (size_t i = 0; i < spatial; ++i) {
    int64_t total = same_padding(c, x->type.shape[i + 2], w.size[i], w.strides[i], w.dilations[i]);
    w.pads[i] = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
    w.pads[spatial + i] = total - w.pads[i];
  }
  return w;
}

std::vector<int64_t> kernel_size(Call& c, const Value* weight) {
  std::vector<int64_t> size;
  for (size_t i = 2; i < weight->type.shape.size(); ++i) {
    if (!weight->type.shape[i].is_constant()) c.fail("the kernel's size must be constant");
    size.push_back(weight->type.shape[i].value());
  }
  return size;
}

}  // namespace cuvil::onnx
