#pragma once

#include <memory>
#include <string>

#include "net/event.hpp"
#include "net/reactor.hpp"
#include "net/task.hpp"
#include "routing/kv_waiter.hpp"

namespace fairlead::serving {

/// A request's place in the queue for a worker, in its reactor. Destroying it gives the place up.
class WaitingPlace {
 public:
  /// In the current reactor, which must be the request's.
  WaitingPlace(std::string model, routing::QueueHints hints)
      : signal_(std::make_shared<Signal>(net::Reactor::current(), &woken_)),
        waiter_(std::move(model), std::move(hints), net::Reactor::current()->now(),
                [signal = signal_] { wake(signal); }) {}
  WaitingPlace(const WaitingPlace&) = delete;
  WaitingPlace& operator=(const WaitingPlace&) = delete;
  ~WaitingPlace() { signal_->event = nullptr; }

  /// For Router::choose.
  routing::KvWaiter& waiter() { return waiter_; }
  /// Waits until the request should choose again.
  net::Task<> turn() {
    co_await woken_.wait();
    woken_.reset();
  }

 private:
  // What the waker, in another thread, passes on; the event is touched in the reactor only.
  struct Signal {
    net::Reactor* reactor;
    net::Event* event;
  };
  static void wake(const std::shared_ptr<Signal>& signal) {
    signal->reactor->post([signal] {
      if (signal->event) {
        signal->event->set();
      }
    });
  }

  net::Event woken_;
  std::shared_ptr<Signal> signal_;
  routing::KvWaiter waiter_;
};

}  // namespace fairlead::serving
