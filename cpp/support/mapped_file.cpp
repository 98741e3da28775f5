#include "support/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "support/error.hpp"

namespace cuvil {

MappedFile map_file(const std::string& path) {
  auto fail = [&](const char* what) {
    throw CompileError("cannot " + std::string(what) + " '" + path + "': " + std::strerror(errno));
  };
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("open");
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    if (!S_ISREG(info.st_mode)) errno = EISDIR;
    close(fd);
    fail("read");
  }
  auto size = static_cast<size_t>(info.st_size);
  if (size == 0) {
    close(fd);
    return {};
  }
  void* memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) fail("map");
  std::shared_ptr<const void> owner(memory, [size](const void* p) { munmap(const_cast<void*>(p), size); });
  return {{static_cast<const char*>(memory), size}, owner};
}

}  // namespace cuvil
