#include "runtime/artifact.hpp"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cuvil::runtime {

namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = 62;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = 183;
#elif defined(__riscv)
constexpr uint16_t kMachine = 243;
#else
constexpr uint16_t kMachine = 0;
#endif

thread_local char g_message[512];

struct ElfHeader {
  uint8_t ident[16];
  uint16_t type, machine;
  uint32_t version;
  uint64_t entry, program_headers, section_headers;
  uint32_t flags;
  uint16_t header_size, program_header_size, program_header_count, rest[3];
};
struct ProgramHeader {
  uint32_t type, flags;
  uint64_t offset, address, physical, file_size, memory_size, alignment;
};
struct Dynamic {
  int64_t tag;
  uint64_t value;
};
struct Relocation {
  uint64_t offset, info;
  int64_t addend;
};
static_assert(sizeof(ElfHeader) == 64 && sizeof(ProgramHeader) == 56);

constexpr uint32_t kLoad = 1, kDynamic = 2;
constexpr uint32_t kExecute = 1, kWrite = 2, kRead = 4;
constexpr int64_t kRelocations = 7, kRelocationsSize = 8, kSoname = 14, kStrings = 5;
constexpr int kMostHeaders = 8;

// A file that is open, and the size it had when it was opened.
struct File {
  int descriptor = -1;
  uint64_t bytes = 0;
  ~File() {
    if (descriptor >= 0) close(descriptor);
  }
};

cuvil_status open_file(const char* path, const cuvil_load_options* options, File* file) {
  file->descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (file->descriptor < 0) return set_error(CUVIL_STATUS_FILE, "cannot open '%s': %s", path, strerror(errno));
  struct stat info;
  if (fstat(file->descriptor, &info) != 0 || !S_ISREG(info.st_mode))
    return set_error(CUVIL_STATUS_FILE, "'%s' is not a file", path);
  const bool allowed = options && options->allow_shared_writes;
  if ((info.st_mode & S_IWOTH) && !allowed) {
    return set_error(CUVIL_STATUS_UNSAFE, "'%s' may be written by anybody, so it is not loaded (chmod o-w)", path);
  }
  file->bytes = static_cast<uint64_t>(info.st_size);
  return CUVIL_STATUS_OK;
}

struct Head {
  ElfHeader elf;
  ProgramHeader programs[kMostHeaders];
  cuvil_artifact artifact;
};

bool within(uint64_t offset, uint64_t bytes, uint64_t end) {
  return offset <= end && bytes <= end - offset;
}

cuvil_status read_head(const char* path, const File& file, Head* head) {
  char start[CUVIL_ARTIFACT_OFFSET + sizeof(cuvil_artifact)];
  if (pread(file.descriptor, start, sizeof start, 0) != static_cast<ssize_t>(sizeof start))
    return set_error(CUVIL_STATUS_FORMAT, "'%s' is not a compiled model: it is too short", path);
  memcpy(&head->elf, start, sizeof head->elf);
  memcpy(&head->artifact, start + CUVIL_ARTIFACT_OFFSET, sizeof head->artifact);
  const cuvil_artifact& a = head->artifact;
  static const uint8_t ident[] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
  if (memcmp(head->elf.ident, ident, sizeof ident) != 0 || head->elf.type != 3 || a.magic != CUVIL_ARTIFACT_MAGIC)
    return set_error(CUVIL_STATUS_FORMAT, "'%s' is not a compiled model", path);
  if (a.abi_version != CUVIL_ABI_VERSION) {
    return set_error(CUVIL_STATUS_VERSION, "'%s' was compiled for version %u of the runtime's interface, this is %u",
                     path, a.abi_version, CUVIL_ABI_VERSION);
  }
  if (head->elf.machine != kMachine || a.machine != kMachine) {
    return set_error(CUVIL_STATUS_MACHINE, "'%s' was compiled for another machine (ELF machine %u, this is %u)", path,
                     head->elf.machine, kMachine);
  }
  if (a.file_bytes != file.bytes) {
    return set_error(CUVIL_STATUS_FORMAT, "'%s' is damaged: it has %llu bytes instead of %llu", path,
                     static_cast<unsigned long long>(file.bytes), static_cast<unsigned long long>(a.file_bytes));
  }
  const uint64_t end = a.file_bytes;
  if (head->elf.program_header_count > kMostHeaders || head->elf.program_headers != sizeof(ElfHeader) ||
      !within(a.weights, a.weights_bytes, end) || !within(a.metadata, a.metadata_bytes, a.weights) ||
      a.plan >= a.weights || a.run >= a.weights) {
    return set_error(CUVIL_STATUS_FORMAT, "'%s' is damaged", path);
  }
  memcpy(head->programs, start + sizeof(ElfHeader), head->elf.program_header_count * sizeof(ProgramHeader));
  return CUVIL_STATUS_OK;
}

