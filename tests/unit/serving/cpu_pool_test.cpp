#include "serving/cpu_pool.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <latch>
#include <memory>
#include <string>

#include "net/testing.hpp"

namespace fairlead::serving {
namespace {

using net::testing::run_task;

/// Requesters that note what became of their jobs.
class CpuPoolTest : public ::testing::Test {
 public:
  ~CpuPoolTest() override { release(); }

 protected:
  struct Outcome {
    bool ended = false;
    std::optional<ErrorCode> error;
  };

  void open_pool(const CpuPoolOptions& options) { pool_ = std::make_unique<CpuPool>(options); }
  void release() {
    if (!released_) {
      released_ = true;
      gate_.count_down();
    }
  }
  void turn() { reactor_.run_turn(std::chrono::milliseconds(0)); }

  /// Only in a turn of the reactor.
  template <class F>
  void spawn(net::TaskGroup& group, std::size_t bytes, F job, Outcome& outcome) {
    group.spawn([](CpuPool& pool, std::size_t size, F work, Outcome& out) -> net::Task<> {
      const auto done = co_await pool.run(size, std::move(work));
      out.ended = true;
      if (!done) {
        out.error = done.error().code;
      }
    }(*pool_, bytes, std::move(job), outcome));
  }
  template <class F>
  Outcome& ask(net::TaskGroup& group, std::size_t bytes, F job) {
    Outcome& outcome = outcomes_.emplace_back();
    reactor_.post([this, &group, &outcome, bytes, job = std::move(job)]() mutable {
      spawn(group, bytes, std::move(job), outcome);
    });
    turn();
    return outcome;
  }
  /// A job that occupies a thread until `release`, whatever it is told.
  Outcome& block(net::TaskGroup& group, std::size_t bytes) {
    std::latch started(1);
    Outcome& outcome = ask(group, bytes, [this, &started](const std::stop_token&) {
      started.count_down();
      gate_.wait();
      return 0;
    });
    started.wait();
    return outcome;
  }
  /// A job that appends its name to `order_`; for one thread.
  Outcome& name(net::TaskGroup& group, std::size_t bytes, char letter) {
    return ask(group, bytes, [this, letter](const std::stop_token&) {
      order_ += letter;
      return 0;
    });
  }
  /// A job that begins the next one, of the same size and the next letter, before it ends.
  void chain(net::TaskGroup& group, std::size_t bytes, char letter, char last) {
    spawn(
        group, bytes,
        [this, &group, bytes, letter, last](const std::stop_token&) {
          order_ += letter;
          if (letter < last) {
            std::latch queued(1);
            reactor_.post([&] {
              chain(group, bytes, static_cast<char>(letter + 1), last);
              queued.count_down();
            });
            queued.wait();
          }
          return 0;
        },
        outcomes_.emplace_back());
  }
  void wait_for(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      reactor_.run_turn(std::chrono::milliseconds(5));
    }
  }

