#include "ir/attribute_spec.hpp"

#include <array>

namespace cuvil {

namespace {

constexpr size_t kOpCount = 0
#define X(name, text, kind, lo, hi, attrs, doc) +1
    CUVIL_OPS(X)
#undef X
    ;

std::vector<AttributeSpec> parse(std::string_view text) {
  std::vector<AttributeSpec> specs;
  while (!text.empty()) {
    size_t space = text.find(' ');
    std::string_view item = text.substr(0, space);
    size_t colon = item.find(':');
    AttributeSpec spec{item.substr(0, colon), item.substr(colon + 1), false};
    if (spec.type.back() == '?') {
      spec.type.remove_suffix(1);
      spec.optional = true;
    }
    specs.push_back(spec);
    text = space == std::string_view::npos ? std::string_view() : text.substr(space + 1);
  }
  return specs;
}

}  // namespace

const std::vector<AttributeSpec>& attribute_specs(Op op) {
  static const auto table = [] {
    std::array<std::vector<AttributeSpec>, kOpCount> t;
    for (size_t i = 0; i < kOpCount; ++i) t[i] = parse(info(static_cast<Op>(i)).attributes);
    return t;
  }();
  return table[static_cast<size_t>(op)];
}

std::string_view attribute_type(const Attribute& attribute) {
  // In the order of the variant's alternatives.
  static constexpr std::string_view names[] = {"int", "float", "bool", "string", "ints",   "dims",
                                               "dim", "dtype", "fn",   "reduce", "tensor", "graph"};
  static_assert(std::variant_size_v<Attribute> == std::size(names));
  return names[attribute.index()];
}

}  // namespace cuvil
