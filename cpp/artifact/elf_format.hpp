// The parts of the ELF64 format (System V ABI and its x86-64 and AArch64 supplements) that the linker reads.
#pragma once

#include <cstdint>

namespace cuvil::elf {

struct Header {
  uint8_t ident[16];
  uint16_t type, machine;
  uint32_t version;
  uint64_t entry, program_headers, section_headers;
  uint32_t flags;
  uint16_t header_size, program_header_size, program_header_count;
  uint16_t section_header_size, section_count, section_names;
};

struct Section {
  uint32_t name, type;
  uint64_t flags, address, offset, size;
  uint32_t link, info;
  uint64_t alignment, entry_size;
};

struct Symbol {
  uint32_t name;
  uint8_t info, other;
  uint16_t section;
  uint64_t value, size;

  uint8_t binding() const { return info >> 4; }
};

struct Relocation {
  uint64_t offset, info;
  int64_t addend;

  uint32_t symbol() const { return static_cast<uint32_t>(info >> 32); }
  uint32_t type() const { return static_cast<uint32_t>(info); }
};

static_assert(sizeof(Header) == 64 && sizeof(Section) == 64 && sizeof(Symbol) == 24 && sizeof(Relocation) == 24);

inline constexpr uint16_t type_relocatable = 1;
inline constexpr uint16_t machine_x86_64 = 62;
inline constexpr uint16_t machine_aarch64 = 183;

enum SectionType : uint32_t { progbits = 1, symtab = 2, strtab = 3, rela = 4, nobits = 8, symtab_shndx = 18 };
enum SectionFlag : uint64_t { write = 1, alloc = 2, execinstr = 4, tls = 0x400 };
enum Binding : uint8_t { local = 0, global = 1, weak = 2 };
enum SectionIndex : uint16_t { undefined = 0, absolute = 0xfff1, common = 0xfff2, extended = 0xffff };

namespace x86_64 {
enum : uint32_t {
  r_64 = 1,
  r_pc32 = 2,
  r_plt32 = 4,
  r_gotpcrel = 9,
  r_pc64 = 24,
  r_gotpcrelx = 41,
  r_rex_gotpcrelx = 42
};
}  // namespace x86_64

namespace aarch64 {
enum : uint32_t {
  r_abs64 = 257,
  r_prel64 = 260,
  r_prel32 = 261,
  r_adr_prel_lo21 = 274,
  r_adr_prel_pg_hi21 = 275,
  r_add_abs_lo12_nc = 277,
  r_ldst8_abs_lo12_nc = 278,
  r_tstbr14 = 279,
  r_condbr19 = 280,
  r_jump26 = 282,
  r_call26 = 283,
  r_ldst16_abs_lo12_nc = 284,
  r_ldst32_abs_lo12_nc = 285,
  r_ldst64_abs_lo12_nc = 286,
  r_ldst128_abs_lo12_nc = 299,
  r_adr_got_page = 311,
  r_ld64_got_lo12_nc = 312
};
}  // namespace aarch64

}  // namespace cuvil::elf
