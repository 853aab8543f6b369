#!/usr/bin/env bash
# Runs every fuzz target of a build for SECONDS each, two at a time, starting from the seeds in
# fuzz/corpus/. New inputs go to BUILD/fuzz/found/, crashing ones to BUILD/fuzz/crashes/.
#   tools/run_fuzz.sh SECONDS [BUILD [TARGET ...]]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:?usage: tools/run_fuzz.sh SECONDS [BUILD [TARGET ...]]}
build=${2:-build/checked}
shift $(($# < 2 ? $# : 2))

run_one() {
  local seconds=$1 build=$2 name=$3
  local found=$build/fuzz/found/$name log=$build/fuzz/$name.log
  local options=(-max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1)
  mkdir -p "$found" "$build/fuzz/crashes"
  if [ -f "fuzz/corpus/$name.dict" ]; then
    options+=("-dict=fuzz/corpus/$name.dict")
  fi
  local seeds=()
  if [ -d "fuzz/corpus/$name" ]; then
    seeds=("fuzz/corpus/$name")
  fi
  if "$build/fuzz/$name" "${options[@]}" -artifact_prefix="$build/fuzz/crashes/$name-" "$found" "${seeds[@]}" \
    >"$log" 2>&1; then
    echo "fuzz ok   $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs"
  else
    echo "fuzz FAIL $name: see $log"
    tail -n 60 "$log"
    return 1
  fi
}
export -f run_one

names=("$@")
if [ ${#names[@]} = 0 ]; then
  for source in fuzz/*_fuzz.cpp; do
    [ -e "$source" ] && names+=("$(basename "$source" .cpp)")
  done
fi
[ ${#names[@]} -gt 0 ] || { echo "no fuzz targets"; exit 1; }
export ASAN_SYMBOLIZER_PATH=${ASAN_SYMBOLIZER_PATH:-/usr/bin/llvm-symbolizer-19}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
printf '%s\n' "${names[@]}" | xargs -P 2 -I{} bash -c 'run_one "$@"' run_one "$seconds" "$build" {}
