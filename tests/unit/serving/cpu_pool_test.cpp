#include "serving/cpu_pool.hpp"

#include <gtest/gtest.h>

#include <latch>
#include <memory>

#include "net/testing.hpp"

namespace fairlead::serving {
namespace {

using net::testing::run_task;

TEST(CpuPool, ReturnsResultsToTheReactor) {
  net::Reactor reactor;
  CpuPool pool(2, 10);
  int result = 0;
  std::thread::id where;
  run_task(reactor, [](CpuPool& p, int& out, std::thread::id& id) -> net::Task<> {
    auto answer = co_await p.run([text = std::string("abc"), &id] {
      id = std::this_thread::get_id();
      return static_cast<int>(text.size());
    });
    out = *answer;
  }(pool, result, where));
  EXPECT_EQ(result, 3);
  EXPECT_NE(where, std::this_thread::get_id());
}

TEST(CpuPool, AFullQueueRefusesAndADroppedWaiterIsHarmless) {
  net::Reactor reactor;
  std::latch release(1);
  std::latch started(1);
  int refused = 0;
  int finished = 0;
  {
    CpuPool pool(1, 1);
    net::TaskGroup group;
    reactor.post([&] {
      group.spawn([](CpuPool& p, std::latch& s, std::latch& r, int& n) -> net::Task<> {
        const auto done = co_await p.run([&] {
          s.count_down();
          r.wait();
          return 1;
        });
        n += done ? 1 : 0;
      }(pool, started, release, finished));
    });
    reactor.run_turn(std::chrono::milliseconds(0));
    started.wait();
    const auto add = [&] {
      group.spawn([](CpuPool& p, int& n, int& r) -> net::Task<> {
        const auto done = co_await p.run([] { return 1; });
        done ? ++n : ++r;
      }(pool, finished, refused));
    };
    reactor.post(add);
    reactor.post(add);
    reactor.run_turn(std::chrono::milliseconds(0));
    EXPECT_EQ(refused, 1);
    group.cancel();
    release.count_down();
  }
  reactor.run_turn(std::chrono::milliseconds(0));
  EXPECT_EQ(finished, 0);
}

}  // namespace
}  // namespace fairlead::serving
