#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "net/reactor.hpp"

namespace fairlead::fleet {

/// What clients' requests do on one worker, written by all reactors and read by the control thread.
/// Cheap by being coarse: progress is stored at most every kGrain, so that a token costs one
/// relaxed load of a line that rarely changes. Any thread.
class Activity {
 public:
  /// Resolution of the times.
  static constexpr net::Duration kGrain = std::chrono::milliseconds(10);

  /// One request on the worker, from its dispatch to its end.
  class Request {
   public:
    /// Counts from now on; `activity` may be null.
    Request(std::shared_ptr<Activity> activity, net::TimePoint now)
        : activity_(std::move(activity)) {
      if (activity_) {
        activity_->begin(now);
      }
    }
    /// Counts nothing.
    Request() = default;
    Request(Request&&) = default;
    Request& operator=(Request&& other) noexcept {
      std::swap(activity_, other.activity_);
      return *this;
    }
    ~Request() {
      if (activity_) {
        activity_->in_flight_.fetch_sub(1, std::memory_order_relaxed);
      }
    }
    /// The engine sent something that is no failure.
    void progress(net::TimePoint now) const {
      if (activity_) {
        activity_->progress(now);
      }
    }

   private:
    std::shared_ptr<Activity> activity_;
  };

  Activity() = default;
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

  /// A request on the worker ended well.
  void served() {
    if (failed_.load(std::memory_order_relaxed)) {
      failed_.store(false, std::memory_order_relaxed);
    }
  }
  /// A request failed by the worker's fault. True when none has ended well since the last one.
  bool note_failure() { return failed_.exchange(true, std::memory_order_relaxed); }
  /// True while requests are on the worker.
  bool busy() const { return in_flight_.load(std::memory_order_relaxed) > 0; }
  /// The last progress; while busy, at least the time when the first of the requests was
  /// dispatched.
  net::TimePoint quiet_since() const {
    const std::int64_t last = last_progress_.load(std::memory_order_relaxed);
    const std::int64_t began = busy_since_.load(std::memory_order_relaxed);
    return net::TimePoint(net::Duration(busy() && began > last ? began : last));
  }

 private:
  static std::int64_t ticks(net::TimePoint time) { return time.time_since_epoch().count(); }

  void begin(net::TimePoint now) {
    // Two that begin at once may both store: the times are the same but for the grain.
    if (in_flight_.fetch_add(1, std::memory_order_relaxed) == 0) {
      busy_since_.store(ticks(now), std::memory_order_relaxed);
    }
  }
  void progress(net::TimePoint now) {
    if (ticks(now) - last_progress_.load(std::memory_order_relaxed) >= kGrain.count()) {
      last_progress_.store(ticks(now), std::memory_order_relaxed);
    }
  }

  std::atomic<std::uint32_t> in_flight_{0};
  std::atomic<std::int64_t> busy_since_{0};
  std::atomic<std::int64_t> last_progress_{0};
  std::atomic<bool> failed_{false};  // and nothing ended well since
};

}  // namespace fairlead::fleet
