#pragma once

#include <cstdint>

namespace fairlead::loadgen {

/// CPU time of a process and its living and reaped children, in seconds; 0 for pid 0.
double cpu_seconds(int pid);

/// A memory figure of a process in KiB from /proc, e.g. `VmRSS` or `VmHWM`; 0 when unknown.
std::int64_t memory_kib(int pid, const char* field);

}  // namespace fairlead::loadgen
