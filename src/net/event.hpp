#pragma once

#include <coroutine>
#include <optional>
#include <utility>

#include "net/reactor.hpp"

namespace fairlead::net {

/// A pushed event with at most one waiting coroutine. Sticky: once set, waits end at once until it
/// is reset. `set` never resumes on the caller's stack; the reactor does, in the same turn. Waiting
/// allocates nothing. Belongs to one reactor's thread; must outlive its waiter.
class Event {
 public:
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// Sets the event and wakes the waiter.
  void set() {
    set_ = true;
    if (waiter_) {
      Reactor::current()->make_ready(*std::exchange(waiter_, nullptr));
    }
  }
  /// Makes later waits wait again.
  void reset() { set_ = false; }
  /// True between `set` and `reset`.
  bool is_set() const { return set_; }

 private:
  struct Awaiter : ReadyNode {
    Event& event;
    std::optional<Timer> timer;
    bool timed_out = false;

    Awaiter(Event& e, std::optional<TimePoint> deadline) : event(e) {
      if (deadline) {
        deadline_ = *deadline;
        timer.emplace([this] { on_timeout(); });
      }
    }
    Awaiter(const Awaiter&) = delete;
    Awaiter& operator=(const Awaiter&) = delete;
    ~Awaiter() {
      if (event.waiter_ == this) {
        event.waiter_ = nullptr;
      }
    }
    bool await_ready() const { return event.set_; }
    void await_suspend(std::coroutine_handle<> awaiting) {
      handle = awaiting;
      event.waiter_ = this;
      if (timer) {
        timer->arm_at(deadline_);
      }
    }
    bool await_resume() const { return !timed_out; }

   private:
    void on_timeout() {
      if (event.waiter_ == this) {
        event.waiter_ = nullptr;
        timed_out = true;
        Reactor::current()->make_ready(*this);
      }
    }
    TimePoint deadline_;
  };

 public:
  /// Awaits the event; the result is true.
  Awaiter wait() { return Awaiter(*this, std::nullopt); }
  /// Awaits the event until `deadline`: true when it was set, false when time ran out.
  Awaiter wait_until(TimePoint deadline) { return Awaiter(*this, deadline); }
  /// Awaits the event for at most `delay`.
  Awaiter wait_for(Duration delay) { return Awaiter(*this, Reactor::current()->now() + delay); }

 private:
  ReadyNode* waiter_ = nullptr;
  bool set_ = false;
};

/// Awaiting it suspends the coroutine until the next turn: what has become ready is served first.
/// For long work that is done in pieces.
class NextTurn : private Flushable {
 public:
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> awaiting) {
    node_.handle = awaiting;
    Reactor::current()->flush_later(*this);
  }
  void await_resume() const {}

 private:
  void flush() override { Reactor::current()->make_ready(node_); }

  ReadyNode node_;
};

/// Awaiting it suspends the coroutine for `delay`.
class Sleep {
 public:
  /// Starts when awaited.
  explicit Sleep(Duration delay)
      : delay_(delay), timer_([this] { Reactor::current()->make_ready(node_); }) {}

  bool await_ready() const { return delay_ <= Duration(0); }
  void await_suspend(std::coroutine_handle<> awaiting) {
    node_.handle = awaiting;
    timer_.arm(delay_);
  }
  void await_resume() const {}

 private:
  Duration delay_;
  ReadyNode node_;
  Timer timer_;
};

}  // namespace fairlead::net
