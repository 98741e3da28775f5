// Sorting of one row, as code of the kernel itself.
//
// An element becomes one unsigned number: its key in the high bits, in such a form that numbers compare like elements,
// and its position in the low bits. So no two are equal, and every way of sorting is stable. Few elements, or few of
// many, are inserted into a sorted list one by one; others are distributed by one byte of their keys after the other.
#include "codegen/kernel_emitter.hpp"
#include "codegen/llvm_compat.hpp"
#include "support/error.hpp"

namespace cuvil {

namespace {

using llvm::BasicBlock;
using llvm::Value;

// Bits of an infinity of the dtype: magnitudes above it are NaN.
uint64_t infinity_bits(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 0x7c00;
    case DType::bf16:
      return 0x7f80;
    case DType::f32:
      return 0x7f800000;
    default:
      return 0x7ff0000000000000;
  }
}

// Memory bits → unsigned bits of the same width in the elements' order.
Value* sortable(llvm::IRBuilder<>& b, Value* raw, DType dtype, bool descending) {
  auto* type = llvm::cast<llvm::IntegerType>(raw->getType());
  const unsigned bits = type->getBitWidth();
  Value* zero = llvm::ConstantInt::get(type, 0);
  Value* sign = llvm::ConstantInt::get(type, uint64_t{1} << (bits - 1));
  Value* key = raw;
  if (dtype == DType::boolean) {
    key = b.CreateZExt(b.CreateICmpNE(raw, zero), type);
  } else if (is_float(dtype)) {
    Value* magnitude = b.CreateAnd(raw, b.CreateNot(sign));
    Value* is_nan = b.CreateICmpUGT(magnitude, llvm::ConstantInt::get(type, infinity_bits(dtype)));
    Value* number = b.CreateSelect(b.CreateICmpEQ(magnitude, zero), zero, raw);
    Value* flipped = b.CreateXor(number, b.CreateOr(b.CreateAShr(number, bits - 1), sign));
    key = b.CreateSelect(is_nan, llvm::ConstantInt::getAllOnesValue(type), flipped);
  } else if (is_signed_int(dtype)) {
    key = b.CreateXor(raw, sign);
  }
  return descending ? b.CreateNot(key) : key;
}

// The loops of one sort. Positions take 32 bits beside a key of up to 32, else 64.
class RowSorter {
 public:
  RowSorter(llvm::IRBuilder<>& b, llvm::Function* function, DType dtype, bool descending)
      : b_(b),
        function_(function),
        dtype_(dtype),
        descending_(descending),
        key_bytes_(static_cast<int64_t>(size_of(dtype))),
        position_bits_(key_bytes_ > 4 ? 64 : 32),
        element_(b.getIntNTy(2 * position_bits_)) {
    llvm::IRBuilderBase::InsertPointGuard keep(b_);
    BasicBlock& entry = function_->getEntryBlock();
    b_.SetInsertPoint(&entry, entry.begin());
    counts_ = b_.CreateAlloca(b_.getInt64Ty(), b_.getInt64(kBuckets));
  }

  Value *keys = nullptr, *key_stride = nullptr, *order = nullptr, *order_stride = nullptr, *scratch = nullptr;
  Value *size = nullptr, *count = nullptr;

  // Keeps the first `count` in order while it goes through all.
  void insert() {
    Value* most = b_.CreateSelect(b_.CreateICmpSGT(count, number(0)), size, number(0));
    Value* kept = count_up(most, number(0), [&](Value* i, Value* kept) { return insert_one(element(i), kept); });
    write(scratch, kept);
  }

  void distribute() {
    Value* other = b_.CreateGEP(element_, scratch, size);
    count_up(size, nullptr, [&](Value* i, Value*) {
      store(scratch, i, element(i));
      return nullptr;
    });
    BasicBlock* before = b_.GetInsertBlock();
    BasicBlock *pass = block("pass"), *done = block("sorted");
    b_.CreateBr(pass);
    b_.SetInsertPoint(pass);
    auto* byte = b_.CreatePHI(b_.getInt64Ty(), 2);
    auto* from = b_.CreatePHI(b_.getPtrTy(), 2);
    auto* to = b_.CreatePHI(b_.getPtrTy(), 2);
    byte->addIncoming(number(0), before);
    from->addIncoming(scratch, before);
    to->addIncoming(other, before);
    Value* moved = pass_over(from, to, byte);
    Value* next_from = b_.CreateSelect(moved, to, from);
    Value* next_to = b_.CreateSelect(moved, from, to);
    Value* next = b_.CreateAdd(byte, number(1));
    byte->addIncoming(next, b_.GetInsertBlock());
    from->addIncoming(next_from, b_.GetInsertBlock());
    to->addIncoming(next_to, b_.GetInsertBlock());
    b_.CreateCondBr(b_.CreateICmpSLT(next, number(key_bytes_)), pass, done);
    b_.SetInsertPoint(done);
    write(next_from, b_.CreateSelect(b_.CreateICmpSLT(count, size), count, size));
  }

