// ONNX file → Graph.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.hpp"
#include "support/error.hpp"

namespace cuvil::onnx {

struct ImportOptions {
  /// Sizes to use for inputs instead of those in the file, by input name. A number, a name, or "" for a size of its
  /// own.
  std::map<std::string, std::vector<std::string>> input_shapes;
  /// Inputs that become constants.
  std::map<std::string, Tensor> input_values;
  /// Sizes of axes (input, axis) that become constants, wherever the file's name for them stands.
  std::map<std::pair<std::string, int64_t>, int64_t> input_sizes;
};

/// The graph's structure depends on the values of these inputs, and on the sizes of those axes (input, axis): import
/// again with them.
class ValuesNeeded : public CompileError {
 public:
  using Axis = std::pair<std::string, int64_t>;
  ValuesNeeded(const std::string& what, std::vector<std::string> needed, std::vector<Axis> needed_axes,
               std::vector<std::string> all)
      : CompileError(what), inputs(std::move(needed)), axes(std::move(needed_axes)), all_inputs(std::move(all)) {}
  std::vector<std::string> inputs;
  std::vector<Axis> axes;
  std::vector<std::string> all_inputs;
};

/// Both throw ValuesNeeded, and CompileError for malformed files, and one that lists every unsupported operator with
/// its nodes.
Graph import_file(const std::string& path, const ImportOptions& options = {});
/// `owner` keeps `bytes` alive; weights borrow from them. External data is only found with import_file.
Graph import_bytes(std::string_view bytes, std::shared_ptr<const void> owner, const ImportOptions& options = {});

}  // namespace cuvil::onnx
