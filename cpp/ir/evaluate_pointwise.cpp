// Scalar functions. Floats compute in their own precision (half types in f32, rounded after each function), with the C
// library as the authority; integers wrap.
#include <cmath>
#include <limits>
#include <type_traits>

#include "ir/evaluate_ops.hpp"
#include "support/error.hpp"

namespace cuvil {

namespace {

template <typename T>
using Unsigned = std::make_unsigned_t<T>;

template <typename T>
T wrap(Unsigned<T> v) {
  return static_cast<T>(v);
}

template <typename T>
T float_unary(Fn fn, T x) {
  switch (fn) {
    case Fn::Identity:
      return x;
    case Fn::Neg:
      return -x;
    case Fn::Abs:
      return std::fabs(x);
    case Fn::Sign:
      return std::isnan(x) ? x : static_cast<T>((x > 0) - (x < 0));
    case Fn::Floor:
      return std::floor(x);
    case Fn::Ceil:
      return std::ceil(x);
    case Fn::Trunc:
      return std::trunc(x);
    case Fn::Round:
      return std::nearbyint(x);
    case Fn::Sqrt:
      return std::sqrt(x);
    case Fn::Rsqrt:
      return T(1) / std::sqrt(x);
    case Fn::Reciprocal:
      return T(1) / x;
    case Fn::Exp:
      return std::exp(x);
    case Fn::Expm1:
      return std::expm1(x);
    case Fn::Log:
      return std::log(x);
    case Fn::Log1p:
      return std::log1p(x);
    case Fn::Sin:
      return std::sin(x);
    case Fn::Cos:
      return std::cos(x);
    case Fn::Tanh:
      return std::tanh(x);
    case Fn::Sigmoid:
      return static_cast<T>(1.0 / (1.0 + std::exp(-static_cast<double>(x))));
    case Fn::Erf:
      return std::erf(x);
    default:
      throw InternalError("not a unary function of floats");
  }
}

template <typename T>
T extremum(bool maximum, T x, T y) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(x)) return x;
    if (std::isnan(y)) return y;
  }
  return maximum ? (x > y ? x : y) : (x < y ? x : y);
}

template <typename T>
T float_binary(Fn fn, T x, T y) {
  switch (fn) {
    case Fn::Add:
      return x + y;
    case Fn::Sub:
      return x - y;
    case Fn::Mul:
      return x * y;
    case Fn::Div:
      return x / y;
    case Fn::Rem:
      return std::fmod(x, y);
    case Fn::Mod: {
      T r = std::fmod(x, y);
      if (r != 0 && (r < 0) != (y < 0)) return r + y;
      return r == 0 ? std::copysign(r, y) : r;
    }
    case Fn::Pow:
      return std::pow(x, y);
    case Fn::Max:
      return extremum(true, x, y);
    case Fn::Min:
      return extremum(false, x, y);
    default:
      throw InternalError("not a binary function of floats");
  }
}

template <typename T>
T integer_unary(Fn fn, T x) {
  using U = Unsigned<T>;
  switch (fn) {
    case Fn::Identity:
      return x;
    case Fn::Neg:
      return wrap<T>(static_cast<U>(U(0) - static_cast<U>(x)));
    case Fn::Abs:
      return x < 0 ? wrap<T>(static_cast<U>(U(0) - static_cast<U>(x))) : x;
    case Fn::Sign:
      return static_cast<T>((x > 0) - (x < 0));
    case Fn::Not:
      return static_cast<T>(~x);
    default:
      throw InternalError("not a unary function of integers");
  }
}

template <typename T>
T integer_power(T x, T y) {
  using U = Unsigned<T>;
  if (y < 0) {
    if (x == 1) return 1;
    if constexpr (std::is_signed_v<T>) {
      if (x == T(-1)) return y % 2 == 0 ? T(1) : T(-1);
    }
    return 0;
  }
  U result = 1, base = static_cast<U>(x), rest = static_cast<U>(y);
  for (; rest; rest = static_cast<U>(rest >> 1)) {
    if (rest & 1) result = static_cast<U>(result * base);
    base = static_cast<U>(base * base);
  }
  return wrap<T>(result);
}

