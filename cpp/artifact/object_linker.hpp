// Joins relocatable ELF objects into one position-independent image. The loader maps the image; a writer of shared
// objects stores it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace cuvil {

/// Code and data of some objects, laid out for any base address that is a multiple of the page size.
struct LinkedImage {
  struct Segment {
    size_t offset = 0;  // multiple of the page size
    size_t size = 0;    // in memory; not rounded to pages
    bool writable = false;
    bool executable = false;
  };
  std::vector<uint8_t> bytes;
  std::vector<Segment> segments;            // code, constants, data; an empty one has size 0
  std::vector<uint64_t> base_relative;      // offsets of 64-bit words that hold an offset and become base + offset
  std::map<std::string, uint64_t> symbols;  // offset of every global symbol
  uint16_t machine = 0;                     // e_machine of the objects
};

/// The machine (e_machine) an object is for.
uint16_t machine_of(std::string_view object);

/// Links ELF64 objects of one machine, x86-64 or AArch64. Throws InternalError for undefined or doubly defined
/// symbols and for relocations that position-independent code does not have.
LinkedImage link_objects(const std::vector<std::string_view>& objects, size_t page_size);

}  // namespace cuvil