cuvil_status check_sums(const char* path, const File& file, const cuvil_artifact& a, bool weights_too) {
  const size_t bytes = static_cast<size_t>(weights_too ? a.file_bytes : a.weights);
  void* memory = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.descriptor, 0);
  if (memory == MAP_FAILED) return set_error(CUVIL_STATUS_MEMORY, "cannot map '%s': %s", path, strerror(errno));
  madvise(memory, bytes, MADV_SEQUENTIAL);
  const char* p = static_cast<const char*>(memory);
  const size_t from = CUVIL_ARTIFACT_OFFSET + offsetof(cuvil_artifact, file_bytes);
  uint64_t sum = cuvil_hash(p, CUVIL_ARTIFACT_OFFSET, 0);
  bool intact = cuvil_hash(p + from, a.weights - from, sum) == a.code_checksum;
  if (intact && weights_too) intact = cuvil_hash(p + a.weights, a.weights_bytes, 0) == a.weights_checksum;
  munmap(memory, bytes);
  return intact ? CUVIL_STATUS_OK
                : set_error(CUVIL_STATUS_FORMAT, "'%s' is damaged: its checksum is not that of its contents", path);
}

cuvil_status map_segments(const char* path, const File& file, const Head& head, MappedArtifact* out) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t total = (file.bytes + page - 1) / page * page;
  void* area = mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (area == MAP_FAILED) return set_error(CUVIL_STATUS_MEMORY, "cannot map '%s': %s", path, strerror(errno));
  out->base = static_cast<char*>(area);
  out->bytes = total;
  for (int i = 0; i < head.elf.program_header_count; ++i) {
    const ProgramHeader& p = head.programs[i];
    if (p.type != kLoad) continue;
    const bool executable = p.flags & kExecute, writable = p.flags & kWrite;
    if (p.offset != p.address || p.offset % page != 0 || p.file_size != p.memory_size ||
        !within(p.offset, p.file_size, file.bytes) || (executable && writable)) {
      unmap_artifact(out);
      return set_error(CUVIL_STATUS_FORMAT, "'%s' cannot be mapped with pages of %llu bytes", path,
                       static_cast<unsigned long long>(page));
    }
    const int protection = PROT_READ | (executable ? PROT_EXEC : 0) | (writable ? PROT_WRITE : 0);
    if (mmap(out->base + p.offset, p.file_size, protection, MAP_PRIVATE | MAP_FIXED, file.descriptor,
             static_cast<off_t>(p.offset)) == MAP_FAILED) {
      unmap_artifact(out);
      return set_error(CUVIL_STATUS_MEMORY, "cannot map '%s': %s", path, strerror(errno));
    }
  }
  return CUVIL_STATUS_OK;
}

bool in_segment(const Head& head, uint32_t flag, uint64_t offset, uint64_t bytes) {
  for (int i = 0; i < head.elf.program_header_count; ++i) {
    const ProgramHeader& p = head.programs[i];
    if (p.type == kLoad && (p.flags & flag) && offset >= p.offset && within(offset - p.offset, bytes, p.file_size))
      return true;
  }
  return false;
}