  net::Reactor reactor_;
  std::latch gate_{1};
  bool released_ = false;
  std::string order_;
  std::deque<Outcome> outcomes_;
  std::unique_ptr<CpuPool> pool_;
};

TEST_F(CpuPoolTest, ReturnsResultsToTheReactor) {
  open_pool({.threads = 2, .queue_jobs = 10});
  int result = 0;
  std::thread::id where;
  run_task(reactor_, [](CpuPool& p, int& out, std::thread::id& id) -> net::Task<> {
    auto answer = co_await p.run(3, [text = std::string("abc"), &id](const std::stop_token&) {
      id = std::this_thread::get_id();
      return static_cast<int>(text.size());
    });
    out = *answer;
  }(*pool_, result, where));
  EXPECT_EQ(result, 3);
  EXPECT_NE(where, std::this_thread::get_id());
  EXPECT_EQ(pool_->load().bytes, 0U);
}

TEST_F(CpuPoolTest, MoreJobsThanMayWaitAreRefused) {
  open_pool({.threads = 1, .queue_jobs = 1});
  net::TaskGroup group;
  block(group, 1);
  const Outcome& waiting = name(group, 1, 'a');
  const Outcome& refused = name(group, 1, 'b');
  EXPECT_FALSE(waiting.ended);
  EXPECT_EQ(refused.error, ErrorCode::Overloaded);
  release();
  wait_for([&] { return waiting.ended; });
  EXPECT_EQ(order_, "a");
}

TEST_F(CpuPoolTest, MoreBytesThanMayWaitAreRefusedUntilSomeAreDone) {
  open_pool({.threads = 1, .queue_bytes = 100});
  net::TaskGroup group;
  const Outcome& first = block(group, 60);
  const Outcome& fits = name(group, 40, 'a');
  EXPECT_EQ(name(group, 1, 'b').error, ErrorCode::Overloaded);
  EXPECT_EQ(pool_->load().bytes, 100U);
  EXPECT_EQ(pool_->load().waiting, 1U);
  EXPECT_EQ(pool_->load().running, 1U);
  release();
  wait_for([&] { return first.ended && fits.ended; });
  const Outcome& alone = name(group, 1000, 'c');  // larger than the bound, but nothing else is here
  wait_for([&] { return alone.ended; });
  EXPECT_EQ(order_, "ac");
}

TEST_F(CpuPoolTest, AJobWhoseRequesterLeftIsTakenOutOfTheQueue) {
  open_pool({.threads = 1});
  net::TaskGroup stays;
  block(stays, 10);
  auto owned = std::make_shared<int>(1);
  {
    net::TaskGroup leaves;
    ask(leaves, 20, [this, owned](const std::stop_token&) {
      order_ += 'x';
      return 0;
    });
    EXPECT_EQ(pool_->load().waiting, 1U);
    reactor_.post([&] { leaves.cancel(); });
    turn();
  }
  EXPECT_EQ(pool_->load().waiting, 0U);
  EXPECT_EQ(pool_->load().bytes, 10U);
  EXPECT_EQ(owned.use_count(), 1);
  const Outcome& last = name(stays, 1, 'a');
  release();
  wait_for([&] { return last.ended; });
  EXPECT_EQ(order_, "a");
}

TEST_F(CpuPoolTest, ARunningJobWhoseRequesterLeftIsToldToStop) {
  open_pool({.threads = 1});
  std::latch started(1);
  net::TaskGroup leaves;
  const Outcome& outcome = ask(leaves, 10, [&started](const std::stop_token& stop) {
    started.count_down();
    while (!stop.stop_requested()) {
      std::this_thread::yield();
    }
    return 0;
  });
  started.wait();
  reactor_.post([&] { leaves.cancel(); });
  wait_for([&] { return pool_->load().running == 0; });
  turn();
  EXPECT_FALSE(outcome.ended);
  EXPECT_EQ(pool_->load().bytes, 0U);
}

TEST_F(CpuPoolTest, SmallJobsGoFirst) {
  open_pool({.threads = 1});
  net::TaskGroup group;
  block(group, 1);
  name(group, 100, 'L');
  name(group, 60, 'm');
  for (const char letter : {'a', 'b', 'c'}) {
    name(group, 30, letter);
  }
  release();
  wait_for([&] { return pool_->load().bytes == 0; });
  EXPECT_EQ(order_, "abcmL");
}

TEST_F(CpuPoolTest, ASteadyFlowOfSmallJobsDoesNotKeepALargerOneWaiting) {
  open_pool({.threads = 1});
  net::TaskGroup group;
  block(group, 1);
  name(group, 100, 'L');
  reactor_.post([&] { chain(group, 30, 'a', 'h'); });
  turn();
  release();
  wait_for([&] { return pool_->load().bytes == 0; });
  EXPECT_EQ(order_, "abcLdefgh");
}

TEST_F(CpuPoolTest, LargeJobsLeaveOneThreadToSmallOnes) {
  open_pool({.threads = 2, .large_job_bytes = 1000});
  net::TaskGroup group;
  const Outcome& first = block(group, 5000);
  const Outcome& second = name(group, 2000, 'L');
  const Outcome& small = name(group, 999, 's');
  wait_for([&] { return small.ended; });
  EXPECT_FALSE(second.ended);
  EXPECT_EQ(order_, "s");
  release();
  wait_for([&] { return first.ended && second.ended; });
}

TEST_F(CpuPoolTest, CancellingAnswersEveryoneAtOnceAndTakesNoMore) {
  open_pool({.threads = 1});
  net::TaskGroup group;
  const Outcome& running = block(group, 1);  // does not look at its stop token
  const Outcome& waiting = name(group, 1, 'a');
  pool_->cancel_all({ErrorCode::Draining, "shutting down", {}});
  turn();
  EXPECT_EQ(running.error, ErrorCode::Draining);
  EXPECT_EQ(waiting.error, ErrorCode::Draining);
  EXPECT_EQ(name(group, 1, 'b').error, ErrorCode::Draining);
  release();
  wait_for([&] { return pool_->load().running == 0; });
  turn();
  EXPECT_EQ(order_, "");
}

TEST_F(CpuPoolTest, DestroyingItStopsWhatRuns) {
  open_pool({.threads = 1});
  std::latch started(1);
  net::TaskGroup group;
  ask(group, 1, [&started](const std::stop_token& stop) {
    started.count_down();
    while (!stop.stop_requested()) {
      std::this_thread::yield();
    }
    return 0;
  });
  name(group, 1, 'a');
  started.wait();
  reactor_.post([&] { group.cancel(); });
  turn();
  pool_.reset();
  EXPECT_EQ(order_, "");
}

}  // namespace
}  // namespace fairlead::serving
