#include "runtime/abi.h"

extern "C" const unsigned cuvil_abi_version = CUVIL_ABI_VERSION;
