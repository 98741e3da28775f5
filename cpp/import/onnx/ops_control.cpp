// If, Loop, Scan.
#include <algorithm>
#include <limits>

#include "import/onnx/control.hpp"
#include "import/onnx/import.hpp"

namespace cuvil::onnx {

namespace {

// A result of a region as the graph around it sees it: sizes that only the region knows become new symbols.
void hide(Call& c, Shape& shape, const SymbolNames& hidden) {
  for (Dim& d : shape) {
    if (mentions(d, hidden)) d = c.around.new_symbol(0);
  }
}

Value* scalar_of(Call& c, Value* v, DType dtype) {
  return c.b.cast(c.b.reshape(v, {}), dtype);
}

void if_else(Call& c) {
  Value* condition = scalar_of(c, c.input(0), DType::boolean);
  const GraphProto yes = c.graph("then_branch"), no = c.graph("else_branch");
  const Tensor* constant = constant_of(c.input(0));
  if (constant && constant->num_elements() == 1) {
    c.results = c.around.inline_graph(constant->get_int(0) ? yes : no, {});
    return;
  }
  std::vector<Value*> captured;
  auto region_of = [&](const GraphProto& graph) {
    return c.around.make_region({}, captured,
                                [&](Builder&, const std::vector<Value*>&) { return c.around.inline_graph(graph, {}); });
  };
  BuiltRegion then, otherwise;
  try {
    then = region_of(yes);
    otherwise = region_of(no);
  } catch (const ValuesNeeded&) {
    throw;
  } catch (const CompileError& e) {
    // A branch that is never taken may be wrong for these sizes.
    c.around.need_value(c.input(0), e.what());
    throw;
  }
  const auto &left = then.graph->outputs(), &right = otherwise.graph->outputs();
  c.require(left.size() == right.size(), "the branches have different numbers of outputs");
  SymbolNames hidden = then.symbols;
  hidden.insert(otherwise.symbols.begin(), otherwise.symbols.end());
  std::vector<Type> types;
  for (size_t i = 0; i < left.size(); ++i) {
    const Type &a = left[i].value->type, &b = right[i].value->type;
    if (a.dtype != b.dtype || a.rank() != b.rank()) {
      c.around.need_value(c.input(0),
                          "node '" + c.describe() + "': its condition decides the type of output " + std::to_string(i));
      c.fail("the branches give output " + std::to_string(i) + " different types, " + a.str() + " and " + b.str());
    }
    Type type = a;
    for (size_t axis = 0; axis < a.shape.size(); ++axis) {
      if (a.shape[axis] != b.shape[axis]) type.shape[axis] = c.around.new_symbol(0);
    }
    hide(c, type.shape, hidden);
    types.push_back(std::move(type));
  }
  c.results = add_if(c.b, condition, captured, std::move(then), std::move(otherwise), types);
}

void loop(Call& c) {
  const GraphProto graph = c.graph("body");
  LoopParts parts;
  Value* most = c.optional_input(0);
  parts.trips = most ? scalar_of(c, most, DType::i64) : c.b.scalar_int(DType::i64, std::numeric_limits<int64_t>::max());
  Value* condition = c.optional_input(1);
  parts.condition = condition ? scalar_of(c, condition, DType::boolean) : c.b.scalar_int(DType::boolean, 1);
  if (most) {
    if (auto sizes = c.sizes_of(most); sizes && sizes->size() == 1) parts.known_trips = maximum(sizes->front(), 0);
    if (const Tensor* t = constant_of(most)) parts.trips = c.b.scalar_int(DType::i64, t->get_int(0));
  }
  if (const Tensor* t = condition ? constant_of(condition) : nullptr) {
    parts.condition = c.b.scalar_int(DType::boolean, t->get_int(0));
  }
  for (size_t i = 2; i < c.input_count(); ++i) parts.initial.push_back(c.input(i));
  c.results = add_loop(c, parts, [&](Builder& b, const std::vector<Value*>& inputs) {
    std::vector<Value*> outputs = c.around.inline_graph(graph, inputs);
    outputs.at(0) = b.cast(b.reshape(outputs.at(0), {}), DType::boolean);
    return outputs;
  });
}

void scan(Call& c) {
  const GraphProto graph = c.graph("body");
  c.require(c.opset() >= 9, "the batched form of opset 8 is not supported; convert the model to opset 9 or later");
  const int64_t scanned = c.integer("num_scan_inputs", 0);
  const auto states = static_cast<int64_t>(c.input_count()) - scanned;
  c.require(scanned >= 1 && states >= 0, "num_scan_inputs does not fit the number of inputs");
  const auto stacked = static_cast<int64_t>(graph.outputs.size()) - states;
  c.require(stacked >= 0, "the body has too few outputs");
  auto list = [&](const char* name, int64_t count) {
    std::vector<int64_t> values = c.ints(name, std::vector<int64_t>(static_cast<size_t>(count), 0));
    c.require(static_cast<int64_t>(values.size()) == count, "a list of axes or directions has the wrong length");
    return values;
  };
  const std::vector<int64_t> in_axes = list("scan_input_axes", scanned),
                             in_reverse = list("scan_input_directions", scanned);
  const std::vector<int64_t> out_axes = list("scan_output_axes", stacked);
  const std::vector<int64_t> out_reverse = list("scan_output_directions", stacked);
  std::vector<Value*> sequences, initial;
  std::vector<int> axes;
  for (int64_t i = 0; i < scanned; ++i) {
    Value* x = c.input(static_cast<size_t>(states + i));
    sequences.push_back(x);
    axes.push_back(static_cast<int>(c.wrap_axis(in_axes[static_cast<size_t>(i)], x->type.rank())));
  }
  const Dim length = sequences[0]->type.shape[static_cast<size_t>(axes[0])];
  for (int64_t i = 0; i < states; ++i) initial.push_back(c.input(static_cast<size_t>(i)));
  c.results = add_loop(c, loop_over(c, length, initial), [&](Builder& b, const std::vector<Value*>& inputs) {
    std::vector<Value*> arguments(inputs.begin() + 2, inputs.end());
    for (size_t i = 0; i < sequences.size(); ++i) {
      Value* at = inputs[0];
      if (in_reverse[i]) at = b.sub(b.dim_value(length - 1), at);
      arguments.push_back(b.gather(c.around.capture(sequences[i]), at, axes[i]));
    }
    std::vector<Value*> outputs = c.around.inline_graph(graph, arguments);
    outputs.insert(outputs.begin(), b.scalar_int(DType::boolean, 1));
    return outputs;
  });
  for (int64_t i = 0; i < stacked; ++i) {
    Value*& v = c.results[static_cast<size_t>(states + i)];
    if (out_reverse[static_cast<size_t>(i)]) v = c.b.slice_axis(v, 0, length - 1, -1, -1);
    const int64_t rank = v->type.rank(), axis = c.wrap_axis(out_axes[static_cast<size_t>(i)], rank);
    std::vector<int64_t> perm;
    for (int64_t k = 1; k < rank; ++k) perm.push_back(k);
    perm.insert(perm.begin() + axis, 0);
    v = c.b.transpose(v, perm);
  }
}

}  // namespace

std::vector<Value*> add_loop(Call& c, const LoopParts& parts, const Surroundings::Fill& fill) {
  const size_t carried = parts.initial.size();
  std::vector<Type> types = {{DType::i64, {}}, {DType::boolean, {}}};
  for (const Value* v : parts.initial) types.push_back(v->type);
  SymbolNames varying;
  std::vector<Value*> captured;
  BuiltRegion body;
  for (bool settled = false; !settled;) {
    captured.clear();
    body = c.around.make_region(types, captured, fill);
    c.require(body.graph->outputs().size() > carried, "the body has too few outputs");
    settled = true;
    for (size_t i = 0; i < carried; ++i) {
      Type& before = types[i + 2];
      const Type& after = body.graph->outputs()[i + 1].value->type;
      if (before.dtype != after.dtype || before.rank() != after.rank()) {
        c.fail("carried value " + std::to_string(i) + " changes its type from " + before.str() + " to " + after.str());
      }
      for (size_t axis = 0; axis < before.shape.size(); ++axis) {
        Dim& size = before.shape[axis];
        if (size == after.shape[axis] || (size.is_symbol() && varying.count(size.symbol_name()))) continue;
        size = c.around.new_symbol(0);
        varying.insert(size.symbol_name());
        settled = false;
      }
    }
  }
  const Value* goes_on = body.graph->outputs()[0].value;
  const Tensor* constant = constant_of(goes_on);
  const Tensor* starts = constant_of(parts.condition);
  const bool endless =
      starts && starts->get_int(0) && ((constant && constant->get_int(0)) || goes_on == body.graph->inputs()[1].get());
  SymbolNames hidden = body.symbols;
  hidden.insert(varying.begin(), varying.end());
  std::vector<Type> results(types.begin() + 2, types.end());
  for (size_t i = carried + 1; i < body.graph->outputs().size(); ++i) {
    Type row = body.graph->outputs()[i].value->type;
    row.shape.insert(row.shape.begin(), endless && parts.known_trips ? *parts.known_trips : c.around.new_symbol(0));
    results.push_back(std::move(row));
  }
  for (Type& type : results) hide(c, type.shape, hidden);
  return cuvil::add_loop(c.b, parts.trips, parts.condition, parts.initial, captured, std::move(body), results);
}

LoopParts loop_over(Call& c, const Dim& count, std::vector<Value*> initial) {
  return {c.b.dim_value(count), c.b.scalar_int(DType::boolean, 1), std::move(initial), count};
}

std::vector<Row> control_rows() {
  return {{"If", if_else}, {"Loop", loop}, {"Scan", scan}};
}

}  // namespace cuvil::onnx
