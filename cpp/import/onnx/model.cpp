#include "import/onnx/model.hpp"

#include "import/onnx/wire.hpp"
#include "support/error.hpp"

namespace cuvil::onnx {

namespace {

AttributeProto read_attribute(std::string_view bytes) {
  AttributeProto a;
  WireReader reader(bytes);
  for (Field f; reader.next(f);) {
    switch (f.number) {
      case 1:
        a.name = f.as_bytes();
        break;
      case 2:
        a.f = f.as_float();
        break;
      case 3:
        a.i = f.as_int();
        break;
      case 4:
        a.s = f.as_bytes();
        break;
      case 5:
        a.tensor = f.as_bytes();
        break;
      case 6:
        a.graph = f.as_bytes();
        break;
      case 7:
        append_floats(f, a.floats);
        break;
      case 8:
        append_ints(f, a.ints);
        break;
      case 9:
        a.strings.push_back(f.as_bytes());
        break;
      case 20:
        a.type = f.as_int();
        break;
      case 21:
        a.reference = f.as_bytes();
        break;
      default:
        break;
    }
  }
  return a;
}

NodeProto read_node(std::string_view bytes) {
  NodeProto n;
  WireReader reader(bytes);
  for (Field f; reader.next(f);) {
    switch (f.number) {
      case 1:
        n.inputs.push_back(f.as_bytes());
        break;
      case 2:
        n.outputs.push_back(f.as_bytes());
        break;
      case 3:
        n.name = f.as_bytes();
        break;
      case 4:
        n.op_type = f.as_bytes();
        break;
      case 5:
        n.attributes.push_back(read_attribute(f.as_bytes()));
        break;
      case 7:
        n.domain = f.as_bytes();
        break;
      case 8:
        n.overload = f.as_bytes();
        break;
      default:
        break;
    }
  }
  if (n.domain == "ai.onnx") n.domain = "";
  return n;
}

DimProto read_dim(std::string_view bytes) {
  DimProto d;
  WireReader reader(bytes);
  for (Field f; reader.next(f);) {
    if (f.number == 1) {
      d.has_value = true;
      d.value = f.as_int();
    } else if (f.number == 2) {
      d.param = f.as_bytes();
    }
  }
  return d;
}

ValueInfoProto read_value_info(std::string_view bytes) {
  ValueInfoProto v;
  WireReader reader(bytes);
  for (Field f; reader.next(f);) {
    if (f.number == 1) v.name = f.as_bytes();
    if (f.number != 2) continue;
    WireReader type(f.as_bytes());
    for (Field t; type.next(t);) {
      if (t.number != 1) continue;  // tensor_type
      v.is_tensor = true;
      WireReader tensor(t.as_bytes());
      for (Field x; tensor.next(x);) {
        if (x.number == 1) v.elem_type = x.as_int();
        if (x.number != 2) continue;
        v.has_shape = true;
        WireReader shape(x.as_bytes());
        for (Field d; shape.next(d);) {
          if (d.number == 1) v.dims.push_back(read_dim(d.as_bytes()));
        }
      }
    }
  }
  return v;
}

void read_opset(std::string_view bytes, std::map<std::string, int64_t>& opsets) {
  WireReader opset(bytes);
  std::string domain;
  int64_t version = 0;
  for (Field o; opset.next(o);) {
    if (o.number == 1) domain = std::string(o.as_bytes());
    if (o.number == 2) version = o.as_int();
  }
  opsets[domain == "ai.onnx" ? "" : domain] = version;
}

FunctionProto read_function(std::string_view bytes) {
  FunctionProto function;
  WireReader reader(bytes);
  for (Field f; reader.next(f);) {
    switch (f.number) {
      case 1:
        function.name = f.as_bytes();
        break;
      case 4:
        function.inputs.push_back(f.as_bytes());
        break;
      case 5:
        function.outputs.push_back(f.as_bytes());
        break;
      case 7:
        function.nodes.push_back(read_node(f.as_bytes()));
        break;
      case 9:
        read_opset(f.as_bytes(), function.opsets);
        break;
      case 10:
        function.domain = f.as_bytes();
        break;
      case 11:
        function.defaults.push_back(read_attribute(f.as_bytes()));
        break;
      case 13:
        function.overload = f.as_bytes();
        break;
      default:
        break;
    }
  }
  if (function.domain == "ai.onnx") function.domain = "";
  return function;
}

}  // namespace

GraphProto read_graph(std::string_view bytes) {
  GraphProto g;
  WireReader reader(bytes);
  for (Field f; reader.next(f);) {
    switch (f.number) {
      case 1:
        g.nodes.push_back(read_node(f.as_bytes()));
        break;
      case 2:
        g.name = f.as_bytes();
        break;
      case 5:
        g.initializers.push_back(f.as_bytes());
        break;
      case 11:
        g.inputs.push_back(read_value_info(f.as_bytes()));
        break;
      case 12:
        g.outputs.push_back(read_value_info(f.as_bytes()));
        break;
      case 15:
        g.has_sparse_initializers = true;
        break;
      default:
        break;
    }
  }
  return g;
}

ModelProto read_model(std::string_view bytes) {
  ModelProto m;
  WireReader reader(bytes);
  for (Field f; reader.next(f);) {
    if (f.number == 1) m.ir_version = f.as_int();
    if (f.number == 7) {
      m.graph = read_graph(f.as_bytes());
      m.has_graph = true;
    }
    if (f.number == 8) read_opset(f.as_bytes(), m.opsets);
    if (f.number == 25) m.functions.push_back(read_function(f.as_bytes()));
  }
  if (!m.has_graph) throw CompileError("malformed ONNX file: it holds no graph (truncated, or not an ONNX model?)");
  return m;
}

}  // namespace cuvil::onnx