 private:
  static constexpr int64_t kBuckets = 256;

  Value* number(int64_t v) { return b_.getInt64(static_cast<uint64_t>(v)); }
  BasicBlock* block(const char* name) { return BasicBlock::Create(b_.getContext(), name, function_); }

  /// for (i = 0; i < end; ++i) carried = body(i, carried); carried may be null.
  template <typename Body>
  Value* count_up(Value* end, Value* carried, Body body) {
    BasicBlock* before = b_.GetInsertBlock();
    BasicBlock *header = block("each"), *done = block("end");
    b_.CreateCondBr(b_.CreateICmpSLT(number(0), end), header, done);
    b_.SetInsertPoint(header);
    auto* i = b_.CreatePHI(b_.getInt64Ty(), 2);
    i->addIncoming(number(0), before);
    llvm::PHINode* held = nullptr;
    if (carried) {
      held = b_.CreatePHI(carried->getType(), 2);
      held->addIncoming(carried, before);
    }
    Value* result = body(i, held);
    Value* next = b_.CreateAdd(i, number(1), "", true, true);
    BasicBlock* latch = b_.GetInsertBlock();
    i->addIncoming(next, latch);
    if (held) held->addIncoming(result, latch);
    b_.CreateCondBr(b_.CreateICmpSLT(next, end), header, done);
    b_.SetInsertPoint(done);
    if (!carried) return nullptr;
    auto* last = b_.CreatePHI(carried->getType(), 2);
    last->addIncoming(carried, before);
    last->addIncoming(result, latch);
    return last;
  }

  // Scratch is of i64, which is all the alignment there is.
  Value* load(Value* list, Value* i) {
    return b_.CreateAlignedLoad(element_, b_.CreateGEP(element_, list, i), llvm::Align(8));
  }
  void store(Value* list, Value* i, Value* v) {
    b_.CreateAlignedStore(v, b_.CreateGEP(element_, list, i), llvm::Align(8));
  }

  Value* element(Value* i) {
    llvm::Type* memory = b_.getIntNTy(static_cast<unsigned>(key_bytes_) * 8);
    Value* raw = b_.CreateAlignedLoad(memory, b_.CreateGEP(memory, keys, b_.CreateMul(i, key_stride)),
                                      llvm::Align(static_cast<uint64_t>(key_bytes_)));
    Value* key = b_.CreateZExt(sortable(b_, raw, dtype_, descending_), element_);
    return b_.CreateOr(b_.CreateShl(key, position_bits_), b_.CreateZExtOrTrunc(i, element_));
  }

  // A byte of the element's key.
  Value* digit(Value* e, Value* byte) {
    Value* key = b_.CreateZExtOrTrunc(b_.CreateLShr(e, position_bits_), b_.getInt64Ty());
    return b_.CreateAnd(b_.CreateLShr(key, b_.CreateShl(byte, number(3))), number(kBuckets - 1));
  }

  Value* insert_one(Value* e, Value* kept) {
    BasicBlock *compare = block("compare"), *insert = block("insert"), *probe = block("probe"), *shift = block("shift"),
               *place = block("place"), *next = block("next");
    Value* full = b_.CreateICmpSGE(kept, count);
    Value* end = b_.CreateSub(kept, b_.CreateZExt(full, b_.getInt64Ty()));  // where the list ends without its last
    BasicBlock* start = b_.GetInsertBlock();
    b_.CreateCondBr(full, compare, insert);
    b_.SetInsertPoint(compare);
    b_.CreateCondBr(b_.CreateICmpULT(e, load(scratch, end)), insert, next);
    b_.SetInsertPoint(insert);
    auto* at = b_.CreatePHI(b_.getInt64Ty(), 3);
    at->addIncoming(end, start);
    at->addIncoming(end, compare);
    b_.CreateCondBr(b_.CreateICmpSGT(at, number(0)), probe, place);
    b_.SetInsertPoint(probe);
    Value* lower = b_.CreateSub(at, number(1));
    Value* other = load(scratch, lower);
    b_.CreateCondBr(b_.CreateICmpUGT(other, e), shift, place);
    b_.SetInsertPoint(shift);
    store(scratch, at, other);
    at->addIncoming(lower, shift);
    b_.CreateBr(insert);
    b_.SetInsertPoint(place);
    store(scratch, at, e);
    Value* grown = b_.CreateAdd(end, number(1));
    b_.CreateBr(next);
    b_.SetInsertPoint(next);
    auto* result = b_.CreatePHI(b_.getInt64Ty(), 2);
    result->addIncoming(kept, compare);
    result->addIncoming(grown, place);
    return result;
  }

