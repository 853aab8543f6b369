#include "loadgen/process.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace fairlead::loadgen {

double cpu_seconds(int pid) {
  if (pid == 0) {
    return 0;
  }
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(stat, line);
  const std::size_t end = line.rfind(')');  // the name may hold anything
  if (end == std::string::npos) {
    return 0;
  }
  std::istringstream fields(line.substr(end + 2));
  std::string skipped;
  for (int i = 3; i < 14; ++i) {
    fields >> skipped;
  }
  double ticks = 0;
  for (int i = 14; i <= 17; ++i) {  // utime, stime, cutime, cstime
    double value = 0;
    fields >> value;
    ticks += value;
  }
  double seconds = ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  std::ifstream children(fmt::format("/proc/{}/task/{}/children", pid, pid));
  for (int child = 0; children >> child;) {
    seconds += cpu_seconds(child);
  }
  return seconds;
}

std::int64_t memory_kib(int pid, const char* field) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field)) {
      return std::stoll(line.substr(line.find(':') + 1));
    }
  }
  return 0;
}

}  // namespace fairlead::loadgen
