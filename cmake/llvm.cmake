# Where LLVM comes from, and cuvil_use_llvm(target), the only way to use it.
#
#   CUVIL_USE_SYSTEM_LLVM=ON   an installed LLVM 16 to 23 (LLVM_DIR picks one), shared or static
#   OFF (default)              LLVM linked statically into the engine, from
#                                1. third_party/llvm-project, if that submodule is checked out
#                                2. else the prebuilt static libraries of the Python package mlc-llvm-static
option(CUVIL_USE_SYSTEM_LLVM "Use an installed LLVM (16 to 23) instead of an embedded one" OFF)
option(CUVIL_TARGET_X86 "Generate code for x86" ON)
option(CUVIL_TARGET_AARCH64 "Generate code for AArch64" ON)
option(CUVIL_TARGET_NVPTX "Generate code for NVIDIA GPUs" ON)
option(CUVIL_TARGET_RISCV "Generate code for RISC-V" ON)

set(CUVIL_LLVM_OLDEST 16)
set(CUVIL_LLVM_NEWEST 23)

# LLVM's own name of each enabled target.
set(cuvil_llvm_targets "")
foreach(target X86 AArch64 NVPTX RISCV)
  string(TOUPPER "${target}" option)
  if(CUVIL_TARGET_${option})
    list(APPEND cuvil_llvm_targets ${target})
  endif()
endforeach()
if(NOT cuvil_llvm_targets)
  message(FATAL_ERROR "No code generator is enabled: set at least one of CUVIL_TARGET_X86, _AARCH64, _NVPTX, _RISCV")
endif()

set(cuvil_llvm_libraries LLVMCodeGen LLVMScalarOpts LLVMTransformUtils LLVMAnalysis LLVMTarget LLVMTargetParser LLVMMC
    LLVMCore LLVMSupport)
foreach(target ${cuvil_llvm_targets})
  list(PREPEND cuvil_llvm_libraries LLVM${target}CodeGen LLVM${target}Desc LLVM${target}Info)
endforeach()

function(cuvil_check_llvm_version where)
  if(LLVM_VERSION_MAJOR LESS CUVIL_LLVM_OLDEST OR LLVM_VERSION_MAJOR GREATER CUVIL_LLVM_NEWEST)
    message(FATAL_ERROR "LLVM ${LLVM_PACKAGE_VERSION} in ${where} is not supported: "
                        "Cuvil needs ${CUVIL_LLVM_OLDEST} to ${CUVIL_LLVM_NEWEST}. Set LLVM_DIR to another one.")
  endif()
  message(STATUS "LLVM ${LLVM_PACKAGE_VERSION} from ${where}, targets: ${cuvil_llvm_targets}")
endfunction()

# Imported targets are visible in the directory that calls find_package, so these are macros.
macro(cuvil_find_system_llvm)
  if(NOT LLVM_DIR AND NOT LLVM_ROOT)
    # Newest first; the directories of distributions that install several side by side are not on CMake's search path.
    foreach(major RANGE ${CUVIL_LLVM_NEWEST} ${CUVIL_LLVM_OLDEST} -1)
      foreach(minor 1 0)
        if(NOT LLVM_FOUND)
          find_package(LLVM ${major}.${minor} QUIET CONFIG HINTS /usr/lib/llvm-${major} /usr/lib64/llvm${major}
                       /usr/lib/llvm/${major} /opt/homebrew/opt/llvm@${major} /usr/local/opt/llvm@${major})
        endif()
      endforeach()
    endforeach()
  endif()
  if(NOT LLVM_FOUND)
    find_package(LLVM REQUIRED CONFIG)
  endif()
  cuvil_check_llvm_version("${LLVM_DIR}")
  if(LLVM_LINK_LLVM_DYLIB AND TARGET LLVM)
    set(cuvil_llvm_libraries LLVM)
  endif()
  foreach(target ${cuvil_llvm_targets})
    if(NOT target IN_LIST LLVM_TARGETS_TO_BUILD)
      string(TOUPPER "${target}" option)
      message(FATAL_ERROR "This LLVM has no ${target} code generator: set CUVIL_TARGET_${option}=OFF")
    endif()
  endforeach()
endmacro()