  // Distributes all elements by one byte; whether it had to.
  Value* pass_over(Value* from, Value* to, Value* byte) {
    count_up(number(kBuckets), nullptr, [&](Value* i, Value*) {
      b_.CreateStore(number(0), bucket(i));
      return nullptr;
    });
    count_up(size, nullptr, [&](Value* i, Value*) {
      Value* at = bucket(digit(load(from, i), byte));
      b_.CreateStore(b_.CreateAdd(b_.CreateLoad(b_.getInt64Ty(), at), number(1)), at);
      return nullptr;
    });
    BasicBlock *move = block("move"), *next = block("moved");
    Value* together = b_.CreateLoad(b_.getInt64Ty(), bucket(digit(load(from, number(0)), byte)));
    Value* needed = b_.CreateICmpNE(together, size);
    b_.CreateCondBr(needed, move, next);
    b_.SetInsertPoint(move);
    count_up(number(kBuckets), number(0), [&](Value* i, Value* sum) {
      Value* n = b_.CreateLoad(b_.getInt64Ty(), bucket(i));
      b_.CreateStore(sum, bucket(i));
      return b_.CreateAdd(sum, n);
    });
    count_up(size, nullptr, [&](Value* i, Value*) {
      Value* e = load(from, i);
      Value* at = bucket(digit(e, byte));
      Value* place = b_.CreateLoad(b_.getInt64Ty(), at);
      store(to, place, e);
      b_.CreateStore(b_.CreateAdd(place, number(1)), at);
      return nullptr;
    });
    b_.CreateBr(next);
    b_.SetInsertPoint(next);
    return needed;
  }

  Value* bucket(Value* i) { return b_.CreateGEP(b_.getInt64Ty(), counts_, i); }

  // Positions of the first elements of a sorted list.
  void write(Value* list, Value* number_of) {
    count_up(number_of, nullptr, [&](Value* i, Value*) {
      Value* position = b_.CreateTrunc(load(list, i), b_.getIntNTy(position_bits_));
      b_.CreateStore(b_.CreateZExt(position, b_.getInt64Ty()),
                     b_.CreateGEP(b_.getInt64Ty(), order, b_.CreateMul(i, order_stride)));
      return nullptr;
    });
  }

  llvm::IRBuilder<>& b_;
  llvm::Function* function_;
  DType dtype_;
  bool descending_;
  int64_t key_bytes_;
  unsigned position_bits_;
  llvm::IntegerType* element_;
  Value* counts_ = nullptr;
};

}  // namespace

void KernelEmitter::emit_sort(const SortDef& sort) {
  CUVIL_CHECK(vector_variable_.empty() && tile_variables_.empty(), "kernel " + kernel_.name + ": a sort of lanes");
  const Point origin{0};
  const DType dtype = kernel_.buffers[static_cast<size_t>(sort.keys.buffer)].dtype;
  RowSorter sorter(b_, function_, dtype, sort.descending);
  auto base = [&](int buffer) { return buffers_[static_cast<size_t>(buffer)]; };
  sorter.keys = address(base(sort.keys.buffer), sort.keys.offset, dtype, origin);
  sorter.key_stride = scalar_dim(sort.keys.stride, origin);
  sorter.order = address(base(sort.order.buffer), sort.order.offset, DType::i64, origin);
  sorter.order_stride = scalar_dim(sort.order.stride, origin);
  sorter.scratch = address(base(sort.scratch), sort.scratch_offset, DType::i64, origin);
  sorter.size = scalar_dim(sort.size, origin);
  sorter.count = scalar_dim(sort.count, origin);
  if (!provably_le(sort.count, sort.size)) {
    Value* last = b_.CreateSub(sorter.count, b_.getInt64(1));
    record_error(b_.CreateICmpSGT(sorter.count, sorter.size), last, sorter.size, true);
  }
  // The same answers as those that size the scratch, wherever they can be given before the kernel runs.
  if (provably_le(sort.size, SortDef::kMostInserted) || provably_le(sort.count, SortDef::kMostSelected)) {
    sorter.insert();
    return;
  }
  auto at_most = [&](Value* v, int64_t most) { return b_.CreateICmpSLE(v, b_.getInt64(static_cast<uint64_t>(most))); };
  Value* few = b_.CreateOr(at_most(sorter.size, SortDef::kMostInserted), at_most(sorter.count, SortDef::kMostSelected));
  branch(
      few, [&] { sorter.insert(); }, [&] { sorter.distribute(); });
}

}  // namespace cuvil
