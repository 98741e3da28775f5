#include "artifact/relocate.hpp"

#include <cstring>
#include <string>

#include "artifact/elf_format.hpp"
#include "support/error.hpp"

namespace cuvil {
namespace {

void check_fits(int64_t value, int bits) {
  const int64_t limit = int64_t{1} << (bits - 1);
  CUVIL_CHECK(value >= -limit && value < limit, "compiled code is too large: a reference does not reach");
}

template <typename T>
T load(const std::vector<uint8_t>& image, uint64_t place) {
  CUVIL_CHECK(place + sizeof(T) <= image.size(), "object with a broken relocation");
  T value;
  std::memcpy(&value, image.data() + place, sizeof value);
  return value;
}

template <typename T>
void store(std::vector<uint8_t>& image, uint64_t place, T value) {
  CUVIL_CHECK(place + sizeof(T) <= image.size(), "object with a broken relocation");
  std::memcpy(image.data() + place, &value, sizeof value);
}

void store_relative_32(std::vector<uint8_t>& image, uint64_t place, int64_t value) {
  check_fits(value, 32);
  store(image, place, static_cast<int32_t>(value));
}

void unknown(uint32_t type) {
  internal_error(__FILE__, __LINE__, "relocation " + std::to_string(type) + " is not one of position-independent code");
}

void apply_x86_64(uint32_t type, std::vector<uint8_t>& image, uint64_t place, int64_t target) {
  const int64_t distance = target - static_cast<int64_t>(place);
  switch (type) {
    case elf::x86_64::r_pc32:
    case elf::x86_64::r_plt32:
    case elf::x86_64::r_gotpcrel:
    case elf::x86_64::r_gotpcrelx:
    case elf::x86_64::r_rex_gotpcrelx:
      store_relative_32(image, place, distance);
      return;
    case elf::x86_64::r_pc64:
      store(image, place, distance);
      return;
    default:
      unknown(type);
  }
}

// Puts `value` into `bits` bits of the instruction at `place`, from bit `low` up.
void set_field(std::vector<uint8_t>& image, uint64_t place, int low, int bits, uint64_t value) {
  const uint32_t mask = static_cast<uint32_t>(((uint64_t{1} << bits) - 1) << low);
  const uint32_t field = static_cast<uint32_t>(value << low) & mask;
  store(image, place, (load<uint32_t>(image, place) & ~mask) | field);
}

void set_branch(std::vector<uint8_t>& image, uint64_t place, int low, int bits, int64_t distance) {
  check_fits(distance, bits + 2);
  set_field(image, place, low, bits, static_cast<uint64_t>(distance) >> 2);
}

// ADR and ADRP keep the two low bits of their 21-bit operand apart from the others.
void set_adr(std::vector<uint8_t>& image, uint64_t place, int64_t value) {
  check_fits(value, 21);
  set_field(image, place, 29, 2, static_cast<uint64_t>(value) & 3);
  set_field(image, place, 5, 19, static_cast<uint64_t>(value) >> 2);
}

void apply_aarch64(uint32_t type, std::vector<uint8_t>& image, uint64_t place, int64_t target) {
  namespace a64 = elf::aarch64;
  const int64_t distance = target - static_cast<int64_t>(place);
  const uint64_t in_page = static_cast<uint64_t>(target) & 0xfff;
  switch (type) {
    case a64::r_prel64:
      store(image, place, distance);
      return;
    case a64::r_prel32:
      store_relative_32(image, place, distance);
      return;
    case a64::r_adr_prel_lo21:
      set_adr(image, place, distance);
      return;
    case a64::r_adr_prel_pg_hi21:
    case a64::r_adr_got_page:
      set_adr(image, place, (target >> 12) - static_cast<int64_t>(place >> 12));
      return;
    case a64::r_add_abs_lo12_nc:
    case a64::r_ldst8_abs_lo12_nc:
      set_field(image, place, 10, 12, in_page);
      return;
    case a64::r_ldst16_abs_lo12_nc:
      set_field(image, place, 10, 12, in_page >> 1);
      return;
    case a64::r_ldst32_abs_lo12_nc:
      set_field(image, place, 10, 12, in_page >> 2);
      return;
    case a64::r_ldst64_abs_lo12_nc:
    case a64::r_ld64_got_lo12_nc:
      set_field(image, place, 10, 12, in_page >> 3);
      return;
    case a64::r_ldst128_abs_lo12_nc:
      set_field(image, place, 10, 12, in_page >> 4);
      return;
    case a64::r_tstbr14:
      set_branch(image, place, 5, 14, distance);
      return;
    case a64::r_condbr19:
      set_branch(image, place, 5, 19, distance);
      return;
    case a64::r_jump26:
    case a64::r_call26:
      set_branch(image, place, 0, 26, distance);
      return;
    default:
      unknown(type);
  }
}

}  // namespace

bool uses_got(uint16_t machine, uint32_t type) {
  if (machine == elf::machine_x86_64) {
    return type == elf::x86_64::r_gotpcrel || type == elf::x86_64::r_gotpcrelx || type == elf::x86_64::r_rex_gotpcrelx;
  }
  return type == elf::aarch64::r_adr_got_page || type == elf::aarch64::r_ld64_got_lo12_nc;
}

bool is_absolute(uint16_t machine, uint32_t type) {
  return type == (machine == elf::machine_x86_64 ? uint32_t{elf::x86_64::r_64} : uint32_t{elf::aarch64::r_abs64});
}

void apply_relocation(uint16_t machine, uint32_t type, std::vector<uint8_t>& image, uint64_t place, uint64_t symbol,
                      int64_t addend) {
  const int64_t target = static_cast<int64_t>(symbol) + addend;
  if (machine == elf::machine_x86_64) {
    apply_x86_64(type, image, place, target);
  } else {
    apply_aarch64(type, image, place, target);
  }
}

}  // namespace cuvil
