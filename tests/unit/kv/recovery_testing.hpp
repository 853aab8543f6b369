#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kv/recovery.hpp"

namespace fairlead::kv {

/// One life of a publisher: numbered batches, and a buffer of the last ones.
class ModelPublisher {
 public:
  explicit ModelPublisher(std::string life, std::size_t buffer = 10000)
      : life_(std::move(life)), buffer_(buffer) {}

  /// Publishes one more batch; the result is its number.
  std::uint64_t publish() { return next_++; }
  std::uint64_t next() const { return next_; }
  std::string payload(std::uint64_t sequence) const {
    return life_ + ":" + std::to_string(sequence);
  }
  /// Numbers an answer to a request from `start` on gives.
  std::vector<std::uint64_t> answer(std::uint64_t start) const {
    std::vector<std::uint64_t> numbers;
    const std::uint64_t oldest = next_ > buffer_ ? next_ - buffer_ : 0;
    for (std::uint64_t i = std::max(start, oldest); i < next_; ++i) {
      numbers.push_back(i);
    }
    return numbers;
  }

 private:
  std::string life_;
  std::size_t buffer_;
  std::uint64_t next_ = 0;
};

/// Records what a recovery does.
class RecordingHost : public RecoveryHost {
 public:
  Applied apply(std::uint64_t sequence, std::string_view payload) override {
    if (last && sequence <= *last) {
      ADD_FAILURE() << sequence << " was applied after " << *last;
    }
    last = sequence;
    if (payload.starts_with("bad")) {
      return {.outcome = Applied::Outcome::Undecodable};
    }
    if (payload.starts_with("rank")) {
      return {.outcome = Applied::Outcome::WrongRank};
    }
    view.emplace_back(payload);
    Applied applied = each;
    applied.cleared = payload.starts_with("clear");
    return applied;
  }
  void clear() override {
    view.clear();
    last.reset();
    ++clears;
  }
  bool request_replay(std::uint64_t start) override {
    ++requests;
    if (refuse) {
      return false;
    }
    EXPECT_FALSE(asked) << "two requests at a time";
    asked = start;
    return true;
  }
  void abandon_replay() override { asked.reset(); }
  void gap_detected(std::uint64_t expected, std::uint64_t got) override {
    gaps.emplace_back(expected, got);
  }

  std::vector<std::string> view;       ///< Applied since the last clear.
  std::optional<std::uint64_t> last;   ///< Highest applied since then; a retried one counts once.
  std::optional<std::uint64_t> asked;  ///< Start of the open request.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> gaps;
  Applied each;  ///< What every batch does.
  bool refuse = false;
  int clears = 0;
  int requests = 0;
};

/// A recovery with its host and a hand-driven clock.
class RecoveryTest : public ::testing::Test {
 protected:
  using Milliseconds = std::chrono::milliseconds;

  void start(RecoveryOptions options = {}, const std::optional<StreamPoint>& from = {}) {
    options_ = options;
    recovery_.emplace(options, host_, now_, from);
  }
  /// Ends the recovery and begins another one with its view, as a peer that was handed it.
  void hand_on() {
    const auto point = recovery_->point();
    ASSERT_TRUE(point);
    start(options_, point);
    EXPECT_FALSE(recovery_->usable());
    EXPECT_FALSE(recovery_->point()) << "not confirmed yet";
  }
  void start_live() {
    start();
    recovery_->connected(now_);
    answer();
    ASSERT_EQ(recovery_->reason(), StaleReason::None);
  }
  void pass(Milliseconds time) {
    now_ += time;
    recovery_->tick(now_);
  }
  /// Time passes until the next deadline.
  void pass_to_deadline() {
    ASSERT_NE(recovery_->deadline(), Recovery::TimePoint::max());
    now_ = std::max(now_, recovery_->deadline());
    recovery_->tick(now_);
  }
  /// Publishes a batch that arrives.
  void live() { deliver(engine_.publish()); }
  /// Publishes batches that are lost.
  void lose(int count = 1) {
    for (int i = 0; i < count; ++i) {
      engine_.publish();
    }
  }
  void deliver(std::uint64_t sequence) {
    recovery_->live(sequence, engine_.payload(sequence), now_);
  }
  /// One batch of an answer.
  void replay(std::uint64_t sequence) {
    recovery_->replayed(sequence, engine_.payload(sequence), now_);
  }
  void end_replay() {
    host_.asked.reset();
    recovery_->replayed(Recovery::kEndMarker, {}, now_);
  }
  /// Answers the open request as the engine would.
  void answer() {
    ASSERT_TRUE(host_.asked);
    const std::uint64_t start = *host_.asked;
    const int request = host_.requests;
    for (const std::uint64_t sequence : engine_.answer(start)) {
      if (!host_.asked || host_.requests != request) {
        return;  // abandoned
      }
      replay(sequence);
    }
    if (host_.asked && host_.requests == request) {
      end_replay();
    }
  }
  /// The view is what this life of the engine published, from `first` on.
  void expect_view(std::uint64_t first = 0) {
    std::vector<std::string> expected;
    for (std::uint64_t i = first; i < engine_.next(); ++i) {
      expected.push_back(engine_.payload(i));
    }
    EXPECT_EQ(host_.view, expected);
  }
  void expect_state(ViewState state, StaleReason reason = StaleReason::None) {
    EXPECT_EQ(name(recovery_->state()), name(state));
    EXPECT_EQ(describe(recovery_->reason()), describe(reason));
  }
  std::int64_t count(observe::Cell RecoveryCounters::* cell) {
    return (recovery_->counters().*cell).get();
  }

  RecordingHost host_;
  RecoveryOptions options_;
  std::optional<Recovery> recovery_;
  ModelPublisher engine_{"a"};
  Recovery::TimePoint now_{std::chrono::hours(1)};
};

}  // namespace fairlead::kv
