// Kernel → one LLVM function `void name(const void* args, i64 begin, i64 end)`.
//
// The function walks the parallel steps [begin, end). One step is a tile: each tiled loop contributes `size` unrolled
// points and the vector loop `vector_tile` vectors. Every expression is evaluated once per point it really depends on,
// so a load that a row of points shares is one load: register blocking of products, pooling and pointwise code all come
// from this one rule.
//
// Code is placed by scopes. A scope is a loop body or one arm of a branch; what does not depend on its variables is
// emitted before it, in the scope that defines the last variable needed.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lower/kernel.hpp"
#include "target/target.hpp"

namespace cuvil {

/// Slots of a kernel's argument block: buffers, then symbols, then (if it may fail) the error record.
struct ArgumentLayout {
  std::vector<Dim> symbols;
  bool has_error = false;
  size_t slots = 0;
};
ArgumentLayout argument_layout(const Kernel& kernel);

/// Steps of the parallel index.
Dim parallel_count(const Kernel& kernel);

/// What folds two values of a reduction.
Fn function_of(ReduceFn fn);

class KernelEmitter {
 public:
  KernelEmitter(llvm::Module& module, const Kernel& kernel, const TargetDescription& target);

  llvm::Function* emit(const std::string& name);

 private:
  using Value = llvm::Value;
  using Builder = llvm::IRBuilder<>;

  /// A point of the current tile: coordinate of each tiled loop, then the vector's number in the vector tile.
  using Point = std::vector<int>;

  struct Typed {
    Value* value = nullptr;
    bool is_vector = false;
  };

  struct Scope {
    llvm::BasicBlock* hoist = nullptr;  // where later code for this scope goes, before the terminator; null: innermost
    std::map<Dim, Value*> dims;
    std::map<std::pair<Value*, Dim>, Value*> addresses;
    std::map<std::tuple<const Expr*, Point, int>, Typed> values;
  };

  struct Binding {
    Value* value = nullptr;
    size_t scope = 0;
  };

  // emit_loops.cpp: loops, branches, scopes
  using Carried = std::vector<Value*>;
  /// for (i = lo; i < hi; i += step): body(i, carried) → carried. Pushes a scope.
  Carried loop(Value* lo, Value* hi, int64_t step, bool surely_once, Carried carried,
               const std::function<Carried(Value*, Carried)>& body);
  /// Branches that end in the same place; nothing is carried out of them.
  void branch(Value* condition, const std::function<void()>& yes, const std::function<void()>& no);
  void enter_scope();
  void leave_scope();
  void bind(const Dim& variable, Value* value);
  Value* bound_of(const Loop& loop);

  // kernel_emitter.cpp: the outer loops, and the phases inside
  void emit_steps(Value* begin, Value* end);
  void emit_outer(size_t index, const std::vector<Value*>& parallel);
  void emit_tile(const Loop& loop, const Schedule::Tile& tile, Value* block, const std::function<void()>& inside);
  void emit_exact_tile(const Loop& loop, int size, const std::function<void()>& inside);
  void with_tile(const Loop& loop, int size, Value* start, const std::function<void()>& inside);
  void with_vectors(const Loop& loop, int count, Value* start, Value* live, const std::function<void()>& inside);
  void emit_vector_tail(const Loop& loop, Value* start, Value* bound, const std::function<void()>& inside);
  void emit_phases();
  void emit_reductions(const Phase& phase);
  void emit_stores(const Phase& phase);
  using PhaseBody = std::function<Carried(Carried)>;
  Carried phase_loops(const std::vector<const Loop*>& loops, size_t index, int unroll, Carried carried,
                      const PhaseBody& body);
  Carried vector_phase_loop(const Loop& loop, Carried carried, const PhaseBody& body);

  /// Runs f with the builder where code of `scope` goes.
  template <typename F>
  auto in_scope(size_t scope, F f) {
    llvm::BasicBlock* hoist = scopes_[scope].hoist;
    if (!hoist) return f();
    llvm::IRBuilderBase::InsertPointGuard keep(b_);
    if (llvm::Instruction* terminator = hoist->getTerminator()) {
      b_.SetInsertPoint(terminator);
    } else {
      b_.SetInsertPoint(hoist);
    }
    return f();
  }

  // Points of the current tile over the given coordinates.
  std::vector<Point> points(bool with_vectors) const;

