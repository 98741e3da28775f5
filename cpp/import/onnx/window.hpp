// Sliding windows: what convolutions and pooling share.
#pragma once

#include "import/onnx/call.hpp"

namespace cuvil::onnx {

/// The sliding window of a convolution or pooling over the trailing axes of an input.
struct Window {
  std::vector<int64_t> size, strides, dilations;
  std::vector<int64_t> pads;  // {low…, high…}
};

/// An attribute with one positive number per spatial axis; ones where it is missing.
std::vector<int64_t> per_axis(Call& c, const char* name, size_t spatial);

/// From the node's strides, dilations, pads and auto_pad, checked.
Window window_of(Call& c, const Value* x, std::vector<int64_t> size);

/// The spatial sizes of a convolution's weight.
std::vector<int64_t> kernel_size(Call& c, const Value* weight);

}  // namespace cuvil::onnx
