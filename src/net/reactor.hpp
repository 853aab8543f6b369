#pragma once

#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/intrusive_list.hpp"

namespace fairlead::net {

/// Monotonic time.
using Clock = std::chrono::steady_clock;
/// A point of monotonic time.
using TimePoint = Clock::time_point;
/// A span of monotonic time.
using Duration = Clock::duration;

/// Receives readiness of one descriptor. Edge-triggered: read or write until it would block.
class IoHandler {
 public:
  virtual ~IoHandler() = default;
  /// `events` is a set of EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLHUP and EPOLLERR.
  virtual void on_io(std::uint32_t events) = 0;
};

/// A place where a coroutine is suspended and from where the reactor resumes it. Part of an
/// awaiter; destroying it takes the resumption back.
struct ReadyNode : ListNode<ReadyNode> {
  std::coroutine_handle<> handle;  ///< What to resume.
};

/// Something that has bytes to send at the end of the turn.
class Flushable : public ListNode<Flushable> {
 public:
  virtual ~Flushable() = default;
  /// Called once per `Reactor::flush_later`, at the end of the turn.
  virtual void flush() = 0;
};

/// A callback at a point of time, owned by its object: destroying it cancels. Precision is the
/// wheel's tick of 10 ms; it never fires early. Used by its reactor's thread only.
class Timer : public ListNode<Timer> {
 public:
  /// `callback` runs in the reactor's turn; it may re-arm the timer.
  explicit Timer(std::move_only_function<void()> callback) : callback_(std::move(callback)) {}

  /// Fires once at `deadline`; re-arming replaces the former deadline.
  void arm_at(TimePoint deadline);
  /// Fires once after `delay`.
  void arm(Duration delay);
  /// Does not fire any more.
  void cancel() { unlink(); }
  /// True while it will fire.
  bool armed() const { return linked(); }

 private:
  friend class TimerWheel;

  std::move_only_function<void()> callback_;
  std::int64_t tick_ = 0;
};

/// Hashed wheel: 1,024 slots of 10 ms; farther deadlines stay in their slot for more rounds.
class TimerWheel {
 public:
  static constexpr Duration kTick = std::chrono::milliseconds(10);  ///< Precision.

  /// Starts at `start`.
  explicit TimerWheel(TimePoint start);
  /// Puts a timer into the slot of its deadline.
  void insert(Timer& timer, TimePoint deadline);
  /// Fires everything due at `now`.
  void advance(TimePoint now);
  /// Time until the next armed slot within one round, or `limit` when there is none before.
  Duration until_next(TimePoint now, Duration limit) const;

 private:
  static constexpr std::size_t kSlots = 1024;

  std::int64_t tick_of(TimePoint time) const;

  TimePoint start_;
  std::int64_t current_ = 0;
  std::unique_ptr<IntrusiveList<Timer, Timer>[]> slots_;
};

/// One event loop, run by one thread. A turn: wait for readiness, handle it, run posted jobs,
/// resume ready coroutines, fire timers, then flush whatever became dirty: everything that arrived
/// in one turn leaves in one write. All members belong to the loop's thread unless said otherwise.
class Reactor {
 public:
  /// `name` appears in the thread's name and in logs.
  explicit Reactor(std::string name = "reactor");
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;
  ~Reactor();

  /// The reactor that runs in this thread; null outside of one.
  static Reactor* current();

  /// Runs turns until `stop` was called.
  void run();
  /// Runs one turn that waits at most `max_wait`; for tests and for drains.
  void run_turn(Duration max_wait);
  /// Makes `run` return after its turn. Any thread.
  void stop();

  /// Runs `job` in a later turn. Any thread; the reactor must still be alive. Jobs left when the
  /// reactor is destroyed are destroyed unrun.
  void post(std::move_only_function<void()> job);
  /// Resumes `node.handle` in this or the next turn.
  void make_ready(ReadyNode& node) { ready_.push_back(node); }
  /// Calls `item.flush()` at the end of this turn; repeated calls before it count once.
  void flush_later(Flushable& item) {
    if (!item.linked()) {
      dirty_.push_back(item);
    }
  }
  /// Destroys `object` at the end of the turn, when nothing of it is on the stack any more.
  template <class T>
  void destroy_later(std::unique_ptr<T> object) {
    graveyard_.emplace_back(object.release(), [](void* p) { delete static_cast<T*>(p); });
  }

  /// Time at the start of this turn's work.
  TimePoint now() const { return now_; }
  /// Timers.
  TimerWheel& timers() { return timers_; }

  /// Registers a descriptor, edge-triggered for reading and writing. False (with errno) on failure.
  bool add(int fd, IoHandler& handler);
  /// Removes a descriptor before it is closed; no event of it is delivered any more.
  void remove(int fd, IoHandler& handler);

  /// Small number of this reactor, for metric shards; set once by its owner before `run`.
  int index = 0;
  /// Name given at construction.
  const std::string& name() const { return name_; }

 private:
  void wait(Duration max_wait);
  void run_posted();
  void run_ready();
  void flush_dirty();
  void clear_graveyard();
  void wake();

  std::string name_;
  int epoll_fd_ = -1;
  int event_fd_ = -1;
  TimePoint now_;
  TimerWheel timers_;
  IntrusiveList<ReadyNode, ReadyNode> ready_;
  IntrusiveList<Flushable, Flushable> dirty_;
  using Buried = std::unique_ptr<void, void (*)(void*)>;
  std::vector<Buried> graveyard_;
  std::atomic<bool> stopping_{false};

  struct Pending;  // the batch of events being delivered
  std::unique_ptr<Pending> pending_;

  std::mutex mutex_;
  std::vector<std::move_only_function<void()>> posted_;  // guarded by mutex_
  std::atomic<bool> woken_{false};
};

}  // namespace fairlead::net
