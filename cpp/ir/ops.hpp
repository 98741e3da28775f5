// The tables of the Graph: every primitive operator and every scalar function, each named once.
//
// Type inference, text form, verifier, reference evaluator, lowering and documentation are fed from these rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace cuvil {

enum class OpKind : uint8_t {
  Leaf,       // no operands
  Pointwise,  // each output element from the elements at the same (broadcast) index
  Index,      // moves elements, computes nothing; dissolves into its consumers' index expressions
  Reduce,     // folds axes
  Contract,   // sums of products
  Other,
  Host,  // runs between kernels: control flow, and sizes that depend on data
};

// Op, text name, kind, minimum and maximum number of operands (-1: any), attributes ("name:type", '?' = optional),
// meaning
//
// Attribute types: int, float, string, bool, ints, dims, dtype, fn, tensor, dim, graph.
#define CUVIL_OPS(X)                                                                                                   \
  X(Constant, "constant", Leaf, 0, 0, "value:tensor", "a tensor known at compile time")                                \
  X(DimValue, "dim_value", Leaf, 0, 0, "value:dim", "a size as a rank-0 i64 tensor")                                   \
  X(Iota, "iota", Leaf, 0, 0, "shape:dims axis:int dtype:dtype", "index along axis")                                   \
  X(Pointwise, "pointwise", Pointwise, 1, 3, "fn:fn", "scalar function of the operands, which broadcast as in NumPy")  \
  X(Cast, "cast", Pointwise, 1, 1, "dtype:dtype", "conversion; float to int truncates, to bool is != 0")               \
  X(BitCast, "bitcast", Pointwise, 1, 1, "dtype:dtype", "the same bits as another dtype of the same size")             \
  X(Reshape, "reshape", Index, 1, 1, "shape:dims", "same elements in row-major order under another shape")             \
  X(Transpose, "transpose", Index, 1, 1, "perm:ints", "out.shape[i] = in.shape[perm[i]]")                              \
  X(Broadcast, "broadcast", Index, 1, 1, "shape:dims", "NumPy broadcast to shape (right-aligned)")                     \
  X(Slice, "slice", Index, 1, 1, "starts:dims limits:dims steps:ints",                                                 \
    "per axis start, start+step, … before limit; step < 0 walks down from start to after limit (limit -1 = through " \
    "0)")                                                                                                              \
  X(Pad, "pad", Index, 1, 1, "low:dims high:dims value:float", "constant border; negative sizes are not allowed")      \
  X(Concat, "concat", Index, 1, -1, "axis:int", "joins along axis")                                                    \
  X(Gather, "gather", Index, 2, 2, "axis:int", "out[a…, i…, b…] = in[a…, index[i…], b…]; negative indices wrap")       \
  X(GatherElements, "gather_elements", Index, 2, 2, "axis:int", "out[i] = in[i with i[axis] = index[i]]")              \
  X(Reduce, "reduce", Reduce, 1, 1, "fn:reduce axes:ints keepdims:bool",                                               \
    "folds axes (sorted, unique); argmax/argmin take the first hit and one axis, and give i64")                        \
  X(Scan, "scan", Other, 1, 1, "fn:reduce axis:int exclusive:bool reverse:bool", "running sum or product")             \
  X(Scatter, "scatter", Other, 3, 3, "axis:int fn:reduce?",                                                            \
    "in with out[a…, index[i…], b…] = update[a…, i…, b…], or fn of both; equal indices in the order of i")             \
  X(ScatterElements, "scatter_elements", Other, 3, 3, "axis:int fn:reduce?",                                           \
    "in with out[i with i[axis] = index[i]] = update[i], or fn of both; equal indices in the order of i")              \
  X(SortIndices, "sort_indices", Other, 1, 1, "axis:int count:dim descending:bool",                                    \
    "i64 positions of the first count elements in sorted order; stable; NaN counts as the largest")                    \
  X(Matmul, "matmul", Contract, 2, 2, "", "[…, m, k] × […, k, n]; batch axes broadcast; both of rank ≥ 2")             \
  X(Conv, "conv", Contract, 2, 2, "strides:ints dilations:ints groups:int",                                            \
    "valid convolution [n, c, s…] ∗ [oc, c/groups, k…] of any spatial rank; padding is a separate op")                 \
  X(WindowReduce, "window_reduce", Reduce, 1, 1, "fn:reduce window:ints strides:ints dilations:ints",                  \
    "folds windows of the trailing axes, without padding")                                                             \
  X(If, "if", Host, 1, -1, "then:graph else:graph",                                                                    \
    "operand 0 ? then : else, called with the other operands; a token whose parts are `result` nodes")                 \
  X(Loop, "loop", Host, 2, -1, "body:graph carried:int",                                                               \
    "operands: most trips, condition, carried values, others. Calls body(trip, condition, carried, others), which "    \
    "gives condition, carried, rows, until the condition fails. A token: carried values, then stacks of the rows")     \
  X(Result, "result", Host, 1, 1, "index:int dtype:dtype shape:dims", "one of the results of an if or loop")           \
  X(Sizes, "sizes", Host, 1, 1, "dims:dims", "makes the elements of an i64 vector the values of new symbols; a token") \
  X(CheckEqual, "check_equal", Host, 0, 0, "lhs:dims rhs:dims message:string?",                                        \
    "fails at run time, with the message, unless lhs = rhs; a token")

enum class Op : uint8_t {
#define X(name, text, kind, lo, hi, attrs, doc) name,
  CUVIL_OPS(X)
#undef X
};

