#include "fleet/discovery/file_source.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/log.hpp"

namespace fairlead::fleet {
namespace {

// A file that is being written is complete with IN_CLOSE_WRITE; IN_CREATE is for links.
constexpr std::uint32_t kEvents = IN_CREATE | IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM |
                                  IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;
// A burst of changes is over when nothing has happened for so long; but what comes without end is
// reported so often.
constexpr net::Duration kQuiet = std::chrono::milliseconds(10);
constexpr net::Duration kLongestBurst = std::chrono::milliseconds(100);
// A thread that has not ended by then hangs in the file system.
constexpr std::chrono::seconds kEndWait{1};

int milliseconds_until(net::TimePoint then, net::TimePoint now) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(then - now).count();
  return static_cast<int>(std::clamp<decltype(left)>(left, 0, 3'600'000));
}

}  // namespace

/// What the thread and the source share; the thread may outlive the source and its reactor.
class FileCardSource::Watch : public std::enable_shared_from_this<Watch> {
 public:
  Watch(FileSourceOptions options, net::Reactor& reactor, OnCards on_cards)
      : options_(std::move(options)),
        folder_(options_.folder),
        on_cards_(std::move(on_cards)),
        reactor_(&reactor) {}

  ~Watch() {
    for (const int fd : {inotify_fd_, wake_fd_}) {
      if (fd >= 0) {
        ::close(fd);
      }
    }
  }

  void start() {
    wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    inotify_fd_ = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (inotify_fd_ < 0) {
      note_blind(errno);
    }
    try {
      running_ = true;
      std::thread([self = shared_from_this()] { self->run(); }).detach();
    } catch (const std::system_error& error) {
      running_ = false;
      log::error("the folder of model cards cannot be watched folder={} reason=\"{}\"",
                 options_.folder.path, error.what());
    }
  }

  /// In the reactor.
  void close() {
    on_cards_ = nullptr;
    std::unique_lock lock(mutex_);
    reactor_ = nullptr;
    const std::uint64_t one = 1;
    static_cast<void>(::write(wake_fd_, &one, sizeof one));
    ended_.wait_for(lock, kEndWait, [this] { return !running_; });
  }

 private:
  void run() {
    net::TimePoint relist = net::Clock::now() + options_.relist_interval;
    std::set<std::string> deleted;
    bool reread = false;
    bool first = true;
    while (true) {
      // Before the listing, so that what comes after it is reported.
      renew_watch();
      const CardFolder::Outcome outcome = folder_.scan(net::Clock::now(), reread, deleted);
      if (outcome.changed || first) {
        deliver();
      }
      first = false;
      net::TimePoint next = relist;
      const net::TimePoint now = net::Clock::now();
      if (watch_ < 0) {
        next = std::min(
            next, now + (folder_.present() ? options_.blind_interval : options_.absent_interval));
      }
      if (outcome.again) {
        next = std::min(next, now + *outcome.again);
      }
      deleted.clear();
      reread = wait_for_change(next, deleted);
      if (closed()) {
        break;
      }
      if (net::Clock::now() >= relist) {
        reread = true;
        relist = net::Clock::now() + options_.relist_interval;
      }
    }
    const std::lock_guard lock(mutex_);
    running_ = false;
    ended_.notify_all();
  }

  /// Watches what is at the folder's path now, which may be another folder than before.
  void renew_watch() {
    if (inotify_fd_ < 0) {
      return;
    }
    const int watch = inotify_add_watch(inotify_fd_, options_.folder.path.c_str(), kEvents);
    if (watch < 0 && (errno == ENOSPC || errno == ENOMEM)) {
      note_blind(errno);
    }
    if (watch_ >= 0 && watch != watch_) {
      inotify_rm_watch(inotify_fd_, watch_);  // fails when the folder is deleted, which is as good
    }
    blind_ = blind_ && watch < 0;
    watch_ = watch;
  }

  void note_blind(int error) {
    if (!std::exchange(blind_, true)) {
      log::warn(
          "changes of model cards are not reported by the system; the folder is listed every "
          "{} ms folder={} reason=\"{}\"",
          std::chrono::duration_cast<std::chrono::milliseconds>(options_.blind_interval).count(),
          options_.folder.path, std::generic_category().message(error));
    }
  }

  /// Waits for `until`, a change, or the end. Collects names that were deleted. True when changes
  /// were lost.
  bool wait_for_change(net::TimePoint until, std::set<std::string>& deleted) {
    bool lost = false;
    std::optional<net::TimePoint> burst_end;
    for (;;) {
      std::array<pollfd, 2> fds{{{wake_fd_, POLLIN, 0}, {inotify_fd_, POLLIN, 0}}};
      const int ready = poll(fds.data(), fds.size(), milliseconds_until(until, net::Clock::now()));
      if (ready == 0 || (fds[0].revents & POLLIN) != 0) {
        break;
      }
      if ((fds[1].revents & POLLIN) != 0) {
        lost = read_events(deleted) || lost;
        const net::TimePoint now = net::Clock::now();
        burst_end = burst_end.value_or(now + kLongestBurst);
        until = std::min(now + kQuiet, *burst_end);
        if (now >= *burst_end) {
          break;
        }
      }
    }
    return lost;
  }

  bool read_events(std::set<std::string>& deleted) {
    bool lost = false;
    alignas(inotify_event) std::array<char, 64 * 1024> buffer;
    ssize_t size = 0;
    while ((size = ::read(inotify_fd_, buffer.data(), buffer.size())) > 0) {
      for (std::size_t at = 0; at < static_cast<std::size_t>(size);) {
        inotify_event event{};
        std::memcpy(&event, buffer.data() + at, sizeof event);
        const char* name = buffer.data() + at + sizeof event;
        at += sizeof event + event.len;
        if ((event.mask & IN_Q_OVERFLOW) != 0) {
          lost = true;
        } else if (event.len == 0 || (watch_ >= 0 && event.wd != watch_)) {
          continue;  // of the folder that was there before
        } else if ((event.mask & (IN_DELETE | IN_MOVED_FROM)) != 0) {
          deleted.insert(name);
        } else {
          deleted.erase(name);
        }
      }
    }
    return lost;
  }

  bool closed() {
    const std::lock_guard lock(mutex_);
    return reactor_ == nullptr;
  }

  void deliver() {
    const std::lock_guard lock(mutex_);
    if (reactor_) {
      reactor_->post([self = shared_from_this(), cards = folder_.cards()]() mutable {
        if (self->on_cards_) {
          self->on_cards_(std::move(cards));
        }
      });
    }
  }

  const FileSourceOptions options_;
  CardFolder folder_;  // used by the thread only
  OnCards on_cards_;   // used by the reactor only
  int wake_fd_ = -1;
  int inotify_fd_ = -1;
  int watch_ = -1;      // used by the thread only
  bool blind_ = false;  // likewise: the system has no watch to give
  std::mutex mutex_;
  std::condition_variable ended_;
  net::Reactor* reactor_;  // guarded by mutex_; null when closed
  bool running_ = false;   // guarded by mutex_
};

FileCardSource::FileCardSource(FileSourceOptions options) : options_(std::move(options)) {}

FileCardSource::~FileCardSource() {
  if (watch_) {
    watch_->close();
  }
}

void FileCardSource::start(OnCards on_cards) {
  watch_ = std::make_shared<Watch>(options_, *net::Reactor::current(), std::move(on_cards));
  watch_->start();
}

}  // namespace fairlead::fleet
