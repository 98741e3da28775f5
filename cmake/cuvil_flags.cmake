# Compile and link flags that every target of Cuvil shares.
add_library(cuvil_flags INTERFACE)
target_include_directories(cuvil_flags INTERFACE "${CMAKE_CURRENT_SOURCE_DIR}/cpp" "${CMAKE_CURRENT_SOURCE_DIR}/cpp/include")
target_compile_options(cuvil_flags INTERFACE -Wall -Wextra -ffunction-sections -fdata-sections
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>  # false alarms on std::string in GCC 12 (PR105651)
  $<$<BOOL:${CUVIL_WERROR}>:-Werror>)
target_link_options(cuvil_flags INTERFACE
  $<$<PLATFORM_ID:Linux>:LINKER:--gc-sections;LINKER:--exclude-libs,ALL;LINKER:--as-needed>)

if(CUVIL_SANITIZE)
  # What uses LLVM has no RTTI, without which vptr checks see strangers.
  target_compile_options(cuvil_flags INTERFACE -fsanitize=${CUVIL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
                         -fno-sanitize=vptr)
  target_link_options(cuvil_flags INTERFACE -fsanitize=${CUVIL_SANITIZE})
endif()
if(CUVIL_COVERAGE)
  target_compile_options(cuvil_flags INTERFACE --coverage -O1)
  target_link_options(cuvil_flags INTERFACE --coverage)
endif()