// Relocations of the image's own addresses; there are no others. The code's checksum has vouched for them.
cuvil_status relocate(const char* path, const Head& head, MappedArtifact* image) {
  uint64_t table = 0, bytes = 0, soname = 0, strings = 0;
  for (int i = 0; i < head.elf.program_header_count; ++i) {
    const ProgramHeader& p = head.programs[i];
    if (p.type != kDynamic || !in_segment(head, kWrite, p.offset, p.file_size)) continue;
    for (uint64_t at = p.offset; at + sizeof(Dynamic) <= p.offset + p.file_size; at += sizeof(Dynamic)) {
      Dynamic d;
      memcpy(&d, image->base + at, sizeof d);
      if (d.tag == kRelocations) table = d.value;
      if (d.tag == kRelocationsSize) bytes = d.value;
      if (d.tag == kSoname) soname = d.value;
      if (d.tag == kStrings) strings = d.value;
    }
  }
  const uint64_t name = strings + soname;
  if (!in_segment(head, kRead, name, sizeof CUVIL_ARTIFACT_SONAME) ||
      memcmp(image->base + name, CUVIL_ARTIFACT_SONAME, sizeof CUVIL_ARTIFACT_SONAME) != 0) {
    return set_error(CUVIL_STATUS_VERSION, "'%s' has another SONAME than " CUVIL_ARTIFACT_SONAME, path);
  }
  if (!in_segment(head, kRead, table, bytes)) return set_error(CUVIL_STATUS_FORMAT, "'%s' is damaged", path);
  for (uint64_t at = table; at + sizeof(Relocation) <= table + bytes; at += sizeof(Relocation)) {
    Relocation r;
    memcpy(&r, image->base + at, sizeof r);
    if (!in_segment(head, kWrite, r.offset, sizeof(uint64_t)))
      return set_error(CUVIL_STATUS_FORMAT, "'%s' relocates what is read only", path);
    const uint64_t address = reinterpret_cast<uintptr_t>(image->base) + static_cast<uint64_t>(r.addend);
    memcpy(image->base + r.offset, &address, sizeof address);
  }
  return CUVIL_STATUS_OK;
}

}  // namespace

const char* error_message() {
  return g_message;
}

cuvil_status set_error(cuvil_status status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(g_message, sizeof g_message, format, arguments);
  va_end(arguments);
  return status;
}

cuvil_status map_artifact(const char* path, const cuvil_load_options* options, MappedArtifact* out) {
  File file;
  Head head;
  if (cuvil_status s = open_file(path, options, &file)) return s;
  if (cuvil_status s = read_head(path, file, &head)) return s;
  if (cuvil_status s = check_sums(path, file, head.artifact, !(options && options->skip_weights_check))) return s;
  if (head.artifact.exports_hash != cuvil_hash(CUVIL_ARTIFACT_SYMBOL, strlen(CUVIL_ARTIFACT_SYMBOL), 0)) {
    fprintf(stderr, "cuvil: '%s' exports other symbols than this runtime expects\n", path);
  }
  if (cuvil_status s = map_segments(path, file, head, out)) return s;
  if (!in_segment(head, kExecute, head.artifact.plan, 1) || !in_segment(head, kExecute, head.artifact.run, 1)) {
    unmap_artifact(out);
    return set_error(CUVIL_STATUS_FORMAT, "'%s' is damaged: its functions are not code", path);
  }
  if (cuvil_status s = relocate(path, head, out)) {
    unmap_artifact(out);
    return s;
  }
  return CUVIL_STATUS_OK;
}

void unmap_artifact(MappedArtifact* artifact) {
  if (artifact->base) munmap(artifact->base, artifact->bytes);
  *artifact = {};
}

}  // namespace cuvil::runtime
