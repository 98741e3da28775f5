// Kernels: loop programs over scalar expressions, the form between Graph and LLVM IR.
//
// A kernel runs its phases for every point of its outer loops. A phase loops over its own loops and either folds values
// into reductions, which later phases and stores may read, or stores. So
//   pointwise        = outer loops, one phase without loops that stores
//   softmax, norms   = outer loops over rows, phases over the row: reduce, reduce, store
//   pooling, conv, … = outer loops over the output, one phase over the window or k, one phase without loops that stores
// All indexing is explicit: a load's offset is a Dim over loop variables and symbols. Nothing here knows an ISA.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.hpp"
#include "lower/cost_model.hpp"

namespace cuvil {

struct Expr;
using ExprPtr = std::shared_ptr<const Expr>;

/// lower ≤ value < upper
struct RangeCheck {
  Dim value, lower, upper;
};

/// One scalar value at one point of the loops. Immutable; shared subexpressions are shared nodes.
struct Expr {
  enum class Kind {
    Constant,   // number (floats), integer (ints, bool)
    Index,      // index, as a number of dtype
    Load,       // buffer[index]
    Apply,      // fn(args)
    Cast,       // args[0] converted to dtype
    BitCast,    // args[0]'s bits as dtype
    Guard,      // all checks hold ? args[0] : args[1]; loads under args[0] only happen where they hold
    Reduction,  // the value of reduction `id`
  };
  Kind kind = Kind::Constant;
  DType dtype = DType::f32;
  double number = 0;
  int64_t integer = 0;
  Dim index;
  int buffer = -1;
  Fn fn = Fn::Add;
  int id = -1;
  std::vector<ExprPtr> args;
  std::vector<RangeCheck> checks;
};

struct Loop {
  Dim variable;  // a loop variable, or 0 when the extent is 1
  Dim extent;
  std::optional<Dim> limit;  // the loop ends before this value too; it may depend on enclosing loops
};

struct ReductionDef {
  ReduceFn fn = ReduceFn::Sum;
  DType dtype = DType::f32;
  ExprPtr value;
  Dim position;  // ArgMax/ArgMin: the index along the reduced axis
};

struct StoreDef {
  int buffer = -1;
  Dim offset;
  ExprPtr value;
  std::optional<ReduceFn> combine = std::nullopt;  // folds the value into the element that is there
};

/// Sorts one row of keys: order[i · stride] becomes the position of the element that comes i-th, for i < count. Stable;
/// NaN counts as the largest number, and -0 as 0.
struct SortDef {
  struct Row {
    int buffer = -1;
    Dim offset, stride;
  };
  Row keys, order;
  Dim size, count;
  bool descending = false;
  int scratch = -1;  // of i64
  Dim scratch_offset;
  /// Rows no longer than this, and counts no larger, are sorted by insertion.
  static constexpr int64_t kMostInserted = 32, kMostSelected = 64;
  /// i64 elements of scratch per row.
  static Dim scratch_elements(DType keys, const Dim& size, const Dim& count);
};

struct Phase {
  std::vector<Loop> loops;
  std::vector<int> reductions;  // ids folded in this phase
  std::vector<StoreDef> stores;
  bool ordered = false;  // different steps of its loops may store to one place: they run in order, one at a time
  std::optional<SortDef> sort = std::nullopt;
};

struct KernelBuffer {
  DType dtype = DType::f32;
  bool written = false;
};

/// An integer read from memory that takes part in an index: the symbol's value is `value`, a negative one counted from
/// `size`, and must then lie in [0, size).
struct Indirect {
  std::string symbol;
  ExprPtr value;
  Dim size;
};

/// How the loops are run. Loops are named by their variable's name.
struct Schedule {
  /// The loops whose steps are vectors: one outer loop (lanes are different outputs), or one loop of each phase (lanes
  /// are parts of a reduction). Empty: scalar code.
  std::vector<std::string> vector_loops;
  int lanes = 1;
  int vector_tile = 1;  // vectors per step of a vector loop
  struct Tile {
    std::string loop;
    int size = 1;
    bool exact = false;  // all of the loop in one step (columns of a packed panel); otherwise it is split evenly
  };
  std::vector<Tile> tiles;  // outer loops that run in unrolled steps
  int parallel_loops = 0;   // the first so many outer loops form the parallel index, in steps
  int unroll = 1;           // of the innermost reduction loop of each phase
  /// A phase's loop whose few steps one instruction sums: 4 products of u8 with i8, or 2 of i16. Its columns lie as far
  /// apart. Empty: none.
  std::string dot_loop;
  int dot = 0;  // steps of that loop
  /// Asked for from outside: these loops (names; empty: none) are the outermost parallel ones, first batch, then rows.
  std::string batch_loop, row_loop;
  /// With each step of the innermost reduction loop, this many cache lines from here on are brought near.
  struct Prefetch {
    int buffer = -1;
    Dim offset;
    int lines = 1;
  };
  std::optional<Prefetch> prefetch;
  std::optional<ProductPlan> product;  // what the cost model sees of a product
  int64_t chunk = 1;                   // parallel iterations worth waking a thread for

  bool is_vector(const Loop& loop) const;
  /// One of the loops that must be outermost.
  bool is_outermost(const Loop& loop) const;
  const Tile* tile_of(const Loop& loop) const;
};

struct Kernel {
  std::string name;
  std::vector<Loop> outer;
  std::vector<Phase> phases;
  std::vector<ReductionDef> reductions;
  std::vector<KernelBuffer> buffers;
  std::vector<Indirect> indirects;
  Schedule schedule;
  bool contraction = false;  // a single Sum of products anchors it

  /// Whether an index or a count may turn out wrong when the kernel runs.
  bool may_fail() const;
  /// Loops, tiles and expressions as text.
  std::string str() const;
  /// Symbols (not loop variables, not indirects) that any index or extent uses, sorted by name.
  std::vector<Dim> symbols() const;
};

// Constructors; all fold trivial cases.
ExprPtr constant_expr(DType dtype, double number);
ExprPtr constant_int_expr(DType dtype, int64_t integer);
ExprPtr index_expr(DType dtype, Dim index);
ExprPtr load_expr(DType dtype, int buffer, Dim offset);
ExprPtr apply_expr(Fn fn, DType dtype, std::vector<ExprPtr> args);
ExprPtr cast_expr(DType dtype, ExprPtr value);
ExprPtr bitcast_expr(DType dtype, ExprPtr value);
ExprPtr guard_expr(std::vector<RangeCheck> checks, ExprPtr inside, ExprPtr outside);
ExprPtr reduction_expr(DType dtype, int id);

/// Every Dim in the expression rewritten by f; shared nodes stay shared.
class ExprRewriter {
 public:
  explicit ExprRewriter(std::function<Dim(const Dim&)> f) : f_(std::move(f)) {}
  ExprPtr operator()(const ExprPtr& e);

 private:
  std::function<Dim(const Dim&)> f_;
  std::map<const Expr*, ExprPtr> done_;
  std::vector<ExprPtr> keep_;
};

/// Applies f to every Dim of the kernel: offsets, checks, extents, limits (not to the loops' own variables).
void rewrite_dims(Kernel& kernel, const std::function<Dim(const Dim&)>& f);
/// Calls f on each distinct expression node, operands first.
void visit(const ExprPtr& e, const std::function<void(const Expr&)>& f);
void visit_all(const Kernel& kernel, const std::function<void(const Expr&)>& f);
/// Every Dim of the kernel.
void visit_dims(const Kernel& kernel, const std::function<void(const Dim&)>& f);

}  // namespace cuvil