macro(cuvil_build_llvm source)
  set(LLVM_TARGETS_TO_BUILD "${cuvil_llvm_targets}" CACHE STRING "" FORCE)
  set(LLVM_ENABLE_PROJECTS "" CACHE STRING "" FORCE)
  foreach(name ENABLE_BINDINGS ENABLE_LIBEDIT ENABLE_LIBXML2 ENABLE_LIBPFM ENABLE_TERMINFO ENABLE_ZLIB ENABLE_ZSTD
               ENABLE_Z3_SOLVER ENABLE_ASSERTIONS ENABLE_RTTI BUILD_TOOLS BUILD_UTILS BUILD_RUNTIME BUILD_RUNTIMES
               BUILD_LLVM_DYLIB BUILD_LLVM_C_DYLIB INCLUDE_TESTS INCLUDE_EXAMPLES INCLUDE_BENCHMARKS INCLUDE_DOCS
               INCLUDE_RUNTIMES INCLUDE_UTILS INCLUDE_TOOLS)
    set(LLVM_${name} OFF CACHE BOOL "" FORCE)
  endforeach()
  set(LLVM_ENABLE_PIC ON CACHE BOOL "" FORCE)
  set(LLVM_INSTALL_TOOLCHAIN_ONLY ON CACHE BOOL "" FORCE)
  add_subdirectory("${source}/llvm" "${CMAKE_BINARY_DIR}/llvm" EXCLUDE_FROM_ALL)
  set(LLVM_INCLUDE_DIRS "${source}/llvm/include" "${CMAKE_BINARY_DIR}/llvm/include")
  set(LLVM_ENABLE_RTTI OFF)
  file(STRINGS "${CMAKE_BINARY_DIR}/llvm/include/llvm/Config/llvm-config.h" cuvil_llvm_version
       REGEX "define LLVM_VERSION_(MAJOR|STRING) ")
  string(REGEX MATCH "LLVM_VERSION_MAJOR ([0-9]+)" _ "${cuvil_llvm_version}")
  set(LLVM_VERSION_MAJOR "${CMAKE_MATCH_1}")
  string(REGEX MATCH "LLVM_VERSION_STRING \"([^\"]+)\"" _ "${cuvil_llvm_version}")
  set(LLVM_PACKAGE_VERSION "${CMAKE_MATCH_1}")
  cuvil_check_llvm_version("${source}")
endmacro()

macro(cuvil_find_packaged_llvm)
  if(NOT LLVM_DIR)
    execute_process(COMMAND "${Python_EXECUTABLE}" -m mlc_llvm_static.config --cmake-dir
                    OUTPUT_VARIABLE cuvil_llvm_dir RESULT_VARIABLE cuvil_llvm_status
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(NOT cuvil_llvm_status EQUAL 0)
      message(FATAL_ERROR "LLVM is missing. One of these provides it:\n"
        "  ${Python_EXECUTABLE} -m pip install 'mlc-llvm-static[all]==23.1.1.post0'   (prebuilt static libraries)\n"
        "  git submodule update --init --depth 1 third_party/llvm-project   (builds LLVM, about an hour)\n"
        "  cmake -DCUVIL_USE_SYSTEM_LLVM=ON   (LLVM ${CUVIL_LLVM_OLDEST} to ${CUVIL_LLVM_NEWEST} of this system)")
    endif()
    set(LLVM_DIR "${cuvil_llvm_dir}" CACHE PATH "Folder of LLVMConfig.cmake" FORCE)
  endif()
  # Its zlib and zstd are static and lie beside it; the system's, if any, must not be picked instead.
  cmake_path(SET cuvil_llvm_prefix NORMALIZE "${LLVM_DIR}/../../..")
  list(PREPEND CMAKE_PREFIX_PATH "${cuvil_llvm_prefix}")
  set(ZLIB_USE_STATIC_LIBS ON)
  find_package(LLVM REQUIRED CONFIG)
  unset(ZLIB_USE_STATIC_LIBS)
  list(POP_FRONT CMAKE_PREFIX_PATH)
  cuvil_check_llvm_version("${LLVM_DIR}")
endmacro()

if(CUVIL_BUILD_PYTHON)
  find_package(Python 3.8 REQUIRED COMPONENTS Interpreter Development.Module)
else()
  find_package(Python 3.8 COMPONENTS Interpreter)
endif()

set(cuvil_llvm_source "${CMAKE_CURRENT_LIST_DIR}/../third_party/llvm-project")
cmake_path(NORMAL_PATH cuvil_llvm_source)
if(CUVIL_USE_SYSTEM_LLVM)
  cuvil_find_system_llvm()
elseif(EXISTS "${cuvil_llvm_source}/llvm/CMakeLists.txt")
  cuvil_build_llvm("${cuvil_llvm_source}")
else()
  cuvil_find_packaged_llvm()
endif()

add_library(cuvil_llvm INTERFACE)
target_include_directories(cuvil_llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
target_link_libraries(cuvil_llvm INTERFACE ${cuvil_llvm_libraries})
separate_arguments(cuvil_llvm_definitions NATIVE_COMMAND "${LLVM_DEFINITIONS}")
foreach(definition ${cuvil_llvm_definitions})
  if(definition MATCHES "^-D(.+)$" AND NOT CMAKE_MATCH_1 MATCHES "^_DEBUG|^NDEBUG")
    target_compile_definitions(cuvil_llvm INTERFACE ${CMAKE_MATCH_1})
  endif()
endforeach()
foreach(target ${cuvil_llvm_targets})
  string(TOUPPER "${target}" option)
  target_compile_definitions(cuvil_llvm INTERFACE CUVIL_HAS_${option}=1)
endforeach()

# Lets `target` include and link LLVM. Its headers need the same RTTI setting as the libraries; exceptions stay on.
function(cuvil_use_llvm target)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "INTERFACE_LIBRARY")
    target_link_libraries(${target} INTERFACE cuvil_llvm)
    return()
  endif()
  target_link_libraries(${target} PUBLIC cuvil_llvm)
  foreach(generated intrinsics_gen vt_gen target_parser_gen)  # headers, when LLVM is part of this build
    if(TARGET ${generated})
      add_dependencies(${target} ${generated})
    endif()
  endforeach()
  if(NOT LLVM_ENABLE_RTTI)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-rtti>)
  endif()
endfunction()
