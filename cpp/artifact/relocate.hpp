// Relocations of the machines Cuvil links for, one at a time.
#pragma once

#include <cstdint>
#include <vector>

namespace cuvil {

/// Whether the relocation's value is the address of a slot that holds the symbol's address.
bool uses_got(uint16_t machine, uint32_t type);

/// Whether the relocation stores a 64-bit absolute address, known only when the image's base is.
bool is_absolute(uint16_t machine, uint32_t type);

/// Patches image[place...] to refer to `symbol` + `addend`, both places being offsets in the image. Throws
/// InternalError for a type that is unknown or whose value does not fit.
void apply_relocation(uint16_t machine, uint32_t type, std::vector<uint8_t>& image, uint64_t place, uint64_t symbol,
                      int64_t addend);

}  // namespace cuvil
