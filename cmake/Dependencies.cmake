# Debian's libraries, each behind one target name.

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(Boost 1.81 REQUIRED)
find_package(Protobuf REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(CURL 7.85 REQUIRED)
foreach(lib libnghttp2 simdjson fmt spdlog libxxhash libzmq oniguruma)
  string(REGEX REPLACE "^lib" "" short ${lib})
  pkg_check_modules(${short} REQUIRED IMPORTED_TARGET ${lib})
endforeach()
pkg_check_modules(yaml REQUIRED IMPORTED_TARGET yaml-0.1)
# zmq.h needs none of the include paths of libzmq's own dependencies, and CMake orders them
# differently when it configures again, which would rebuild everything.
set_target_properties(PkgConfig::zmq PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "" INTERFACE_COMPILE_OPTIONS "")
if(FAIRLEAD_MIMALLOC)
  find_package(mimalloc 2 REQUIRED)
endif()
