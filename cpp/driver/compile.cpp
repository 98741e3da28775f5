// The compiler as a list of steps. Whoever reads compile() below knows the way of a model through the house.
#include "driver/compile.hpp"

#include <sched.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "artifact/object_loader.hpp"
#include "codegen/codegen.hpp"
#include "driver/debug.hpp"
#include "ir/verify.hpp"
#include "lower/plan_memory.hpp"
#include "lower/program.hpp"
#include "support/error.hpp"
#include "target/target.hpp"
#include "transform/pass.hpp"

namespace cuvil {

namespace {

// Times the steps, reports progress and prints what CUVIL_DEBUG asks for.
class Steps {
 public:
  Steps(const CompileOptions& options, CompiledModel& model) : options_(options), model_(model) {}

  template <typename F>
  auto operator()(const char* name, double done, F f) {
    if (options_.progress) options_.progress(name, done);
    auto start = std::chrono::steady_clock::now();
    auto finish = [&] {
      double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      model_.compile_times.push_back({name, seconds});
      debug_log(DebugLevel::Timings, name, " ", seconds, " s");
    };
    if constexpr (std::is_void_v<decltype(f())>) {
      f();
      finish();
    } else {
      auto result = f();
      finish();
      return result;
    }
  }

 private:
  const CompileOptions& options_;
  CompiledModel& model_;
};

int threads_to_use(int wanted) {
  if (wanted > 0) return wanted;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return 1;
}

void transform(Graph& graph, const TargetDescription& target, Precision precision) {
  TransformOptions options;
  options.dot = target.dot;
  options.strict = precision == Precision::Strict;
  options.channel_block = target.lanes(DType::f32) >= 4 ? target.lanes(DType::f32) : 0;
  run_pipeline(graph, options, [](const Pass& pass, const Graph& g, double seconds) {
    debug_log(DebugLevel::Passes, "  pass ", pass.name, " ", seconds, " s, ", g.nodes().size(), " nodes");
    if (debug_level() >= DebugLevel::Passes) verify(g, std::string(pass.name).c_str());
    debug_dump(DebugLevel::Graphs, g);
  });
}

// All weights in one piece of memory, on huge pages where that pays. Takes them out of the program one by one, so that
// they are in memory twice only one at a time.
Tensor pack_weights(Program& program) {
  Tensor memory = Tensor::uninitialized(DType::u8, {std::max<int64_t>(kAlignment, program.weight_bytes)});
  for (const Buffer& b : program.buffers) {
    if (b.kind != Buffer::Kind::Constant || b.first_use < 0) continue;
    const Tensor t = std::exchange(program.constants[static_cast<size_t>(b.index)], {});
    char* to = memory.mutable_as<char>() + b.offset.value();
    if (t.num_bytes()) std::memcpy(to, t.data(), t.num_bytes());
    // The rest up to the next constant is part of files, so it must not be left to chance.
    std::memset(to + t.num_bytes(), 0, static_cast<size_t>(bytes_of(b).value()) - t.num_bytes());
  }
  return memory;
}

void describe(const Program& program, CompiledModel& model) {
  for (size_t i = 0; i < program.inputs.size(); ++i)
    model.inputs.push_back({program.input_names[i], program.inputs[i]});
  for (size_t i = 0; i < program.outputs.size(); ++i)
    model.outputs.push_back({program.output_names[i], program.outputs[i]});
  model.symbols = program.symbols;
  for (const Step& step : program.steps) {
    model.kernels.push_back({step.kernel.name, step.kernel.str(), step.ops, step.sources, step.flops, step.bytes});
  }
  // A chain that runs in bands is measured as one, under its first kernel.
  for (const BandGroup& group : program.bands) {
    KernelInfo& leader = model.kernels[group.first];
    leader.name += "+" + std::to_string(group.members.size() - 1);
    for (size_t i = group.first + 1; i < group.first + group.members.size(); ++i) {
      leader.flops = leader.flops + model.kernels[i].flops;
      leader.bytes = leader.bytes + model.kernels[i].bytes;
    }
  }
  model.memory.arena_bytes = program.arena_bytes;
  model.memory.weight_bytes = program.weight_bytes;
}

}  // namespace

namespace {

std::shared_ptr<const CompiledModel> run_steps(Graph graph, const CompileOptions& options) {
  auto model = std::make_shared<CompiledModel>();
  Steps step(options, *model);
  TargetDescription target = target_from_name(options.target);
  model->target = target.name;
  model->features = target.features;
  if (!runs_here(target)) throw CompileError("this machine cannot run code for target " + target.name);

  verify(graph, "import");
  debug_dump(DebugLevel::Graphs, graph);
  step("transform", 0.0, [&] { transform(graph, target, options.precision); });
  verify(graph, "transform");

  Tuner tuner(target);
  ChooseSchedule choose;
  if (options.tune) {
    choose = [&](const Program& p, const Step& s, const std::vector<Kernel>& c) { return tuner.choose(p, s, c); };
  }
  Program program = step("lower", 0.1, [&] { return lower(graph, target, choose); });
  model->tuning = tuner.records();
  debug_dump(DebugLevel::Kernels, program);
  graph = Graph();

  GeneratedCode code = step("codegen", 0.2, [&] {
    return generate_code(program, target, threads_to_use(options.compile_threads), [&](double share) {
      if (options.progress) options.progress("codegen", 0.2 + 0.7 * share);
    });
  });
  debug_dump_code(program, target);

  LoadedCode loaded = step("load", 0.9, [&] { return load_objects(code.objects); });
  Tensor weights = step("weights", 0.95, [&] { return pack_weights(program); });

  describe(program, *model);
  model->memory.code_bytes = static_cast<int64_t>(loaded.size());
  model->plan = loaded.function<std::remove_pointer_t<cuvil_plan_fn>>(kPlanSymbol);
  model->run = loaded.function<std::remove_pointer_t<cuvil_run_fn>>(kRunSymbol);
  model->code_owner = loaded.owner();
  model->objects = std::move(code.objects);
  model->weights = weights.data();
  model->weights_owner = weights.owner();
  CUVIL_CHECK(model->plan && model->run, "the object lacks its entry functions");
  if (options.progress) options.progress("done", 1.0);
  return model;
}

}  // namespace

std::shared_ptr<const CompiledModel> compile(Graph graph, const CompileOptions& options) {
  Graph original = graph.clone();
  try {
    return run_steps(std::move(graph), options);
  } catch (const InternalError& e) {
    std::string path = write_reproducer(original);
    if (path.empty()) throw;
    throw InternalError(std::string(e.what()) + "\nThis is a fault of Cuvil. Please report it with the file " + path +
                        ", which holds the model's graph without its weights (replay it with cuvil-opt --pipeline "
                        "--emit=llvm).");
  }
}

}  // namespace cuvil
