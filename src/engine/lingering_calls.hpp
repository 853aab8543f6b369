#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "net/reactor.hpp"

namespace fairlead::engine {

/// Finished calls of one client whose answer's end has not come: kept for a moment, so that their
/// stream or connection ends in good order and is not reset for nothing. `Call` has
/// `set_lingering()`. Belongs to one reactor.
template <class Call>
class LingeringCalls {
 public:
  /// Beyond this many the oldest is reset.
  static constexpr std::size_t kMax = 256;
  /// The longest that one is kept.
  static constexpr net::Duration kTime = std::chrono::seconds(2);

  LingeringCalls() : timer_([this] { sweep(); }) {}

  /// Takes a finished call.
  void keep(std::unique_ptr<Call> call) {
    if (entries_.size() >= kMax) {
      entries_.erase(entries_.begin());
    }
    call->set_lingering();
    entries_.push_back({std::move(call), net::Reactor::current()->now()});
    if (!timer_.armed()) {
      timer_.arm(kTime);
    }
  }

  /// The answer of a kept call has ended. Safe on that call's stack.
  void release(Call& call) {
    const auto found = std::ranges::find_if(
        entries_, [&](const Entry& entry) { return entry.call.get() == &call; });
    if (found != entries_.end()) {
      net::Reactor::current()->destroy_later(std::move(found->call));
      entries_.erase(found);
    }
  }

 private:
  struct Entry {
    std::unique_ptr<Call> call;
    net::TimePoint since;
  };

  void sweep() {
    const net::TimePoint limit = net::Reactor::current()->now() - kTime;
    std::erase_if(entries_, [&](const Entry& entry) { return entry.since <= limit; });
    if (!entries_.empty()) {
      timer_.arm(kTime);
    }
  }

  std::vector<Entry> entries_;
  net::Timer timer_;
};

}  // namespace fairlead::engine
