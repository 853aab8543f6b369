# Compiler and linker settings shared by every target.

add_library(fairlead_options INTERFACE)
target_include_directories(fairlead_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(fairlead_options INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wimplicit-fallthrough -Werror
  -fno-omit-frame-pointer -ffile-prefix-map=${CMAKE_SOURCE_DIR}=.)
if(NOT FAIRLEAD_SIMD)
  target_compile_definitions(fairlead_options INTERFACE FAIRLEAD_NO_SIMD=1)
elseif(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  # SSE4.2 and PCLMUL (2010): simdjson's on-demand parser is chosen at compile time.
  target_compile_options(fairlead_options INTERFACE -march=x86-64-v2 -mpclmul)
endif()

if(FAIRLEAD_SANITIZE STREQUAL "address")
  set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(FAIRLEAD_SANITIZE STREQUAL "thread")
  set(sanitize -fsanitize=thread)
elseif(FAIRLEAD_SANITIZE)
  message(FATAL_ERROR "FAIRLEAD_SANITIZE must be empty, `address` or `thread`, not `${FAIRLEAD_SANITIZE}`")
endif()
if(FAIRLEAD_FUZZ)
  list(APPEND sanitize -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
endif()
if(sanitize)
  target_compile_options(fairlead_options INTERFACE ${sanitize})
  target_link_options(fairlead_options INTERFACE ${sanitize})
  set(FAIRLEAD_MIMALLOC OFF)
endif()

find_program(MOLD mold)
if(MOLD)
  target_link_options(fairlead_options INTERFACE -fuse-ld=mold)
else()
  target_link_options(fairlead_options INTERFACE -fuse-ld=lld)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_SLOPPINESS=time_macros ${CCACHE})
endif()
