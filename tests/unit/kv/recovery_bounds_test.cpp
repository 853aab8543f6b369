#include <gtest/gtest.h>

#include <algorithm>

#include "kv/recovery.hpp"
#include "kv/recovery_testing.hpp"

namespace fairlead::kv {
namespace {

using Counters = RecoveryCounters;

TEST_F(RecoveryTest, R8HoldsNoMoreThanTheBufferAndReplaysTheRest) {
  lose(10);
  RecoveryOptions options;
  options.buffer_batches = 4;
  start(options);
  recovery_->connected(now_);
  for (int i = 0; i < 10; ++i) {
    live();
    EXPECT_LE(recovery_->held(), 4U);
  }
  EXPECT_EQ(count(&Counters::overflows), 6);
  expect_state(ViewState::Stale, StaleReason::BufferFull);
  for (std::uint64_t i = 0; i < 10; ++i) {
    replay(i);
  }
  end_replay();
  EXPECT_EQ(host_.asked, 14U);
  answer();
  expect_state(ViewState::Live);
  EXPECT_EQ(recovery_->coverage(), Coverage::Complete);
  expect_view();
}

TEST_F(RecoveryTest, R8BoundsTheBytesHeld) {
  lose(1);
  RecoveryOptions options;
  options.buffer_bytes = 10;
  start(options);
  recovery_->connected(now_);
  for (int i = 0; i < 5; ++i) {
    live();
  }
  EXPECT_EQ(recovery_->held(), 3U);  // "a:1" to "a:3"
  answer();
  expect_state(ViewState::Live);
  expect_view();
}

TEST_F(RecoveryTest, R8AHeldNumberIsHeldOnce) {
  lose(5);
  start();
  recovery_->connected(now_);
  live();  // 5
  replay(0);
  replay(5);
  EXPECT_EQ(recovery_->held(), 1U);
  EXPECT_EQ(count(&Counters::duplicates), 1);
}

TEST_F(RecoveryTest, MarkersAndEmptyPayloadsMustGoTogether) {
  lose(2);
  start();
  recovery_->connected(now_);
  recovery_->replayed(Recovery::kEndMarker, "payload", now_);
  recovery_->replayed(0, "", now_);
  recovery_->live(Recovery::kEndMarker, "payload", now_);
  EXPECT_EQ(count(&Counters::malformed), 3);
  // None of them prolongs the wait.
  pass(Milliseconds(5'000));
  expect_state(ViewState::Stale, StaleReason::ReplaySilent);
  pass_to_deadline();
  answer();
  expect_view();
  // Nobody asked for these.
  recovery_->replayed(1, engine_.payload(1), now_);
  recovery_->replayed(Recovery::kEndMarker, "", now_);
  EXPECT_EQ(count(&Counters::malformed), 5);
  expect_state(ViewState::Live);
  expect_view();
}

TEST_F(RecoveryTest, AnUndecodableBatchIsReplayedOnce) {
  start_live();
  live();
  engine_.publish();
  recovery_->live(1, "bad", now_);
  EXPECT_EQ(host_.asked, 1U);
  EXPECT_EQ(host_.view.size(), 1U);
  host_.last = 0;  // the second try of 1 is no repetition
  live();          // 2 waits
  EXPECT_EQ(host_.view.size(), 1U);
  answer();
  expect_state(ViewState::Live);
  EXPECT_EQ(recovery_->coverage(), Coverage::Complete);
  EXPECT_EQ(count(&Counters::decode_errors), 1);
  EXPECT_EQ(count(&Counters::lost_batches), 0);
  expect_view();
}

TEST_F(RecoveryTest, ABatchThatIsUndecodableTwiceIsSkippedAndCounted) {
  start_live();
  live();
  engine_.publish();
  recovery_->live(1, "bad", now_);
  host_.last = 0;
  recovery_->replayed(1, "bad", now_);
  end_replay();
  expect_state(ViewState::Live);
  EXPECT_EQ(recovery_->coverage(), Coverage::Doubtful);
  EXPECT_EQ(count(&Counters::lost_batches), 1);
  EXPECT_EQ(host_.requests, 2);
  live();
  EXPECT_EQ(host_.view, (std::vector<std::string>{"a:0", "a:2"}));
}

TEST_F(RecoveryTest, AStreamOfGarbageIsStaleAndCostsFewReplays) {
  start_live();
  live();
  for (std::uint64_t i = 1; i < 100; ++i) {
    engine_.publish();
    recovery_->live(i, "bad", now_);
    if (host_.asked) {
      host_.last.reset();
      recovery_->replayed(i, "bad", now_);
      end_replay();
    }
  }
  expect_state(ViewState::Stale, StaleReason::Undecodable);
  EXPECT_LE(host_.requests, 5);
  EXPECT_EQ(count(&Counters::lost_batches), 99);
  live();
  expect_state(ViewState::Live);
  EXPECT_EQ(recovery_->coverage(), Coverage::Doubtful);
}

TEST_F(RecoveryTest, BatchesOfAnotherRankAreRejectedWithoutReplay) {
  start_live();
  for (std::uint64_t i = 0; i < 5; ++i) {
    engine_.publish();
    recovery_->live(i, "rank", now_);
  }
  expect_state(ViewState::Stale, StaleReason::WrongRank);
  EXPECT_EQ(host_.requests, 1);
  EXPECT_EQ(count(&Counters::wrong_rank), 5);
  EXPECT_EQ(count(&Counters::lost_batches), 0);
  live();
  expect_state(ViewState::Live);
}

TEST_F(RecoveryTest, WithoutReplayTheFirstBatchBeginsTheView) {
  start({.replay = false});
  recovery_->connected(now_);
  expect_state(ViewState::NoEvents);
  lose(7);
  live();
  expect_state(ViewState::Live);
  EXPECT_EQ(recovery_->coverage(), Coverage::Partial);
  EXPECT_EQ(count(&Counters::lost_batches), 0);
  EXPECT_EQ(host_.requests, 0);
  EXPECT_EQ(recovery_->deadline(), Recovery::TimePoint::max());
}

TEST_F(RecoveryTest, WithoutReplayAStreamFromZeroIsComplete) {
  start({.replay = false});
  recovery_->connected(now_);
  live();
  EXPECT_EQ(recovery_->coverage(), Coverage::Complete);
}

TEST_F(RecoveryTest, WithoutReplayASmallLossKeepsTheView) {
  host_.each = {.stored = 10, .removed = 1};
  start({.replay = false});
  recovery_->connected(now_);
  for (int i = 0; i < 100; ++i) {
    live();
  }
  lose(3);
  live();
  expect_state(ViewState::Live);
  EXPECT_EQ(recovery_->coverage(), Coverage::Doubtful);
  EXPECT_EQ(count(&Counters::gaps), 1);
  EXPECT_EQ(count(&Counters::lost_batches), 3);
  EXPECT_EQ(host_.clears, 0);
  EXPECT_EQ(host_.view.size(), 101U);
  // The engine empties its cache: from here on the view is right again.
  recovery_->live(engine_.publish(), "clear", now_);
  EXPECT_EQ(recovery_->coverage(), Coverage::Complete);
}

TEST_F(RecoveryTest, WithoutReplayALossThatOutlivesTheViewClearsIt) {
  // 1 block is kept per batch and 9 are replaced, so a quarter of 100 blocks is 3 batches.
  host_.each = {.stored = 10, .removed = 9};
  start({.replay = false});
  recovery_->connected(now_);
  for (int i = 0; i < 100; ++i) {
    live();
  }
  lose(2);
  live();
  EXPECT_EQ(host_.clears, 0);
  lose(2);
  live();
  EXPECT_EQ(host_.clears, 1);
  EXPECT_EQ(recovery_->coverage(), Coverage::Partial);
  EXPECT_EQ(host_.view.size(), 1U);
}

TEST_F(RecoveryTest, WithoutReplayARestartBeginsAnew) {
  start({.replay = false});
  recovery_->connected(now_);
  live();
  live();
  engine_ = ModelPublisher("b");
  live();
  expect_state(ViewState::Live);
  EXPECT_EQ(recovery_->coverage(), Coverage::Complete);
  EXPECT_EQ(count(&Counters::restarts), 1);
  expect_view();
  // The news of it comes late and drops nothing.
  recovery_->new_instance(now_);
  expect_view();
}

TEST_F(RecoveryTest, WithoutReplayOnlyTheNextNumberProvesThatNothingWasLost) {
  start({.replay = false});
  recovery_->connected(now_);
  live();
  live();
  recovery_->disconnected(now_);
  expect_state(ViewState::Stale, StaleReason::Disconnected);
  recovery_->connected(now_);
  expect_state(ViewState::Stale, StaleReason::Unconfirmed);
  live();
  expect_state(ViewState::Live);
  EXPECT_EQ(recovery_->coverage(), Coverage::Complete);
  recovery_->disconnected(now_);
  recovery_->connected(now_);
  lose();
  live();  // a loss, or another life
  expect_state(ViewState::Live);
  EXPECT_EQ(recovery_->coverage(), Coverage::Partial);
  EXPECT_EQ(host_.clears, 1);
}

TEST_F(RecoveryTest, ARequestThatCannotBeSentIsRepeatedWithGrowingPauses) {
  host_.refuse = true;
  lose(3);
  start();
  recovery_->connected(now_);
  expect_state(ViewState::Stale, StaleReason::ReplaySilent);
  EXPECT_EQ(recovery_->deadline(), now_ + Milliseconds(100));
  pass_to_deadline();
  EXPECT_EQ(recovery_->deadline(), now_ + Milliseconds(200));
  host_.refuse = false;
  pass_to_deadline();
  answer();
  expect_state(ViewState::Live);
  expect_view();
}

TEST_F(RecoveryTest, WhatWasHeldWhenTheConnectionBrokeIsKeptForTheSameLifeOnly) {
  for (const bool same : {true, false}) {
    SCOPED_TRACE(same);
    host_ = {};
    engine_ = ModelPublisher("a");
    start_live();
    live();
    lose();
    live();  // 2 is held
    recovery_->disconnected(now_);
    EXPECT_FALSE(host_.asked);
    if (!same) {
      engine_ = ModelPublisher("b");
      lose(2);
    }
    recovery_->connected(now_);
    while (host_.asked) {
      answer();
    }
    expect_state(ViewState::Live);
    expect_view();
  }
}

}  // namespace
}  // namespace fairlead::kv
