// ONNX file → Graph.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.hpp"

namespace cuvil::onnx {

struct ImportOptions {
  /// Sizes to use for inputs instead of those in the file, by input name. A number, a name, or "" for a size of its
  /// own.
  std::map<std::string, std::vector<std::string>> input_shapes;
};

/// Both throw CompileError for malformed files, and one that lists every unsupported operator with its nodes.
Graph import_file(const std::string& path, const ImportOptions& options = {});
/// `owner` keeps `bytes` alive; weights borrow from them. External data is only found with import_file.
Graph import_bytes(std::string_view bytes, std::shared_ptr<const void> owner, const ImportOptions& options = {});

}  // namespace cuvil::onnx
