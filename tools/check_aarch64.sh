#!/usr/bin/env bash
# Compiles the given files for aarch64 without writing anything: keeps the NEON paths compiling on
# machines that cannot run them.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(uname -m)" = aarch64 ]; then
  echo "this machine is aarch64: the build has checked it"
  exit 0
fi
# The cross C++ library is found by clang itself; portable headers of other libraries come last.
export flags="--target=aarch64-linux-gnu -std=c++23 -fsyntax-only -DNDEBUG -Wall -Wextra -Wshadow -Werror
  -Isrc -isystem build/release/generated -idirafter /usr/include"
printf '%s\0' "$@" | xargs -0 -P "$(nproc)" -I{} bash -c 'clang++-19 $flags "$1" && echo "aarch64 ok $1"' check {}
