#include "tools/opt.hpp"

#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <sstream>

#include "codegen/codegen.hpp"
#include "import/onnx/import.hpp"
#include "ir/evaluate.hpp"
#include "ir/text.hpp"
#include "ir/verify.hpp"
#include "lower/program.hpp"
#include "support/error.hpp"
#include "target/target.hpp"
#include "transform/pass.hpp"

namespace cuvil {

namespace {

struct Options {
  std::vector<std::string> passes;
  bool pipeline = false, onnx = false, evaluate = false, sources = false, help = false, list_ops = false;
  std::string print_after, emit = "graph", target, file = "-";
  TransformOptions transform;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

void print_help(std::ostream& out) {
  out << "usage: cuvil-opt [options] [FILE]     (- or nothing reads standard input)\n\n"
         "  --pass=A,B           run these passes in order\n"
         "  --pipeline           run the compiler's own sequence of passes\n"
         "  --print-after=PASS   with --pipeline: print the graph after each run of PASS\n"
         "  --emit=WHAT          print graph (default), kernels, llvm or asm\n"
         "  --target=NAME        target of kernels, llvm and asm (default: this machine)\n"
         "  --channel-block=N    channels per block of assign-layouts (default 16)\n"
         "  --dot=N              integer products per lane, 4 of bytes, 2 of i16, or 0 (default)\n"
         "  --strict             only forms as exact as the operators' definitions\n"
         "  --onnx               FILE is an ONNX model\n"
         "  --evaluate           print the outputs of a graph without inputs, by the reference evaluator\n"
         "  --sources            print where each node comes from\n"
         "  --list-ops           print the tables of operators and scalar functions\n\npasses:\n";
  for (const Pass& pass : all_passes())
    out << "  " << std::left << std::setw(20) << pass.name << " " << pass.summary << "\n";
}

void print_ops(std::ostream& out) {
  out << "operators: name | operands | attributes | meaning\n";
#define X(name, text, kind, lo, hi, attrs, doc) \
  out << text << " | " << lo << (hi == lo ? "" : hi < 0 ? "+" : ".." #hi) << " | " << attrs << " | " << doc << "\n";
  CUVIL_OPS(X)
#undef X
  out << "\nscalar functions: name | operands | dtypes | meaning\n";
#define X(name, text, arity, result, classes, doc) \
  out << text << " | " << arity << " | " << classes << " | " << doc << "\n";
  CUVIL_SCALAR_FNS(X)
#undef X
  out << "\nreductions: name | meaning\n";
#define X(name, text, doc) out << text << " | " << doc << "\n";
  CUVIL_REDUCE_FNS(X)
#undef X
}

Options parse(const std::vector<std::string>& arguments) {
  Options o;
  for (const std::string& arg : arguments) {
    auto value = [&](const char* name) -> const char* {
      std::string prefix = std::string(name) + "=";
      return arg.rfind(prefix, 0) == 0 ? arg.c_str() + prefix.size() : nullptr;
    };
    if (const char* v = value("--pass"))
      o.passes = split(v);
    else if (const char* v = value("--print-after"))
      o.print_after = v;
    else if (const char* v = value("--emit"))
      o.emit = v;
    else if (const char* v = value("--target"))
      o.target = v;
    else if (const char* v = value("--channel-block"))
      o.transform.channel_block = std::atoi(v);
    else if (arg == "--pipeline")
      o.pipeline = true;
    else if (const char* v = value("--dot"))
      o.transform.dot = std::atoi(v);
    else if (arg == "--strict")
      o.transform.strict = true;
    else if (arg == "--onnx")
      o.onnx = true;
    else if (arg == "--evaluate")
      o.evaluate = true;
    else if (arg == "--sources")
      o.sources = true;
    else if (arg == "--help")
      o.help = true;
    else if (arg == "--list-ops")
      o.list_ops = true;
    else if (arg.rfind("--", 0) == 0)
      throw CompileError("unknown option '" + arg + "' (see --help)");
    else
      o.file = arg;
  }
  return o;
}

std::string read(const std::string& file, std::istream& standard) {
  if (file == "-") return {std::istreambuf_iterator<char>(standard), {}};
  std::ifstream in(file, std::ios::binary);
  if (!in) throw CompileError("cannot open '" + file + "'");
  return {std::istreambuf_iterator<char>(in), {}};
}

void print_outputs(const Graph& graph, std::ostream& out) {
  std::vector<Tensor> outputs = evaluate(graph, {});
  for (size_t i = 0; i < outputs.size(); ++i) {
    Graph holder;
    Node* node = holder.add_node(Op::Constant, {}, {{"value", outputs[i]}});
    holder.add_output(graph.outputs()[i].name, node->result.get());
    std::string text = print(holder, {.sources = false, .max_constant_elements = 1 << 20});
    size_t begin = text.find("value=") + 6, end = text.find("} :");
    out << graph.outputs()[i].name << " = " << text.substr(begin, end - begin) << "\n";
  }
}

void run(const Options& o, std::istream& in, std::ostream& out) {
  Graph graph = o.onnx ? onnx::import_file(o.file) : parse_graph(read(o.file, in));
  verify(graph, "import");
  PrintOptions printing;
  printing.sources = o.sources;
  for (const std::string& name : o.passes) {
    const Pass* pass = find_pass(name);
    if (!pass) throw CompileError("unknown pass '" + name + "' (see --help)");
    pass->run(graph, o.transform);
    verify(graph, name.c_str());
  }
  if (o.pipeline) {
    run_pipeline(graph, o.transform, [&](const Pass& pass, const Graph& g, double) {
      verify(g, std::string(pass.name).c_str());
      if (pass.name == o.print_after) out << print(g, printing);
    });
  }
  if (o.evaluate) {
    print_outputs(graph, out);
  } else if (o.emit == "graph") {
    out << print(graph, printing);
  } else {
    TargetDescription target = target_from_name(o.target);
    Program program = lower(graph, target);
    if (o.emit == "kernels") {
      out << program.str();
    } else if (o.emit == "llvm" || o.emit == "asm") {
      for (const Step& step : program.steps) {
        out << (o.emit == "llvm" ? kernel_llvm_ir(step, target) : kernel_assembly(step, target));
      }
    } else {
      throw CompileError("--emit takes graph, kernels, llvm or asm, not '" + o.emit + "'");
    }
  }
}

}  // namespace

int run_opt(const std::vector<std::string>& arguments, std::istream& in, std::ostream& out, std::ostream& err) {
  try {
    Options options = parse(arguments);
    if (options.help) {
      print_help(out);
    } else if (options.list_ops) {
      print_ops(out);
    } else {
      run(options, in, out);
    }
    return 0;
  } catch (const CompileError& e) {
    err << "error: " << e.what() << "\n";
    return 1;
  } catch (const std::exception& e) {
    err << "internal error: " << e.what() << "\n";
    return 3;
  }
}

}  // namespace cuvil