// Fn, text name, arity, result ('s' same as operands, 'b' bool), operand classes it accepts (f i b n), meaning
//
// Operands of one call have one dtype (Select: the condition is bool). Integers wrap around.
#define CUVIL_SCALAR_FNS(X)                                                                \
  X(Identity, "identity", 1, 's', "fi", "x; a kernel stores it in this shape")             \
  X(Neg, "neg", 1, 's', "fi", "-x")                                                        \
  X(Abs, "abs", 1, 's', "fi", "|x|")                                                       \
  X(Sign, "sign", 1, 's', "fi", "-1, 0, 1; NaN stays NaN")                                 \
  X(Floor, "floor", 1, 's', "f", "")                                                       \
  X(Ceil, "ceil", 1, 's', "f", "")                                                         \
  X(Trunc, "trunc", 1, 's', "f", "")                                                       \
  X(Round, "round", 1, 's', "f", "to nearest, ties to even")                               \
  X(Sqrt, "sqrt", 1, 's', "f", "")                                                         \
  X(Rsqrt, "rsqrt", 1, 's', "f", "1/sqrt(x)")                                              \
  X(Reciprocal, "reciprocal", 1, 's', "f", "1/x")                                          \
  X(Exp, "exp", 1, 's', "f", "")                                                           \
  X(Expm1, "expm1", 1, 's', "f", "")                                                       \
  X(Log, "log", 1, 's', "f", "")                                                           \
  X(Log1p, "log1p", 1, 's', "f", "")                                                       \
  X(Sin, "sin", 1, 's', "f", "")                                                           \
  X(Cos, "cos", 1, 's', "f", "")                                                           \
  X(Tanh, "tanh", 1, 's', "f", "")                                                         \
  X(Sigmoid, "sigmoid", 1, 's', "f", "1/(1+exp(-x))")                                      \
  X(Erf, "erf", 1, 's', "f", "")                                                           \
  X(Not, "not", 1, 's', "ib", "bitwise; logical for bool")                                 \
  X(IsNan, "isnan", 1, 'b', "f", "")                                                       \
  X(IsInf, "isinf", 1, 'b', "f", "")                                                       \
  X(Add, "add", 2, 's', "fi", "")                                                          \
  X(Sub, "sub", 2, 's', "fi", "")                                                          \
  X(Mul, "mul", 2, 's', "fi", "")                                                          \
  X(Div, "div", 2, 's', "fi", "integers truncate; division by zero gives 0, MIN/-1 wraps") \
  X(Mod, "mod", 2, 's', "fi", "sign of the divisor (Python); integer x mod 0 = 0")         \
  X(Rem, "rem", 2, 's', "fi", "sign of the dividend (C fmod); integer x rem 0 = 0")        \
  X(Pow, "pow", 2, 's', "fi", "C pow; negative integer exponents give 0 unless base ±1")   \
  X(Max, "max", 2, 's', "fib", "NaN if either is NaN")                                     \
  X(Min, "min", 2, 's', "fib", "NaN if either is NaN")                                     \
  X(And, "and", 2, 's', "ib", "bitwise; logical for bool")                                 \
  X(Or, "or", 2, 's', "ib", "")                                                            \
  X(Xor, "xor", 2, 's', "ib", "")                                                          \
  X(Shl, "shl", 2, 's', "i", "amounts outside [0, bits) give 0")                           \
  X(Shr, "shr", 2, 's', "i", "arithmetic for signed; amounts ≥ bits give sign fill")       \
  X(Eq, "eq", 2, 'b', "fib", "")                                                           \
  X(Ne, "ne", 2, 'b', "fib", "")                                                           \
  X(Lt, "lt", 2, 'b', "fib", "")                                                           \
  X(Le, "le", 2, 'b', "fib", "")                                                           \
  X(Gt, "gt", 2, 'b', "fib", "")                                                           \
  X(Ge, "ge", 2, 'b', "fib", "")                                                           \
  X(Select, "select", 3, 's', "fibn", "a ? b : c; a is bool")

enum class Fn : uint8_t {
#define X(name, text, arity, result, classes, doc) name,
  CUVIL_SCALAR_FNS(X)
#undef X
};

// ReduceFn, text name, meaning. Empty reductions give the identity (max/min of floats: ∓inf, of integers: the extreme
// value).
#define CUVIL_REDUCE_FNS(X)                               \
  X(Sum, "sum", "bool is not allowed; integers wrap")     \
  X(Prod, "prod", "")                                     \
  X(Max, "max", "NaN propagates; on bool: any")           \
  X(Min, "min", "NaN propagates; on bool: all")           \
  X(ArgMax, "argmax", "first; NaN counts as the largest") \
  X(ArgMin, "argmin", "first; NaN counts as the smallest")

enum class ReduceFn : uint8_t {
#define X(name, text, doc) name,
  CUVIL_REDUCE_FNS(X)
#undef X
};

struct OpInfo {
  std::string_view name;
  OpKind kind;
  int min_operands, max_operands;
  std::string_view attributes;
  std::string_view doc;
};
struct FnInfo {
  std::string_view name;
  int arity;
  char result;
  std::string_view classes;
  std::string_view doc;
};

const OpInfo& info(Op op);
const FnInfo& info(Fn fn);
std::string_view name_of(ReduceFn fn);
std::optional<Op> op_from_name(std::string_view name);
std::optional<Fn> fn_from_name(std::string_view name);
std::optional<ReduceFn> reduce_fn_from_name(std::string_view name);

}  // namespace cuvil
