#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "net/reactor.hpp"
#include "net/task.hpp"
#include "net/task_group.hpp"

namespace fairlead::net::testing {

/// Runs turns until `done` or ten seconds have passed; false then.
inline bool run_until(Reactor& reactor, const std::function<bool()>& done) {
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  while (!done()) {
    if (Clock::now() > deadline) {
      return false;
    }
    reactor.run_turn(std::chrono::milliseconds(20));
  }
  return true;
}

/// Runs `task` to its end on `reactor`.
inline void run_task(Reactor& reactor, Task<> task) {
  TaskGroup group;
  bool started = false;
  reactor.post([&] {
    group.spawn(std::move(task));
    started = true;
  });
  EXPECT_TRUE(run_until(reactor, [&] { return started && group.size() == 0; }));
}

}  // namespace fairlead::net::testing
