#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>

#include "base/descriptor.hpp"
#include "base/error.hpp"

namespace fairlead::hub {

/// Holds a lock file of the cache against other processes, Python's `filelock` among them, until it
/// is destroyed or the process ends.
class FileLock {
 public:
  /// Waits for the lock, calling `on_wait` once when somebody has it. The file is made if need be.
  /// Empty when stopped.
  static Result<std::optional<FileLock>> acquire(const std::filesystem::path& file,
                                                 const std::stop_token& stop,
                                                 const std::function<void()>& on_wait);

 private:
  explicit FileLock(std::unique_ptr<Descriptor> file) : file_(std::move(file)) {}

  std::unique_ptr<Descriptor> file_;
};

}  // namespace fairlead::hub