  // emit_dims.cpp: integers
  size_t scope_of(const Dim& d);
  Dim at_point(const Dim& d, const Point& point) const;
  Value* scalar_dim(const Dim& d, const Point& point);
  Value* scalar_dim_in_scope(const Dim& d, const Point& point);
  Value* atom_value(const DimAtom& atom, const Point& point);
  Value* vector_dim(const Dim& d, const Point& point);
  Value* vector_dim_here(const Dim& here, const Point& point);
  Value* vector_atom(const DimAtom& atom, const Point& point);
  bool dim_is_vector(const Dim& d);
  /// Whether an indirect index in it differs from lane to lane.
  bool has_vector_indirect(const Dim& d);
  const Indirect& indirect(const std::string& symbol) const;
  Typed indirect_value(const std::string& symbol, const Point& point);
  /// Keeps an index outside its axis for the caller, if it is one. Code that is placed in an outer scope may not
  /// branch.
  void record_error(Value* is_error, Value* index, Value* size, bool may_branch);
  Value* address(Value* base, const Dim& offset, DType dtype, const Point& point);
  Value* address_here(Value* base, const Dim& d, DType dtype, const Point& point);

  // emit_values.cpp: expressions
  Typed value(const ExprPtr& e, const Point& point);
  Typed compute(const ExprPtr& e, const Point& point);
  Typed emit_load(const Expr& e, const Point& point);
  Value* axes_not_empty(const Dim& index, const Point& point);  // null: surely
  Typed emit_guard(const Expr& e, const Point& point);
  void emit_store(const StoreDef& store, const Point& point);
  void store_lanes(const StoreDef& store, Value* item, Value* offsets);
  /// The value folded into what the store's place holds.
  Value* combined(const StoreDef& store, Value* old, Value* item);
  uint64_t coordinates_of(const Expr& e);  // bit per coordinate the value depends on
  uint64_t coordinates_of(const Dim& d);
  size_t scope_of(const Expr& e);
  /// The point with the coordinates that are not in `coordinates` set to 0.
  static Point masked(Point point, uint64_t coordinates);
  Value* access_mask();  // lanes live and guarded; null: all
  Value* splat(Value* scalar);
  Value* as_vector(Typed t) { return t.is_vector ? t.value : splat(t.value); }
  Value* from_memory(Value* raw, DType dtype);
  Value* to_memory(Value* v, DType dtype);

  // Types: of memory, and of values in registers (half types compute in f32, bool is i1).
  llvm::Type* memory_type(DType dtype);
  llvm::Type* value_type(DType dtype);
  llvm::Type* vector_of(llvm::Type* element);

  // emit_sort.cpp
  void emit_sort(const SortDef& sort);

  // emit_reductions.cpp
  void emit_prefetch();
  Value* dot_operand(const ExprPtr& load, const Point& point);
  /// sum + the products of each lane's few narrow factors.
  Value* emit_dot(Value* sum, Value* rows, Value* columns);
  std::vector<Value*> identity(const ReductionDef& r, bool is_vector);
  std::vector<Value*> combine(const ReductionDef& r, const std::vector<Value*>& acc, const std::vector<Value*>& item);
  std::vector<Value*> fold_lanes(const ReductionDef& r, std::vector<Value*> acc);
  std::vector<Value*> accumulate(const ReductionDef& r, const std::vector<Value*>& acc, const Point& point,
                                 bool is_vector, Value* mask);

  llvm::Module& module_;
  llvm::LLVMContext& context_;
  const Kernel& kernel_;
  const TargetDescription& target_;
  Builder b_;
  int lanes_ = 1;

  llvm::Function* function_ = nullptr;
  Value* args_ = nullptr;
  std::vector<Value*> buffers_;
  Value* error_ = nullptr;
  Value* sink_ = nullptr;  // where lanes that are off store to, when they must

  std::vector<Scope> scopes_;
  std::map<std::string, Binding> bindings_;
  std::string vector_variable_;  // of the vector loop that is open; empty: none
  Dim vector_dim_variable_;
  Value* vector_mask_ = nullptr;  // lanes of a tail's one vector that are live; null: all
  std::vector<std::string> tile_variables_;
  std::vector<int> tile_sizes_;       // of the arm being emitted, by tile_variables_
  std::vector<bool> tile_from_zero_;  // the tile is the whole loop: its points' indices are constants
  int vector_tile_ = 1;               // of the arm being emitted
  std::map<std::string, int> unroll_offsets_;
  std::map<std::pair<int, Point>, std::vector<Typed>> reductions_;
  size_t reduction_scope_ = 0;  // where the reductions that are ready were finished
  std::map<const Expr*, uint64_t> coordinate_memo_;
  std::map<const Expr*, size_t> scope_memo_;  // valid while scopes and bindings stay

  struct Guarding {
    int id = 0;
    Typed condition;
  };
  std::vector<Guarding> guards_;
  int next_guard_ = 1;
};

}  // namespace cuvil