template <typename T>
T integer_binary(Fn fn, T x, T y) {
  using U = Unsigned<T>;
  const auto a = static_cast<U>(x), b = static_cast<U>(y);
  constexpr int bits = static_cast<int>(sizeof(T) * 8);
  bool overflow = std::is_signed_v<T> && y == static_cast<T>(-1);
  switch (fn) {
    case Fn::Add:
      return wrap<T>(static_cast<U>(a + b));
    case Fn::Sub:
      return wrap<T>(static_cast<U>(a - b));
    case Fn::Mul:
      return wrap<T>(static_cast<U>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)));
    case Fn::Div:
      return y == 0 ? T(0) : overflow ? wrap<T>(static_cast<U>(U(0) - a)) : static_cast<T>(x / y);
    case Fn::Rem:
      return y == 0 || overflow ? T(0) : static_cast<T>(x % y);
    case Fn::Mod: {
      if (y == 0 || overflow) return 0;
      T r = static_cast<T>(x % y);
      return r != 0 && (r < 0) != (y < 0) ? static_cast<T>(r + y) : r;
    }
    case Fn::Pow:
      return integer_power(x, y);
    case Fn::Max:
      return extremum(true, x, y);
    case Fn::Min:
      return extremum(false, x, y);
    case Fn::And:
      return static_cast<T>(a & b);
    case Fn::Or:
      return static_cast<T>(a | b);
    case Fn::Xor:
      return static_cast<T>(a ^ b);
    case Fn::Shl:
      return b >= static_cast<U>(bits) ? T(0) : wrap<T>(static_cast<U>(static_cast<uint64_t>(a) << b));
    case Fn::Shr:
      if (b >= static_cast<U>(bits)) return x < 0 ? static_cast<T>(-1) : T(0);
      return static_cast<T>(x >> b);
    default:
      throw InternalError("not a binary function of integers");
  }
}

template <typename T>
bool compare(Fn fn, T x, T y) {
  switch (fn) {
    case Fn::Eq:
      return x == y;
    case Fn::Ne:
      return x != y;
    case Fn::Lt:
      return x < y;
    case Fn::Le:
      return x <= y;
    case Fn::Gt:
      return x > y;
    default:
      return x >= y;
  }
}

bool boolean_function(Fn fn, bool x, bool y) {
  switch (fn) {
    case Fn::Not:
      return !x;
    case Fn::And:
    case Fn::Min:
      return x && y;
    case Fn::Or:
    case Fn::Max:
      return x || y;
    case Fn::Xor:
      return x != y;
    default:
      return compare<int>(fn, x, y);
  }
}

// How one element is read and written: T in memory, C in computation.
template <DType D>
struct Element;
#define X(name, type, bytes, kind)   \
  template <>                        \
  struct Element<DType::name> {      \
    using Memory = type;             \
    using Compute = type;            \
    static Compute load(Memory m) {  \
      return m;                      \
    }                                \
    static Memory store(Compute c) { \
      return c;                      \
    }                                \
  };
CUVIL_ARITHMETIC_DTYPES(X)
#undef X
template <>
struct Element<DType::f16> {
  using Memory = uint16_t;
  using Compute = float;
  static Compute load(Memory m) { return half_to_float(m); }
  static Memory store(Compute c) { return float_to_half(c); }
};
template <>
struct Element<DType::bf16> {
  using Memory = uint16_t;
  using Compute = float;
  static Compute load(Memory m) { return bfloat16_to_float(m); }
  static Memory store(Compute c) { return float_to_bfloat16(c); }
};

template <typename F>
void with_numeric(DType t, F f) {
  switch (t) {
#define X(name, type, bytes, kind) \
  case DType::name:                \
    return f(Element<DType::name>{});
    CUVIL_ARITHMETIC_DTYPES(X)
    X(f16, uint16_t, 2, 'f')
    X(bf16, uint16_t, 2, 'f')
#undef X
    default:
      throw InternalError("functions of " + std::string(name_of(t)));
  }
}

template <typename F>
void walk(const EvaluationContext& c, const Tensor& out, F f) {
  auto strides_of = [&](size_t i) {
    return broadcast_strides(c.operand(std::min(i, c.operands.size() - 1)).shape(), out.shape());
  };
  for_each_index<3>(out.shape(), {strides_of(0), strides_of(1), strides_of(2)}, {0, 0, 0}, f);
}

Tensor select(const EvaluationContext& c) {
  Tensor out(c.node.type().dtype, c.result_shape());
  size_t bytes = size_of(out.dtype());
  auto* to = static_cast<char*>(out.mutable_data());
  const auto* condition = c.operand(0).as<uint8_t>();
  const auto* yes = static_cast<const char*>(c.operand(1).data());
  const auto* no = static_cast<const char*>(c.operand(2).data());
  walk(c, out, [&](int64_t i, const std::array<int64_t, 3>& at) {
    const char* from =
        condition[at[0]] ? yes + at[1] * static_cast<int64_t>(bytes) : no + at[2] * static_cast<int64_t>(bytes);
    std::memcpy(to + i * static_cast<int64_t>(bytes), from, bytes);
  });
  return out;
}

