// Regions of control flow, as importers build them.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ir/builder.hpp"

namespace cuvil {

using SymbolNames = std::set<std::string>;

/// A region that is finished but not yet part of a node.
struct BuiltRegion {
  std::shared_ptr<Graph> graph;
  SymbolNames symbols;  // those that exist in it alone
};

bool mentions(const Dim& d, const SymbolNames& symbols);

/// Symbols of the graph around a region that no size of its inputs tells are passed to it as values: an input more, for
/// one more captured value. `own` are the symbols that the region makes.
void bind_outer_symbols(Graph& region, const SymbolNames& own, Builder& outer, std::vector<Value*>& captured);

/// The results, of these types, of a branch whose regions take the captured values. The first region may lack inputs
/// for those that only the second one needs.
std::vector<Value*> add_if(Builder& b, Value* condition, const std::vector<Value*>& captured, BuiltRegion then,
                           BuiltRegion otherwise, const std::vector<Type>& types);

/// The results, of these types, of a loop whose body takes trip, condition, carried values and the captured ones.
std::vector<Value*> add_loop(Builder& b, Value* trips, Value* condition, const std::vector<Value*>& initial,
                             const std::vector<Value*>& captured, BuiltRegion body, const std::vector<Type>& types);

}  // namespace cuvil
