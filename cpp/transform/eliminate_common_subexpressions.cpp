#include <map>
#include <string>

#include "ir/attribute_spec.hpp"
#include "transform/pass.hpp"

namespace cuvil {

namespace {

void append(std::string& key, const void* data, size_t bytes) {
  key.append(static_cast<const char*>(data), bytes);
}

template <typename T>
void append(std::string& key, const T& v) {
  append(key, &v, sizeof v);
}

// Small tensors by content, large ones by identity of their memory.
void append_tensor(std::string& key, const Tensor& t) {
  key += t.type().str();
  if (t.num_bytes() <= 4096) {
    append(key, t.data(), t.num_bytes());
  } else {
    append(key, t.data());
  }
}

std::string key_of(const Node& node) {
  std::string key;
  append(key, node.op);
  for (const Value* operand : node.operands) append(key, operand);
  for (const auto& [name, attribute] : node.attributes) {
    key += '|' + name + '=';
    std::visit(
        [&](const auto& v) {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, std::string>)
            key += v;
          else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
            append(key, v.size());
            append(key, v.data(), v.size() * sizeof(int64_t));
          } else if constexpr (std::is_same_v<T, std::vector<Dim>>)
            key += shape_str(v);
          else if constexpr (std::is_same_v<T, Dim>)
            key += v.str();
          else if constexpr (std::is_same_v<T, Tensor>)
            append_tensor(key, v);
          else if constexpr (std::is_same_v<T, Region>)
            append(key, v.get());
          else
            append(key, v);
        },
        attribute);
  }
  return key;
}

}  // namespace

void eliminate_common_subexpressions(Graph& graph, const TransformOptions&) {
  std::map<std::string, Value*> seen;
  for (const auto& node : graph.nodes()) {
    auto [it, is_new] = seen.emplace(key_of(*node), node->result.get());
    if (!is_new) graph.replace_all_uses(node->result.get(), it->second);
  }
  graph.erase_dead_nodes();
}

}  // namespace cuvil
