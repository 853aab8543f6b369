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

/// Runs `job` inside a turn.
inline void in_turn(Reactor& reactor, const std::function<void()>& job) {
  bool done = false;
  reactor.post([&] {
    job();
    done = true;
  });
  EXPECT_TRUE(run_until(reactor, [&] { return done; }));
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

/// A test whose objects live in a reactor.
class ReactorTest : public ::testing::Test {
 protected:
  bool wait(const std::function<bool()>& done) { return run_until(reactor, done); }
  void in_turn(const std::function<void()>& job) { testing::in_turn(reactor, job); }

  Reactor reactor;
};

}  // namespace fairlead::net::testing
