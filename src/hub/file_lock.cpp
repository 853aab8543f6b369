#include "hub/file_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "hub/cache.hpp"
#include "hub/wait.hpp"

namespace fairlead::hub {
namespace {

constexpr std::chrono::milliseconds kLockPause(100);

/// False when the file was removed after it was opened, as some holders do at their end: others
/// lock another one by then.
bool is_still_there(int fd, const std::filesystem::path& file) {
  struct stat mine{};
  struct stat there{};
  return fstat(fd, &mine) == 0 && stat(file.c_str(), &there) == 0 && mine.st_ino == there.st_ino &&
         mine.st_dev == there.st_dev;
}

}  // namespace

Result<std::optional<FileLock>> FileLock::acquire(const std::filesystem::path& file,
                                                  const std::stop_token& stop,
                                                  const std::function<void()>& on_wait) {
  if (Result<> made = make_parents(file); !made) {
    return std::unexpected(made.error());
  }
  bool told = false;
  while (!stop.stop_requested()) {
    // Writable by the group, as Python's tools make it, for users who share a cache.
    auto opened = std::make_unique<Descriptor>(
        open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0664));
    if (opened->get() < 0) {
      return cache_failure("lock", file, {errno, std::generic_category()});
    }
    if (flock(opened->get(), LOCK_EX | LOCK_NB) == 0) {
      if (is_still_there(opened->get(), file)) {
        return FileLock(std::move(opened));
      }
      continue;
    }
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return cache_failure("lock", file, {errno, std::generic_category()});
    }
    if (!std::exchange(told, true)) {
      on_wait();
    }
    wait_for(stop, kLockPause);
  }
  return std::nullopt;
}

}  // namespace fairlead::hub
