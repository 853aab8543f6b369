#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>

namespace fairlead::hub {

/// Waits for `time` or until it is stopped; true when it was.
inline bool wait_for(const std::stop_token& stop, std::chrono::milliseconds time) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  wake.wait_for(lock, stop, time, [] { return false; });
  return stop.stop_requested();
}

}  // namespace fairlead::hub
