#include "artifact/object_linker.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "artifact/elf_format.hpp"
#include "artifact/relocate.hpp"
#include "support/error.hpp"

namespace cuvil {
namespace {

constexpr size_t not_placed = ~size_t{0};
constexpr size_t segment_count = 3;
enum SegmentKind : size_t { code_segment, constant_segment, data_segment };

struct Object {
  std::string_view bytes;
  std::vector<elf::Section> sections;
  std::vector<size_t> placed;  // offset in the image by section, or not_placed
  std::vector<elf::Symbol> symbols;
  std::vector<uint32_t> extended_indices;  // of SHT_SYMTAB_SHNDX
  std::string_view symbol_names;
};

size_t align_up(size_t value, size_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

std::string_view slice(std::string_view bytes, uint64_t offset, uint64_t size) {
  CUVIL_CHECK(offset <= bytes.size() && size <= bytes.size() - offset, "truncated object");
  return bytes.substr(offset, size);
}

template <typename T>
std::vector<T> read_array(std::string_view bytes) {
  CUVIL_CHECK(bytes.size() % sizeof(T) == 0, "object with a broken table");
  std::vector<T> items(bytes.size() / sizeof(T));
  if (!items.empty()) std::memcpy(items.data(), bytes.data(), bytes.size());
  return items;
}

std::string name_at(std::string_view table, uint32_t offset) {
  CUVIL_CHECK(offset < table.size(), "object with a broken name");
  const std::string_view rest = table.substr(offset);
  return std::string(rest.substr(0, rest.find('\0')));
}

Object read_object(std::string_view bytes, uint16_t& machine) {
  elf::Header header;
  CUVIL_CHECK(bytes.size() >= sizeof header, "truncated object");
  std::memcpy(&header, bytes.data(), sizeof header);
  constexpr uint8_t elf64_little_endian[6] = {0x7f, 'E', 'L', 'F', 2, 1};
  CUVIL_CHECK(std::equal(elf64_little_endian, elf64_little_endian + 6, header.ident) &&
                  header.type == elf::type_relocatable && header.section_header_size == sizeof(elf::Section),
              "not a relocatable ELF64 object");
  CUVIL_CHECK(machine == 0 || machine == header.machine, "objects of different machines");
  machine = header.machine;

  Object object;
  object.bytes = bytes;
  uint64_t section_count = header.section_count;
  if (section_count == 0 && header.section_headers != 0) {  // more than 16 bits hold: the count is in section 0
    const auto first = read_array<elf::Section>(slice(bytes, header.section_headers, sizeof(elf::Section)));
    section_count = first[0].size;
  }
  CUVIL_CHECK(section_count <= bytes.size() / sizeof(elf::Section), "truncated object");
  object.sections =
      read_array<elf::Section>(slice(bytes, header.section_headers, section_count * sizeof(elf::Section)));
  object.placed.assign(object.sections.size(), not_placed);
  for (const elf::Section& section : object.sections) {
    if (section.type == elf::symtab) {
      CUVIL_CHECK(section.link < object.sections.size(), "object with a broken symbol table");
      const elf::Section& names = object.sections[section.link];
      object.symbols = read_array<elf::Symbol>(slice(bytes, section.offset, section.size));
      object.symbol_names = slice(bytes, names.offset, names.size);
    } else if (section.type == elf::symtab_shndx) {
      object.extended_indices = read_array<uint32_t>(slice(bytes, section.offset, section.size));
    }
  }
  return object;
}

// The segment a section is loaded into; none for debug information, unwind tables and notes.
std::optional<SegmentKind> segment_of(const elf::Section& section, std::string_view bytes, const Object& object) {
  if ((section.flags & elf::alloc) == 0 || section.size == 0) return std::nullopt;
  if (section.type != elf::progbits && section.type != elf::nobits) return std::nullopt;
  CUVIL_CHECK((section.flags & elf::tls) == 0, "thread-local data in compiled code");
  if ((section.flags & elf::execinstr) != 0) return code_segment;
  if ((section.flags & elf::write) != 0) return data_segment;
  elf::Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const elf::Section& names = object.sections[header.section_names];
  const std::string name = name_at(slice(bytes, names.offset, names.size), section.name);
  if (name.starts_with(".eh_frame")) return std::nullopt;
  return constant_segment;
}

class Linker {
 public:
  Linker(const std::vector<std::string_view>& objects, size_t page_size) : page_size_(page_size) {
    for (std::string_view bytes : objects) objects_.push_back(read_object(bytes, image_.machine));
    CUVIL_CHECK(objects.empty() || image_.machine == elf::machine_x86_64 || image_.machine == elf::machine_aarch64,
                "objects of a machine the linker does not know");
  }

  LinkedImage link() {
    place_sections();
    define_symbols();
    place_got();
    copy_sections();
    relocate();
    return std::move(image_);
  }

 private:
  void place_sections() {
    size_t offset = 0;
    for (size_t kind = 0; kind < segment_count; ++kind) {
      offset = align_up(offset, page_size_);
      LinkedImage::Segment segment;
      segment.offset = offset;
      segment.executable = kind == code_segment;
      segment.writable = kind == data_segment;
      for (Object& object : objects_) {
        for (size_t i = 0; i < object.sections.size(); ++i) {
          const elf::Section& section = object.sections[i];
          if (segment_of(section, object.bytes, object) != static_cast<SegmentKind>(kind)) continue;
          const size_t alignment = std::max<size_t>(section.alignment, 1);
          CUVIL_CHECK(std::has_single_bit(alignment) && alignment <= page_size_, "object with a broken alignment");
          offset = align_up(offset, alignment);
          object.placed[i] = offset;
          offset += section.size;
        }
      }
      segment.size = offset - segment.offset;
      image_.segments.push_back(segment);
    }
    end_ = offset;
  }

  // Offset of a symbol the object defines; none for one it takes from elsewhere.
  std::optional<uint64_t> defined_at(const Object& object, size_t index) const {
    const elf::Symbol& symbol = object.symbols[index];
    uint32_t section = symbol.section;
    if (section == elf::undefined) return std::nullopt;
    if (section == elf::extended) {
      CUVIL_CHECK(index < object.extended_indices.size(), "object with a broken symbol table");
      section = object.extended_indices[index];
    }
    if (section >= object.placed.size() || object.placed[section] == not_placed) return std::nullopt;
    return object.placed[section] + symbol.value;
  }

  void define_symbols() {
    std::map<std::string, bool> is_weak;
    std::string duplicates;
    for (const Object& object : objects_) {
      for (size_t i = 1; i < object.symbols.size(); ++i) {
        const elf::Symbol& symbol = object.symbols[i];
        if (symbol.binding() == elf::local) continue;
        const std::optional<uint64_t> offset = defined_at(object, i);
        if (!offset) continue;
        const std::string name = name_at(object.symbol_names, symbol.name);
        const bool weak = symbol.binding() == elf::weak;
        const auto [known, is_new] = is_weak.emplace(name, weak);
        if (is_new || (known->second && !weak)) {
          known->second = weak;
          image_.symbols[name] = *offset;
        } else if (!known->second && !weak) {
          duplicates += " " + name;
        }
      }
    }
    CUVIL_CHECK(duplicates.empty(), "symbols defined twice:" + duplicates);

    std::string undefined;
    for (const Object& object : objects_) {
      for (size_t i = 1; i < object.symbols.size(); ++i) {
        if (object.symbols[i].section != elf::undefined) continue;
        const std::string name = name_at(object.symbol_names, object.symbols[i].name);
        // The assembler lists this name for code that addresses data through the GOT's base; nothing refers to it.
        if (name.empty() || name == "_GLOBAL_OFFSET_TABLE_" || image_.symbols.count(name) != 0) continue;
        if (undefined.find(" " + name + ",") == std::string::npos) undefined += " " + name + ",";
      }
    }
    if (!undefined.empty()) undefined.pop_back();
    CUVIL_CHECK(undefined.empty(), "compiled code calls what it does not contain:" + undefined);
  }

  uint64_t address_of(const Object& object, uint32_t index) const {
    CUVIL_CHECK(index < object.symbols.size(), "object with a broken relocation");
    const elf::Symbol& symbol = object.symbols[index];
    if (symbol.binding() != elf::local) {
      // A weak definition may have been replaced by another object's.
      const auto found = image_.symbols.find(name_at(object.symbol_names, symbol.name));
      if (found != image_.symbols.end()) return found->second;
    }
    const std::optional<uint64_t> offset = defined_at(object, index);
    CUVIL_CHECK(offset.has_value(), "relocation against a symbol that is not in the image");
    return *offset;
  }

  template <typename Function>
  void for_each_relocation(Function&& function) {
    for (const Object& object : objects_) {
      for (const elf::Section& section : object.sections) {
        if (section.type != elf::rela || section.info >= object.placed.size()) continue;
        const size_t target = object.placed[section.info];
        if (target == not_placed) continue;
        for (const elf::Relocation& r :
             read_array<elf::Relocation>(slice(object.bytes, section.offset, section.size))) {
          CUVIL_CHECK(r.offset < object.sections[section.info].size, "object with a broken relocation");
          function(object, r, target + r.offset);
        }
      }
    }
  }

  void place_got() {
    for_each_relocation([&](const Object& object, const elf::Relocation& r, uint64_t) {
      if (uses_got(image_.machine, r.type())) got_.emplace(address_of(object, r.symbol()), 0);
    });
    if (!got_.empty()) {
      LinkedImage::Segment& data = image_.segments[data_segment];
      end_ = align_up(end_, sizeof(uint64_t));
      for (auto& [address, slot] : got_) {
        slot = end_;
        end_ += sizeof(uint64_t);
      }
      data.size = end_ - data.offset;
    }
    image_.bytes.assign(align_up(end_, page_size_), 0);
    for (const auto& [address, slot] : got_) write_base_relative(slot, address);
  }

  void copy_sections() {
    for (const Object& object : objects_) {
      for (size_t i = 0; i < object.sections.size(); ++i) {
        const elf::Section& section = object.sections[i];
        if (object.placed[i] == not_placed || section.type == elf::nobits) continue;
        const std::string_view bytes = slice(object.bytes, section.offset, section.size);
        std::memcpy(image_.bytes.data() + object.placed[i], bytes.data(), bytes.size());
      }
    }
  }

  void relocate() {
    for_each_relocation([&](const Object& object, const elf::Relocation& r, uint64_t place) {
      const uint64_t symbol = address_of(object, r.symbol());
      if (is_absolute(image_.machine, r.type())) {
        CUVIL_CHECK(place + 8 <= image_.bytes.size(), "object with a broken relocation");
        write_base_relative(place, symbol + static_cast<uint64_t>(r.addend));
        return;
      }
      const uint64_t value = uses_got(image_.machine, r.type()) ? got_.at(symbol) : symbol;
      apply_relocation(image_.machine, r.type(), image_.bytes, place, value, r.addend);
    });
  }

  void write_base_relative(uint64_t place, uint64_t offset) {
    std::memcpy(image_.bytes.data() + place, &offset, sizeof offset);
    image_.base_relative.push_back(place);
  }

  size_t page_size_;
  size_t end_ = 0;
  std::vector<Object> objects_;
  std::map<uint64_t, uint64_t> got_;  // address -> slot
  LinkedImage image_;
};

}  // namespace

uint16_t machine_of(std::string_view object) {
  elf::Header header;
  CUVIL_CHECK(object.size() >= sizeof header, "truncated object");
  std::memcpy(&header, object.data(), sizeof header);
  return header.machine;
}

LinkedImage link_objects(const std::vector<std::string_view>& objects, size_t page_size) {
  return Linker(objects, page_size).link();
}

}  // namespace cuvil