Tensor cast(const EvaluationContext& c) {
  const Tensor& x = c.operand(0);
  DType to = c.node.type().dtype;
  Tensor out(to, x.shape());
  int64_t n = x.num_elements();
  bool integers = !is_float(x.dtype()) && !is_float(to);
  for (int64_t i = 0; i < n; ++i) {
    if (integers || x.dtype() == DType::i64 || x.dtype() == DType::u64) {
      int64_t v = x.get_int(i);
      if (to == DType::boolean)
        out.set_int(i, v != 0);
      else if (is_float(to) && x.dtype() == DType::u64)
        out.set_double(i, static_cast<double>(static_cast<uint64_t>(v)));
      else if (to == DType::f32)
        out.mutable_as<float>()[i] = static_cast<float>(v);
      else
        out.set_int(i, v);
      continue;
    }
    double v = x.get_double(i);
    if (is_float(to) || to == DType::boolean) {
      out.set_double(i, v);
      continue;
    }
    // Truncates, and saturates at the type's ends; NaN gives 0.
    double bits = static_cast<double>(size_of(to) * 8);
    double low = is_signed_int(to) ? -std::ldexp(1.0, static_cast<int>(bits) - 1) : 0;
    double high = std::ldexp(1.0, static_cast<int>(is_signed_int(to) ? bits - 1 : bits));
    if (std::isnan(v))
      out.set_int(i, 0);
    else if (v >= high)
      out.set_int(i, to == DType::u64 ? -1 : to == DType::i64 ? INT64_MAX : static_cast<int64_t>(high) - 1);
    else if (v <= low)
      out.set_int(i, static_cast<int64_t>(low));
    else if (to == DType::u64)
      out.set_int(i, static_cast<int64_t>(static_cast<uint64_t>(v)));
    else
      out.set_int(i, static_cast<int64_t>(v));
  }
  return out;
}

Tensor bitcast(const EvaluationContext& c) {
  const Tensor& x = c.operand(0);
  Tensor out(c.node.type().dtype, x.shape());
  if (out.num_bytes()) std::memcpy(out.mutable_data(), x.data(), out.num_bytes());
  if (out.dtype() == DType::boolean) {
    for (int64_t i = 0; i < out.num_elements(); ++i) out.set_int(i, out.get_int(i));
  }
  return out;
}

}  // namespace

Tensor evaluate_pointwise(const EvaluationContext& c) {
  if (c.node.op == Op::BitCast) return bitcast(c);
  if (c.node.op == Op::Cast) return cast(c);
  Fn fn = c.node.fn();
  if (fn == Fn::Select) return select(c);
  DType operand = c.operand(0).dtype();
  Tensor out(c.node.type().dtype, c.result_shape());
  const bool unary = c.operands.size() == 1, to_bool = info(fn).result == 'b';
  const void* p0 = c.operand(0).data();
  const void* p1 = unary ? p0 : c.operand(1).data();
  if (operand == DType::boolean) {
    const auto* x = static_cast<const uint8_t*>(p0);
    const auto* y = static_cast<const uint8_t*>(p1);
    auto* to = out.mutable_as<uint8_t>();
    walk(c, out, [&](int64_t i, const std::array<int64_t, 3>& at) {
      to[i] = boolean_function(fn, x[at[0]] != 0, y[at[1]] != 0);
    });
    return out;
  }
  with_numeric(operand, [&](auto element) {
    using E = decltype(element);
    using C = typename E::Compute;
    const auto* x = static_cast<const typename E::Memory*>(p0);
    const auto* y = static_cast<const typename E::Memory*>(p1);
    auto* bits = out.mutable_as<uint8_t>();
    auto* to = out.mutable_as<typename E::Memory>();
    walk(c, out, [&](int64_t i, const std::array<int64_t, 3>& at) {
      C a = E::load(x[at[0]]), b = E::load(y[at[1]]);
      if (to_bool) {
        if constexpr (std::is_floating_point_v<C>) {
          bits[i] = fn == Fn::IsNan ? std::isnan(a) : fn == Fn::IsInf ? std::isinf(a) : compare(fn, a, b);
        } else {
          bits[i] = compare(fn, a, b);
        }
      } else if constexpr (std::is_floating_point_v<C>) {
        to[i] = E::store(unary ? float_unary(fn, a) : float_binary(fn, a, b));
      } else {
        to[i] = unary ? integer_unary(fn, a) : integer_binary(fn, a, b);
      }
    });
  });
  return out;
}

}  // namespace cuvil
