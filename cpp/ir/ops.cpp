#include "ir/ops.hpp"

#include <iterator>

namespace cuvil {

namespace {

constexpr OpInfo kOps[] = {
#define X(name, text, kind, lo, hi, attrs, doc) {text, OpKind::kind, lo, hi, attrs, doc},
    CUVIL_OPS(X)
#undef X
};

constexpr FnInfo kFns[] = {
#define X(name, text, arity, result, classes, doc) {text, arity, result, classes, doc},
    CUVIL_SCALAR_FNS(X)
#undef X
};

constexpr std::string_view kReduceFns[] = {
#define X(name, text, doc) text,
    CUVIL_REDUCE_FNS(X)
#undef X
};

}  // namespace

const OpInfo& info(Op op) {
  return kOps[static_cast<size_t>(op)];
}
const FnInfo& info(Fn fn) {
  return kFns[static_cast<size_t>(fn)];
}
std::string_view name_of(ReduceFn fn) {
  return kReduceFns[static_cast<size_t>(fn)];
}

std::optional<Op> op_from_name(std::string_view name) {
  for (size_t i = 0; i < std::size(kOps); ++i) {
    if (kOps[i].name == name) return static_cast<Op>(i);
  }
  return std::nullopt;
}

std::optional<Fn> fn_from_name(std::string_view name) {
  for (size_t i = 0; i < std::size(kFns); ++i) {
    if (kFns[i].name == name) return static_cast<Fn>(i);
  }
  return std::nullopt;
}

std::optional<ReduceFn> reduce_fn_from_name(std::string_view name) {
  for (size_t i = 0; i < std::size(kReduceFns); ++i) {
    if (kReduceFns[i] == name) return static_cast<ReduceFn>(i);
  }
  return std::nullopt;
}

}  // namespace cuvil
