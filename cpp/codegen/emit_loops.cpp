// Control flow and scopes.
#include "codegen/kernel_emitter.hpp"
#include "support/error.hpp"

namespace cuvil {

void KernelEmitter::enter_scope() {
  scopes_.back().hoist = b_.GetInsertBlock();
  scopes_.emplace_back();
  scope_memo_.clear();
}

void KernelEmitter::leave_scope() {
  scopes_.pop_back();
  scopes_.back().hoist = nullptr;
  scope_memo_.clear();
}

void KernelEmitter::bind(const Dim& variable, Value* value) {
  if (variable.is_symbol()) bindings_[variable.symbol_name()] = {value, scopes_.size() - 1};
  scope_memo_.clear();
}

KernelEmitter::Carried KernelEmitter::loop(Value* lo, Value* hi, int64_t step, bool surely_once, Carried carried,
                                           const std::function<Carried(Value*, Carried)>& body) {
  auto* before = b_.GetInsertBlock();
  auto* header = llvm::BasicBlock::Create(context_, "loop", function_);
  auto* after = llvm::BasicBlock::Create(context_, "done", function_);
  if (surely_once) {
    b_.CreateBr(header);
  } else {
    b_.CreateCondBr(b_.CreateICmpSLT(lo, hi), header, after);
  }
  enter_scope();
  scopes_[scopes_.size() - 2].hoist = before;
  b_.SetInsertPoint(header);
  auto* i = b_.CreatePHI(b_.getInt64Ty(), 2);
  i->addIncoming(lo, before);
  std::vector<llvm::PHINode*> phis;
  Carried inside;
  for (Value* v : carried) {
    phis.push_back(b_.CreatePHI(v->getType(), 2));
    phis.back()->addIncoming(v, before);
    inside.push_back(phis.back());
  }
  Carried next = body(i, inside);
  Value* i_next = b_.CreateAdd(i, b_.getInt64(static_cast<uint64_t>(step)), "", true, true);
  auto* latch = b_.GetInsertBlock();
  b_.CreateCondBr(b_.CreateICmpSLT(i_next, hi), header, after);
  i->addIncoming(i_next, latch);
  for (size_t k = 0; k < phis.size(); ++k) phis[k]->addIncoming(next[k], latch);
  leave_scope();
  b_.SetInsertPoint(after);
  if (surely_once) return next;
  Carried result;
  for (size_t k = 0; k < phis.size(); ++k) {
    auto* phi = b_.CreatePHI(carried[k]->getType(), 2);
    phi->addIncoming(carried[k], before);
    phi->addIncoming(next[k], latch);
    result.push_back(phi);
  }
  return result;
}

void KernelEmitter::branch(Value* condition, const std::function<void()>& yes, const std::function<void()>& no) {
  auto* before = b_.GetInsertBlock();
  auto* yes_block = llvm::BasicBlock::Create(context_, "full", function_);
  auto* no_block = llvm::BasicBlock::Create(context_, "part", function_);
  auto* after = llvm::BasicBlock::Create(context_, "join", function_);
  b_.CreateCondBr(condition, yes_block, no_block);
  for (auto& [block, emit] : {std::pair(yes_block, &yes), std::pair(no_block, &no)}) {
    b_.SetInsertPoint(before);
    enter_scope();
    b_.SetInsertPoint(block);
    (*emit)();
    b_.CreateBr(after);
    leave_scope();
  }
  b_.SetInsertPoint(after);
}

llvm::Value* KernelEmitter::bound_of(const Loop& loop) {
  Point origin(tile_variables_.size() + 1, 0);
  Value* bound = scalar_dim(loop.extent, origin);
  if (!loop.limit) return bound;
  Value* limit = scalar_dim(*loop.limit, origin);
  return b_.CreateSelect(b_.CreateICmpSLT(limit, bound), limit, bound);
}

}  // namespace cuvil
