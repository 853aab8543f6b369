#include "kv/recovery.hpp"

#include <gtest/gtest.h>

#include "kv/recovery_testing.hpp"

namespace fairlead::kv {
namespace {

using Counters = RecoveryCounters;

TEST_F(RecoveryTest, ReplaysFromZeroOnceConnected) {
  lose(3);
  start();
  expect_state(ViewState::Connecting);
  EXPECT_FALSE(host_.asked);
  recovery_->connected(now_);
  EXPECT_EQ(host_.asked, 0U);
  expect_state(ViewState::Replaying);
  EXPECT_FALSE(recovery_->usable());
  answer();
  expect_state(ViewState::Live);
  EXPECT_TRUE(recovery_->usable());
  EXPECT_EQ(recovery_->coverage(), Coverage::Complete);
  expect_view();
}

TEST_F(RecoveryTest, R4AnEmptyReplayIsSuccess) {
  start();
  recovery_->connected(now_);
  end_replay();
  expect_state(ViewState::NoEvents);
  EXPECT_TRUE(recovery_->usable());
  live();
  expect_state(ViewState::Live);
  EXPECT_EQ(recovery_->coverage(), Coverage::Complete);
  expect_view();
}

TEST_F(RecoveryTest, SaysWhenItCannotConnectAndStillDoesLater) {
  start();
  pass(Milliseconds(9'999));
  expect_state(ViewState::Connecting);
  pass(Milliseconds(1));
  expect_state(ViewState::Stale, StaleReason::CannotConnect);
  EXPECT_EQ(recovery_->deadline(), Recovery::TimePoint::max());
  lose(2);
  recovery_->connected(now_);
  answer();
  expect_state(ViewState::Live);
  expect_view();
}

TEST_F(RecoveryTest, R2HistoryAboveZeroMakesAPartialButUsableView) {
  engine_ = ModelPublisher("a", 10);
  lose(500);
  start();
  recovery_->connected(now_);
  answer();
  expect_state(ViewState::Live);
  EXPECT_TRUE(recovery_->usable());
  EXPECT_EQ(recovery_->coverage(), Coverage::Partial);
  EXPECT_EQ(count(&Counters::partial_starts), 1);
  EXPECT_EQ(count(&Counters::lost_batches), 0);
  EXPECT_EQ(host_.clears, 0);
  expect_view(490);
}

TEST_F(RecoveryTest, R5AppliesOverlapOnceInOrder) {
  lose(5);
  start();
  recovery_->connected(now_);
  replay(0);
  replay(1);
  live();  // 5
  live();  // 6
  replay(2);
  replay(3);
  replay(4);
  replay(5);
  live();  // 7, which the replay gives, too
  replay(6);
  replay(7);
  end_replay();
  live();
  expect_state(ViewState::Live);
  expect_view();
  EXPECT_GT(count(&Counters::duplicates), 0);
  EXPECT_EQ(recovery_->held(), 0U);
}

TEST_F(RecoveryTest, SkipsLiveBatchesThatTheReplayGaveBefore) {
  lose(3);
  start();
  recovery_->connected(now_);
  answer();
  deliver(1);
  deliver(2);
  live();
  expect_view();
  EXPECT_EQ(count(&Counters::restarts), 0);
}

TEST_F(RecoveryTest, R7RepairsAGapFromTheCursor) {
  start_live();
  live();
  lose(2);
  live();  // 3
  expect_state(ViewState::Replaying);
  EXPECT_TRUE(recovery_->usable());
  EXPECT_EQ(host_.asked, 1U);
  EXPECT_EQ(host_.gaps, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{1, 3}}));
  live();  // 4
  answer();
  expect_state(ViewState::Live);
  EXPECT_EQ(recovery_->coverage(), Coverage::Complete);
  EXPECT_EQ(count(&Counters::gaps), 1);
  EXPECT_EQ(count(&Counters::lost_batches), 0);
  expect_view();
}

TEST_F(RecoveryTest, R6AsksAgainWhenAGapIsLeftAtTheEndMarker) {
  start_live();
  live();
  lose();
  live();  // 2
  replay(1);
  replay(2);
  lose();
  live();  // 4, behind another hole
  end_replay();
  expect_state(ViewState::Replaying);
  EXPECT_EQ(host_.asked, 3U);
  answer();
  expect_state(ViewState::Live);
  expect_view();
}

TEST_F(RecoveryTest, AHoleInsideAnAnswerIsNoLoss) {
  lose(6);
  start();
  recovery_->connected(now_);
  replay(0);
  replay(1);
  replay(4);
  replay(5);
  end_replay();
  EXPECT_EQ(host_.asked, 2U);
  answer();
  expect_state(ViewState::Live);
  EXPECT_EQ(recovery_->coverage(), Coverage::Complete);
  EXPECT_EQ(count(&Counters::lost_batches), 0);
  expect_view();
}

TEST_F(RecoveryTest, AnAnswerWithHolesWhoseEndIsLostIsSoonAskedForAgain) {
  lose(6);
  start();
  recovery_->connected(now_);
  replay(0);
  replay(4);
  pass(Milliseconds(250));
  EXPECT_EQ(host_.asked, 1U);
  EXPECT_EQ(count(&Counters::replay_timeouts), 0);
  answer();
  expect_view();
}

TEST_F(RecoveryTest, AProvenLossBuildsTheViewAnew) {
  engine_ = ModelPublisher("a", 4);
  start_live();
  live();
  live();
  lose(10);
  live();  // 12; the buffer begins at 9
  EXPECT_EQ(host_.asked, 2U);
  answer();
  expect_state(ViewState::Live);
  EXPECT_EQ(recovery_->coverage(), Coverage::Partial);
  EXPECT_EQ(count(&Counters::lost_batches), 7);
  EXPECT_EQ(host_.clears, 1);
  expect_view(9);
}

TEST_F(RecoveryTest, R2SilenceIsNoProofOfLoss) {
  lose(3);
  start();
  recovery_->connected(now_);
  pass(Milliseconds(4'999));
  expect_state(ViewState::Replaying);
  pass(Milliseconds(1));
  expect_state(ViewState::Stale, StaleReason::ReplaySilent);
  EXPECT_FALSE(host_.asked);
  EXPECT_EQ(count(&Counters::lost_batches), 0);
  pass(Milliseconds(100));
  EXPECT_EQ(host_.asked, 0U);
  answer();
  expect_state(ViewState::Live);
  EXPECT_EQ(recovery_->coverage(), Coverage::Complete);
  expect_view();
}

TEST_F(RecoveryTest, R3EveryFrameProlongsTheAnswer) {
  lose(4);
  start();
  recovery_->connected(now_);
  for (std::uint64_t i = 0; i < 4; ++i) {
    pass(Milliseconds(4'000));
    replay(i);
  }
  end_replay();
  expect_state(ViewState::Live);
  EXPECT_EQ(host_.requests, 1);
  expect_view();
}

TEST_F(RecoveryTest, GoesOnWithoutHistoryThatIsNotToBeHadAndFetchesItLater) {
  lose(3);
  start();
  recovery_->connected(now_);
  live();  // 3
  while (recovery_->state() != ViewState::Live) {
    ASSERT_LT(host_.requests, 10);
    pass_to_deadline();
  }
  EXPECT_EQ(host_.requests, 3);
  EXPECT_EQ(recovery_->coverage(), Coverage::Partial);
  EXPECT_EQ(count(&Counters::given_up), 1);
  EXPECT_EQ(host_.view, std::vector<std::string>{"a:3"});
  live();
  EXPECT_EQ(host_.view.size(), 2U);
  pass_to_deadline();
  expect_state(ViewState::Live);
  answer();  // the check's answer: the endpoint is there after all
  expect_state(ViewState::Replaying);
  answer();
  expect_state(ViewState::Live);
  EXPECT_EQ(recovery_->coverage(), Coverage::Complete);
  expect_view();
}

TEST_F(RecoveryTest, NothingKnownAtAllAndAReplayThatAnswersLate) {
  lose(3);
  start();
  recovery_->connected(now_);
  while (recovery_->state() != ViewState::NoEvents) {
    ASSERT_LT(host_.requests, 10);
    pass_to_deadline();
  }
  EXPECT_EQ(recovery_->coverage(), Coverage::Partial);
  pass_to_deadline();
  answer();
  expect_state(ViewState::Live);
  EXPECT_EQ(recovery_->coverage(), Coverage::Complete);
  expect_view();
}

TEST_F(RecoveryTest, AGapThatNoReplayFillsIsGivenUpAndCounted) {
  host_.each = {.stored = 10, .removed = 1};
  start_live();
  for (int i = 0; i < 20; ++i) {
    live();
  }
  lose(2);
  live();
  for (int i = 0; i < 10 && recovery_->state() != ViewState::Live; ++i) {
    pass_to_deadline();
  }
  expect_state(ViewState::Live);
  EXPECT_EQ(recovery_->coverage(), Coverage::Doubtful);
  EXPECT_EQ(count(&Counters::lost_batches), 2);
  EXPECT_EQ(host_.clears, 0);
  EXPECT_EQ(host_.view.size(), 21U);
  // The next gap costs one attempt only.
  const int requests = host_.requests;
  lose();
  live();
  pass_to_deadline();
  expect_state(ViewState::Live);
  EXPECT_EQ(host_.requests, requests + 1);
}

TEST_F(RecoveryTest, ASequenceThatGoesBackIsAnotherLife) {
  start_live();
  for (int i = 0; i < 5; ++i) {
    live();
  }
  engine_ = ModelPublisher("b");
  lose(2);
  live();  // 2
  EXPECT_EQ(host_.clears, 1);
  EXPECT_EQ(host_.asked, 0U);
  expect_state(ViewState::Replaying);
  EXPECT_FALSE(recovery_->usable());
  answer();
  expect_state(ViewState::Live);
  EXPECT_EQ(recovery_->coverage(), Coverage::Complete);
  EXPECT_EQ(count(&Counters::restarts), 1);
  expect_view();
}

TEST_F(RecoveryTest, TheSameNumberTwiceIsAnotherLife) {
  start_live();
  live();
  engine_ = ModelPublisher("b");
  live();  // 0 again
  answer();
  EXPECT_EQ(count(&Counters::restarts), 1);
  expect_view();
}

TEST_F(RecoveryTest, AnotherLifeThatIsAheadIsRecognisedAfterReconnecting) {
  start_live();
  live();
  live();
  recovery_->disconnected(now_);
  expect_state(ViewState::Stale, StaleReason::Disconnected);
  EXPECT_FALSE(recovery_->usable());
  engine_ = ModelPublisher("b");
  lose(10);
  recovery_->connected(now_);
  EXPECT_EQ(host_.asked, 1U);  // the last batch known: is it the same one?
  live();
  answer();
  expect_state(ViewState::Replaying);
  EXPECT_EQ(host_.asked, 0U);
  answer();
  expect_state(ViewState::Live);
  EXPECT_EQ(count(&Counters::restarts), 1);
  expect_view();
}

TEST_F(RecoveryTest, AnotherLifeThatIsBehindIsRecognisedAfterReconnecting) {
  start_live();
  for (int i = 0; i < 8; ++i) {
    live();
  }
  recovery_->disconnected(now_);
  engine_ = ModelPublisher("b");
  lose(2);
  recovery_->connected(now_);
  EXPECT_EQ(host_.asked, 7U);
  answer();
  EXPECT_EQ(host_.asked, 0U);
  answer();
  expect_state(ViewState::Live);
  EXPECT_EQ(count(&Counters::restarts), 1);
  expect_view();
}

TEST_F(RecoveryTest, TheSameLifeGoesOnAfterReconnecting) {
  start_live();
  live();
  live();
  recovery_->disconnected(now_);
  lose(3);
  recovery_->connected(now_);
  live();
  answer();
  expect_state(ViewState::Live);
  EXPECT_EQ(count(&Counters::restarts), 0);
  EXPECT_EQ(host_.clears, 0);
  EXPECT_EQ(recovery_->coverage(), Coverage::Complete);
  expect_view();
}

TEST_F(RecoveryTest, ALifeWhoseBufferMovedOnWhileDisconnectedIsBuiltAnew) {
  engine_ = ModelPublisher("a", 3);
  start_live();
  live();
  live();
  recovery_->disconnected(now_);
  lose(5);
  recovery_->connected(now_);
  answer();
  expect_state(ViewState::Live);
  EXPECT_EQ(recovery_->coverage(), Coverage::Partial);
  EXPECT_EQ(count(&Counters::lost_batches), 2);
  expect_view(4);
}

TEST_F(RecoveryTest, AViewThatWasTakenOverIsUsedOnceItsLastBatchIsConfirmed) {
  engine_ = ModelPublisher("a", 6);
  host_.each = {.stored = 4, .removed = 1};
  start_live();
  for (int i = 0; i < 9; ++i) {
    live();
  }
  const StreamPoint before = *recovery_->point();
  EXPECT_EQ(before.sequence, 8U);
  EXPECT_EQ(before.batches, 9U);
  EXPECT_EQ(before.stored, 36U);
  EXPECT_EQ(before.removed, 9U);
  hand_on();
  expect_state(ViewState::Connecting);
  lose(3);
  recovery_->connected(now_);
  ASSERT_EQ(host_.asked, 8U);
  expect_state(ViewState::Replaying);
  EXPECT_FALSE(recovery_->usable());
  live();
  answer();
  expect_state(ViewState::Live);
  EXPECT_TRUE(recovery_->usable());
  EXPECT_EQ(recovery_->coverage(), Coverage::Complete);
  EXPECT_EQ(host_.clears, 0);
  expect_view();
  EXPECT_EQ(recovery_->point()->batches, 13U);
}

TEST_F(RecoveryTest, AViewOfAnotherLifeThatWasTakenOverIsDropped) {
  for (const int batches : {1, 3, 9}) {
    engine_ = ModelPublisher("a");
    start_live();
    live();
    live();
    live();
    hand_on();
    engine_ = ModelPublisher("b");
    lose(batches);
    recovery_->connected(now_);
    answer();
    answer();
    expect_state(ViewState::Live);
    EXPECT_EQ(recovery_->coverage(), Coverage::Complete);
    EXPECT_EQ(count(&Counters::restarts), 1);
    expect_view();
    host_.clear();
  }
}

TEST_F(RecoveryTest, AViewThatWasTakenOverTooLateIsBuiltAnew) {
  engine_ = ModelPublisher("a", 3);
  start_live();
  live();
  live();
  hand_on();
  lose(5);
  recovery_->connected(now_);
  answer();
  expect_state(ViewState::Live);
  EXPECT_EQ(recovery_->coverage(), Coverage::Partial);
  expect_view(4);
}

TEST_F(RecoveryTest, AViewIsNotHandedOnWhileItIsInDoubtOrBroken) {
  start();
  EXPECT_FALSE(recovery_->point());
  recovery_->connected(now_);
  EXPECT_FALSE(recovery_->point());
  answer();
  EXPECT_FALSE(recovery_->point()) << "no batch so far";
  live();
  EXPECT_TRUE(recovery_->point());
  recovery_->disconnected(now_);
  EXPECT_FALSE(recovery_->point());
  recovery_->connected(now_);
  EXPECT_FALSE(recovery_->point());
  answer();
  EXPECT_TRUE(recovery_->point());
  start({.replay = false});
  recovery_->connected(now_);
  live();
  expect_state(ViewState::Live);
  EXPECT_FALSE(recovery_->point()) << "nobody could confirm it";
}

TEST_F(RecoveryTest, ANewInstanceIsBuiltFromItsStart) {
  start_live();
  live();
  engine_ = ModelPublisher("b");
  lose(2);
  recovery_->new_instance(now_);
  EXPECT_TRUE(host_.view.empty());
  expect_state(ViewState::Replaying);
  answer();
  expect_view();
  // The same news again, from another side: nothing is dropped.
  recovery_->new_instance(now_);
  expect_state(ViewState::Live);
  expect_view();
}

TEST_F(RecoveryTest, TwoPublishersBehindOneAddressAreNoticedAndCostLittle) {
  start_live();
  const ModelPublisher other("b");
  for (std::uint64_t i = 0; i < 500; ++i) {
    pass(Milliseconds(10));
    recovery_->live(1000 + i, other.payload(1000 + i), now_);
    live();
  }
  expect_state(ViewState::Stale, StaleReason::Unstable);
  EXPECT_LT(host_.requests, 20);
  // One of them goes away.
  pass(Milliseconds(60'000));
  for (int i = 0; i < 20 && recovery_->state() != ViewState::Live; ++i) {
    if (host_.asked) {
      answer();
    } else {
      pass_to_deadline();
    }
  }
  expect_state(ViewState::Live);
  expect_view();
}

TEST_F(RecoveryTest, AnEngineThatWasUnstableIsLiveAgainHoweverBusyItIs) {
  start_live();
  for (int life = 0; life < 4; ++life) {
    engine_ = ModelPublisher(std::string(1, static_cast<char>('b' + life)));
    live();
    if (host_.asked) {
      answer();
    }
  }
  EXPECT_EQ(recovery_->reason(), StaleReason::Unstable);
  const auto began = now_;
  while (recovery_->state() != ViewState::Live && now_ - began < Milliseconds(120'000)) {
    now_ += Milliseconds(400);
    if (now_ >= recovery_->deadline()) {  // as the sockets' thread does
      recovery_->tick(now_);
    }
    live();
    if (host_.asked) {
      answer();
    }
  }
  EXPECT_LE(now_ - began, Milliseconds(61'000));
  expect_state(ViewState::Live);
  expect_view();
}

TEST_F(RecoveryTest, AForeignReplayThatIsAheadOfABusyEngineIsFoundOut) {
  const ModelPublisher other("b");
  start();
  recovery_->connected(now_);
  for (std::uint64_t i = 0; i < 400; ++i) {
    recovery_->replayed(i, other.payload(i), now_);
  }
  end_replay();
  expect_state(ViewState::Live);
  const auto began = now_;
  while (count(&Counters::restarts) == 0 && now_ - began < Milliseconds(60'000)) {
    now_ += Milliseconds(200);
    if (now_ >= recovery_->deadline()) {
      recovery_->tick(now_);
    }
    live();
    if (host_.asked) {
      answer();
    }
  }
  EXPECT_LE(now_ - began, options_.settle_check + Milliseconds(400));
  if (host_.asked) {
    answer();
  }
  expect_state(ViewState::Live);
  expect_view();
}

TEST_F(RecoveryTest, AJumpIntoNowhereHealsItself) {
  start_live();
  live();
  recovery_->live(std::uint64_t{1} << 63, "garbage", now_);
  for (int i = 0; i < 10 && recovery_->state() != ViewState::Live; ++i) {
    if (host_.asked) {
      answer();
    } else {
      pass_to_deadline();
    }
  }
  expect_state(ViewState::Live);
  live();
  answer();
  expect_state(ViewState::Live);
  expect_view();
}

TEST_F(RecoveryTest, ChecksASilentSourceForALostTail) {
  start_live();
  live();
  lose();  // the last one for a long time
  EXPECT_EQ(recovery_->deadline(), now_ + Milliseconds(1'000));
  pass(Milliseconds(1'000));
  EXPECT_EQ(host_.asked, 0U);
  expect_state(ViewState::Live);
  answer();
  expect_state(ViewState::Live);
  expect_view();
  pass(Milliseconds(1'000));
  answer();
  EXPECT_EQ(recovery_->deadline(), now_ + Milliseconds(10'000));
}

TEST_F(RecoveryTest, UnansweredChecksBecomeRareAndHarmNothing) {
  start_live();
  live();
  const auto began = now_;
  for (int i = 0; i < 20; ++i) {
    pass_to_deadline();
    EXPECT_EQ(recovery_->state(), ViewState::Live);
  }
  EXPECT_GT(now_ - began, std::chrono::minutes(15));
  live();
  expect_state(ViewState::Live);
  expect_view();
}

TEST_F(RecoveryTest, ACheckNoticesAnotherLifeThatAnnouncedNothing) {
  start_live();
  live();
  engine_ = ModelPublisher("b");
  pass(Milliseconds(1'000));
  end_replay();
  EXPECT_TRUE(host_.view.empty());
  answer();
  expect_state(ViewState::NoEvents);
}

}  // namespace
}  // namespace fairlead::kv
