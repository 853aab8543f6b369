#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

namespace fairlead::net::http {

/// The bytes of unfinished requests, or of gathered answers, that all servers of a process may hold
/// together. Any thread.
class BodyBudget {
 public:
  /// At most `limit` bytes.
  explicit BodyBudget(std::size_t limit) : limit_(limit) {}

  /// Takes `bytes`; false, and nothing is taken, when they do not fit any more.
  bool take(std::size_t bytes);
  /// Gives back what was taken.
  void give(std::size_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  /// True when `bytes` would fit now; nothing is reserved.
  bool has_room(std::size_t bytes) const;
  /// Bytes taken now.
  std::size_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  std::size_t limit_;
  std::atomic<std::size_t> used_{0};
};

/// What one connection or answer has taken of a budget; its destructor gives it back. Little is
/// free, so that ordinary requests neither touch the shared count nor are refused because of large
/// ones.
class BodyShare {
 public:
  static constexpr std::size_t kFree = 16 * 1024;  ///< One that holds less counts nothing.

  /// Of `budget`, which is not null.
  explicit BodyShare(std::shared_ptr<BodyBudget> budget) : budget_(std::move(budget)) {}
  ~BodyShare() { hold(0); }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;

  /// `bytes` are held now. False, and the share is as it was, when that is more than
  /// before and does not fit.
  bool hold(std::size_t bytes) {
    const std::size_t wanted = bytes > kFree ? bytes : 0;
    return wanted == taken_ || change(wanted);
  }
  /// True when a request of `bytes` more would fit now.
  bool has_room(std::size_t bytes) const { return bytes <= kFree || budget_->has_room(bytes); }

 private:
  bool change(std::size_t wanted);

  std::shared_ptr<BodyBudget> budget_;
  std::size_t taken_ = 0;
};

}  // namespace fairlead::net::http
