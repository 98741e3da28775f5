#include "artifact/shared_object.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "artifact/elf_format.hpp"
#include "runtime/abi.h"
#include "support/error.hpp"

namespace cuvil {

namespace {

struct ProgramHeader {
  uint32_t type, flags;
  uint64_t offset, address, physical, file_size, memory_size, alignment;
};
struct Dynamic {
  int64_t tag;
  uint64_t value;
};
static_assert(sizeof(ProgramHeader) == 56 && sizeof(Dynamic) == 16);

enum ProgramType : uint32_t { unused = 0, load = 1, dynamic = 2, gnu_stack = 0x6474e551 };
enum ProgramFlag : uint32_t { can_execute = 1, can_write = 2, can_read = 4 };
enum DynamicTag : int64_t {
  end = 0,
  hash = 4,
  string_table = 5,
  symbol_table = 6,
  relocations = 7,
  relocations_size = 8,
  relocation_size = 9,
  string_table_size = 10,
  symbol_size = 11,
  soname = 14,
  relative_count = 0x6ffffff9
};
constexpr uint16_t type_shared = 3;
constexpr size_t header_count = 7;
static_assert(sizeof(elf::Header) + header_count * sizeof(ProgramHeader) <= CUVIL_ARTIFACT_OFFSET);

uint32_t relative_relocation(uint16_t machine) {
  return machine == elf::machine_x86_64 ? 8 : 1027;
}

size_t align_up(size_t value, size_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

template <typename T>
void put(std::string& file, size_t offset, const T& value) {
  std::memcpy(file.data() + offset, &value, sizeof value);
}

// Appends and returns the offset.
size_t append(std::string& file, const void* data, size_t size, size_t alignment = 8) {
  file.resize(align_up(file.size(), alignment));
  size_t offset = file.size();
  file.append(static_cast<const char*>(data), size);
  return offset;
}

void write_all(int descriptor, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    ssize_t n = write(descriptor, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw CompileError("cannot write '" + path + "': " + std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

void replace_file(const std::string& path, std::string_view head, std::string_view weights) {
  std::string temporary = path + ".XXXXXX";
  int descriptor = mkstemp(temporary.data());
  if (descriptor < 0) throw CompileError("cannot write '" + path + "': " + std::strerror(errno));
  try {
    write_all(descriptor, head, path);
    write_all(descriptor, weights, path);
    const mode_t mask = umask(0);
    umask(mask);
    if (fchmod(descriptor, 0755 & ~mask) != 0 || fsync(descriptor) != 0 || close(descriptor) != 0 ||
        rename(temporary.c_str(), path.c_str()) != 0) {
      throw CompileError("cannot write '" + path + "': " + std::strerror(errno));
    }
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
}

}  // namespace

size_t artifact_page_size(uint16_t machine) {
  return machine == elf::machine_aarch64 ? 65536 : 4096;
}

void write_shared_object(const std::string& path, const ArtifactParts& parts) {
  const LinkedImage& image = *parts.image;
  const size_t page = artifact_page_size(image.machine);
  CUVIL_CHECK(image.segments.size() == 3, "an image of other segments than code, constants and data");

  // The head: headers, the artifact's structure, dynamic symbols, relocations, metadata.
  std::string file(CUVIL_ARTIFACT_OFFSET + sizeof(cuvil_artifact), '\0');
  std::string names(1, '\0');
  const size_t symbol_name = names.size();
  names += CUVIL_ARTIFACT_SYMBOL + std::string(1, '\0');
  const size_t soname_name = names.size();
  names += CUVIL_ARTIFACT_SONAME + std::string(1, '\0');
  elf::Symbol symbols[2] = {};
  symbols[1].name = static_cast<uint32_t>(symbol_name);
  symbols[1].info = elf::global << 4 | 1;  // an object
  symbols[1].section = 1;                  // defined; there are no sections to name
  symbols[1].value = CUVIL_ARTIFACT_OFFSET;
  symbols[1].size = sizeof(cuvil_artifact);
  const uint32_t hash_table[] = {1, 2, 1, 0, 0};  // one bucket for symbol 1
  const size_t symbols_at = append(file, symbols, sizeof symbols);
  const size_t names_at = append(file, names.data(), names.size());
  const size_t hash_at = append(file, hash_table, sizeof hash_table);
  const size_t metadata_at = append(file, parts.metadata.data(), parts.metadata.size());
  const size_t relocations_at = append(file, nullptr, 0);
  const size_t relocations_bytes = image.base_relative.size() * sizeof(elf::Relocation);
  const size_t head_end = relocations_at + relocations_bytes;

  const size_t base = align_up(head_end, page);
  std::vector<elf::Relocation> relocations_list;
  for (uint64_t place : image.base_relative) {
    uint64_t target;
    std::memcpy(&target, image.bytes.data() + place, sizeof target);
    relocations_list.push_back({base + place, relative_relocation(image.machine), static_cast<int64_t>(base + target)});
  }
  file.append(reinterpret_cast<const char*>(relocations_list.data()), relocations_bytes);

  file.resize(base);
  file.append(reinterpret_cast<const char*>(image.bytes.data()), image.bytes.size());
  const LinkedImage::Segment& data = image.segments[2];
  const size_t data_at = base + data.offset;
  file.resize(align_up(data_at + data.size, 16));
  const Dynamic entries[] = {{soname, soname_name},
                             {hash, hash_at},
                             {string_table, names_at},
                             {string_table_size, names.size()},
                             {symbol_table, symbols_at},
                             {symbol_size, sizeof(elf::Symbol)},
                             {relocations, relocations_at},
                             {relocations_size, relocations_bytes},
                             {relocation_size, sizeof(elf::Relocation)},
                             {relative_count, image.base_relative.size()},
                             {end, 0}};
  const size_t dynamic_at = append(file, entries, sizeof entries, 16);
  const size_t data_end = file.size();
  file.resize(align_up(file.size(), page));
  const size_t weights_at = file.size();

  elf::Header header{};
  const uint8_t ident[] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
  std::memcpy(header.ident, ident, sizeof ident);
  header.type = type_shared;
  header.machine = image.machine;
  header.version = 1;
  header.program_headers = sizeof header;
  header.header_size = sizeof header;
  header.program_header_size = sizeof(ProgramHeader);
  header.program_header_count = header_count;
  put(file, 0, header);
  size_t next = sizeof header;
  auto segment = [&](uint32_t type, uint32_t flags, size_t offset, size_t size, size_t alignment) {
    if (type == load && size == 0) type = unused;
    put(file, next, ProgramHeader{type, flags, offset, offset, offset, size, size, alignment});
    next += sizeof(ProgramHeader);
  };
  segment(load, can_read, 0, head_end, page);
  segment(load, can_read | can_execute, base + image.segments[0].offset, image.segments[0].size, page);
  segment(load, can_read, base + image.segments[1].offset, image.segments[1].size, page);
  segment(load, can_read | can_write, data_at, data_end - data_at, page);
  segment(load, can_read, weights_at, parts.weights.size(), page);
  segment(dynamic, can_read | can_write, dynamic_at, sizeof entries, 16);
  segment(gnu_stack, can_read | can_write, 0, 0, 16);

  auto position = [&](const std::string& symbol) {
    auto found = image.symbols.find(symbol);
    CUVIL_CHECK(found != image.symbols.end(), "the image lacks " + symbol);
    return base + found->second;
  };
  cuvil_artifact head{};
  head.magic = CUVIL_ARTIFACT_MAGIC;
  head.abi_version = CUVIL_ABI_VERSION;
  head.machine = image.machine;
  head.file_bytes = weights_at + parts.weights.size();
  head.plan = position(parts.plan_symbol);
  head.run = position(parts.run_symbol);
  head.weights = weights_at;
  head.weights_bytes = parts.weights.size();
  head.metadata = metadata_at;
  head.metadata_bytes = parts.metadata.size();
  head.exports_hash = cuvil_hash(CUVIL_ARTIFACT_SYMBOL, std::strlen(CUVIL_ARTIFACT_SYMBOL), 0);
  head.weights_checksum = cuvil_hash(parts.weights.data(), parts.weights.size(), 0);
  put(file, CUVIL_ARTIFACT_OFFSET, head);
  const size_t checked_from = CUVIL_ARTIFACT_OFFSET + offsetof(cuvil_artifact, file_bytes);
  uint64_t sum = cuvil_hash(file.data(), CUVIL_ARTIFACT_OFFSET, 0);
  head.code_checksum = cuvil_hash(file.data() + checked_from, weights_at - checked_from, sum);
  put(file, CUVIL_ARTIFACT_OFFSET, head);
  replace_file(path, file, parts.weights);
}

}  // namespace cuvil
