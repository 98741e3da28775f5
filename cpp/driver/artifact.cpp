#include "driver/artifact.hpp"

#include <sstream>

#include "artifact/object_linker.hpp"
#include "artifact/shared_object.hpp"
#include "codegen/codegen.hpp"
#include "runtime/artifact.hpp"
#include "support/error.hpp"

namespace cuvil {

namespace {

std::string escape(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '\t') {
      out += "\\t";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\\') {
      out += "\\\\";
    } else if (c != '\0') {
      out += c;
    }
  }
  return out;
}

std::string unescape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      ++i;
      out += text[i] == 't' ? '\t' : text[i] == 'n' ? '\n' : text[i];
    } else {
      out += text[i];
    }
  }
  return out;
}

void write_line(std::string& out, const std::vector<std::string>& fields) {
  for (size_t i = 0; i < fields.size(); ++i) out += (i ? "\t" : "") + escape(fields[i]);
  out += "\n";
}

std::string metadata_of(const CompiledModel& model) {
  std::string out;
  write_line(out, {"target", model.target});
  write_line(out, {"features", model.features});
  for (const Dim& s : model.symbols) {
    write_line(out, {"symbol", s.symbol_name(), std::to_string(s.lower_bound().value_or(0)),
                     std::to_string(s.upper_bound().value_or(Dim::kUnbounded))});
  }
  for (const auto* list : {&model.inputs, &model.outputs}) {
    for (const TensorInfo& info : *list) {
      std::vector<std::string> fields{list == &model.inputs ? "input" : "output", info.name,
                                      std::string(name_of(info.type.dtype))};
      for (const Dim& d : info.type.shape) fields.push_back(d.str());
      write_line(out, fields);
    }
  }
  write_line(out, {"arena", model.memory.arena_bytes.str()});
  write_line(out, {"code", std::to_string(model.memory.code_bytes)});
  for (const KernelInfo& k : model.kernels) {
    std::string ops;
    for (const std::string& op : k.ops) ops += (ops.empty() ? "" : ",") + op;
    std::vector<std::string> fields{"kernel", k.name, k.description, ops, k.flops.str(), k.bytes.str()};
    fields.insert(fields.end(), k.sources.begin(), k.sources.end());
    write_line(out, fields);
  }
  return out;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

void read_line(const std::vector<std::string>& fields, CompiledModel& model) {
  auto dim = [&](const std::string& text) {
    return Dim::parse(text, [&](const std::string& name) {
      for (const Dim& s : model.symbols) {
        if (s.symbol_name() == name) return s;
      }
      throw LoadError("the file names a size '" + name + "' that it does not declare");
    });
  };
  const std::string& kind = fields.at(0);
  if (kind == "target") {
    model.target = fields.at(1);
  } else if (kind == "features") {
    model.features = fields.at(1);
  } else if (kind == "symbol") {
    model.symbols.push_back(Dim::symbol(fields.at(1), std::stoll(fields.at(2)), std::stoll(fields.at(3))));
  } else if (kind == "input" || kind == "output") {
    auto dtype = dtype_from_name(fields.at(2));
    if (!dtype) throw LoadError("the file has an element type '" + fields[2] + "' that this version does not know");
    Type type{*dtype, {}};
    for (size_t i = 3; i < fields.size(); ++i) type.shape.push_back(dim(fields[i]));
    (kind == "input" ? model.inputs : model.outputs).push_back({fields.at(1), std::move(type)});
  } else if (kind == "arena") {
    model.memory.arena_bytes = dim(fields.at(1));
  } else if (kind == "code") {
    model.memory.code_bytes = std::stoll(fields.at(1));
  } else if (kind == "kernel") {
    KernelInfo k;
    k.name = fields.at(1);
    k.description = fields.at(2);
    k.ops = split(fields.at(3), ',');
    k.flops = dim(fields.at(4));
    k.bytes = dim(fields.at(5));
    k.sources.assign(fields.begin() + 6, fields.end());
    model.kernels.push_back(std::move(k));
  }
}

}  // namespace

void save_model(const CompiledModel& model, const std::string& path) {
  CUVIL_CHECK(!model.objects.empty(), "a model that was loaded has no objects to save");
  std::vector<std::string_view> objects(model.objects.begin(), model.objects.end());
  const LinkedImage image = link_objects(objects, artifact_page_size(machine_of(objects[0])));
  const std::string metadata = metadata_of(model);
  ArtifactParts parts;
  parts.image = &image;
  parts.plan_symbol = kPlanSymbol;
  parts.run_symbol = kRunSymbol;
  parts.weights = {static_cast<const char*>(model.weights), static_cast<size_t>(model.memory.weight_bytes)};
  parts.metadata = metadata;
  write_shared_object(path, parts);
}

std::shared_ptr<const CompiledModel> load_model(const std::string& path, bool check_weights) {
  cuvil_load_options options{sizeof(cuvil_load_options), !check_weights, 0};
  runtime::MappedArtifact mapped;
  if (runtime::map_artifact(path.c_str(), &options, &mapped)) throw LoadError(runtime::error_message());
  std::shared_ptr<runtime::MappedArtifact> owner(new runtime::MappedArtifact(mapped), [](runtime::MappedArtifact* m) {
    runtime::unmap_artifact(m);
    delete m;
  });
  auto model = std::make_shared<CompiledModel>();
  const std::string metadata(mapped.metadata(), mapped.metadata_bytes());
  try {
    for (const std::string& line : split(metadata, '\n')) {
      std::vector<std::string> fields = split(line, '\t');
      if (line.ends_with('\t')) fields.emplace_back();
      for (std::string& field : fields) field = unescape(field);
      if (!fields.empty()) read_line(fields, *model);
    }
  } catch (const std::logic_error& e) {  // at() and stoll()
    throw LoadError("'" + path + "' has metadata that this version cannot read");
  }
  if (runtime::check_features(model->features.data(), model->features.size()))
    throw LoadError("'" + path + "': " + runtime::error_message());
  model->memory.weight_bytes = static_cast<int64_t>(mapped.head()->weights_bytes);
  model->plan = mapped.plan();
  model->run = mapped.run();
  model->weights = mapped.weights();
  model->code_owner = owner;
  model->weights_owner = owner;
  return model;
}

}  // namespace cuvil
