#include "routing/admission_queue.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "queue_testing.hpp"

namespace fairlead::routing {
namespace {

using State = QueueEntry::State;

// A queue and its entries; each entry is called by a letter.
struct Fixture {
  explicit Fixture(std::initializer_list<std::string_view> classes, std::size_t limit = 1000)
      : queue(make_profile(classes), limit, kQueueStart) {}

  Result<> add(const QueueDemand& demand, std::int64_t ms = 0, std::size_t workers = 1) {
    return queue.add(entries.emplace_back(), demand, at_ms(ms), workers);
  }
  char name(const QueueEntry* entry) const {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (&entries[i] == entry) {
        return static_cast<char>('a' + i);
      }
    }
    return '-';
  }
  // The next entries, each done at once.
  std::string drain(std::size_t most = 1000, const AdmissionQueue::MayGo& may_go = {}) {
    std::string out;
    while (out.size() < most) {
      QueueEntry* entry = queue.next(may_go);
      if (!entry) {
        break;
      }
      out += name(entry);
      queue.done(*entry);
    }
    return out;
  }

  std::deque<QueueEntry> entries;
  AdmissionQueue queue;
};

QueueDemand tokens(std::uint32_t prompt, std::uint32_t cached = 0, std::size_t of = 0) {
  return {.policy_class = of, .prompt_tokens = prompt, .cached_tokens = cached};
}

TEST(AdmissionQueue, FcfsServesTheEarliestAPriorityCountingAsSeconds) {
  Fixture f({"quantum: 100"});
  for (const auto& [ms, priority] : std::vector<std::pair<int, int>>{
           {3000, 0}, {1000, 0}, {2000, -9}, {5500, 3}, {5500, 5}, {1000, 0}}) {
    ASSERT_TRUE(f.add({.prompt_tokens = 10, .priority = priority}, ms));
  }
  // Keys: -3, -1, -2, -2.5, -0.5, -1.
  EXPECT_EQ(f.drain(), "ebfcda");
}

TEST(AdmissionQueue, LcfsServesTheLatest) {
  Fixture f({"quantum: 100, queue_policy: lcfs"});
  for (const auto& [ms, priority] :
       std::vector<std::pair<int, int>>{{3000, 0}, {1000, 0}, {2000, -9}, {1500, 3}, {3000, 0}}) {
    ASSERT_TRUE(f.add({.prompt_tokens = 10, .priority = priority}, ms));
  }
  EXPECT_EQ(f.drain(), "deacb") << "among equals the one added last";
}

TEST(AdmissionQueue, WsptServesTheMostWeightPerUncachedToken) {
  Fixture f({"quantum: 100, queue_policy: wspt"});
  ASSERT_TRUE(f.add(tokens(1000), 0));
  ASSERT_TRUE(f.add(tokens(1000, 900), 1));
  ASSERT_TRUE(f.add(tokens(200), 2));
  ASSERT_TRUE(f.add({.prompt_tokens = 1000, .priority = 9}, 3));
  ASSERT_TRUE(f.add(tokens(64, 64), 4));
  ASSERT_TRUE(f.add(tokens(64, 1000), 5));
  // Keys: 1/1000, 1/100, 1/200, 10/1000, 1, 1.
  EXPECT_EQ(f.drain(), "efbdca");
}

TEST(AdmissionQueue, StrictPriorityGoesBeforeAnyKey) {
  for (const std::string_view policy : {"fcfs", "lcfs", "wspt"}) {
    Fixture f({fmt::format("quantum: 100, queue_policy: {}", policy)});
    ASSERT_TRUE(f.add({.prompt_tokens = 1, .priority = 1'000'000}, 0));
    ASSERT_TRUE(f.add({.prompt_tokens = 9000, .strict_priority = 1}, 500));
    ASSERT_TRUE(f.add({.prompt_tokens = 9000, .strict_priority = 4'000'000'000}, 400));
    EXPECT_EQ(f.drain(), "cba") << policy;
  }
}

TEST(AdmissionQueue, ClassesTakeTurnsByTheirQuantum) {
  // One round is 100 tokens of c0 and 200 of c1.
  Fixture f({"quantum: 100", "quantum: 200"});
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(f.add(tokens(100, 0, 0), i));  // a c e g
    ASSERT_TRUE(f.add(tokens(100, 0, 1), i));  // b d f h
  }
  EXPECT_EQ(f.drain(), "abdcfheg") << "c0 has no work in between its turns";
}

TEST(AdmissionQueue, CreditThatDoesNotSufficeIsKeptForTheNextRound) {
  Fixture f({"quantum: 10", "quantum: 10"});
  ASSERT_TRUE(f.add(tokens(25, 0, 0)));  // a: after its third round
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(f.add(tokens(5, 0, 1)));  // b to i, two per round
  }
  ASSERT_TRUE(f.add(tokens(5, 0, 0)));   // j: what a left
  ASSERT_TRUE(f.add(tokens(10, 0, 0)));  // k: needs the next quantum
  EXPECT_EQ(f.drain(), "bcdeajfgkhi");
}

TEST(AdmissionQueue, RoundsWithoutEnoughCreditCostNothing) {
  Fixture f({"quantum: 1", "quantum: 3"});
  ASSERT_TRUE(f.add(tokens(4'000'000'000, 0, 0)));
  ASSERT_TRUE(f.add(tokens(3'000'000'000, 0, 1)));
  ASSERT_TRUE(f.add(tokens(3'000'000'000, 0, 1)));
  ASSERT_TRUE(f.add(tokens(3'000'000'000, 0, 1)));
  ASSERT_TRUE(f.add(tokens(3'000'000'000, 0, 1)));
  // c1 goes in rounds 1, 2, 3 and 4 billion; c0 in round 4 billion, ahead of c1 in it.
  EXPECT_EQ(f.drain(), "bcdae");
}

TEST(AdmissionQueue, AClassWhoseFirstMayNotGoIsPassedWithoutCredit) {
  Fixture f({"quantum: 10", "quantum: 10"});
  ASSERT_TRUE(f.add(tokens(10, 0, 0)));
  ASSERT_TRUE(f.add(tokens(10, 0, 0)));
  ASSERT_TRUE(f.add(tokens(10, 0, 1)));
  ASSERT_TRUE(f.add(tokens(10, 0, 1)));
  int asked = 0;
  const auto only_c1 = [&](const QueueEntry& entry) {
    ++asked;
    return entry.demand().policy_class == 1;
  };
  EXPECT_EQ(f.drain(10, only_c1), "cd");
  EXPECT_LE(asked, 3 * 2) << "once per class and call";
  EXPECT_EQ(f.queue.size(), 2u);
  ASSERT_TRUE(f.add(tokens(10, 0, 1)));
  EXPECT_EQ(f.drain(), "aeb") << "what was missed is not made up for";
  EXPECT_EQ(f.queue.next(only_c1), nullptr);
}

TEST(AdmissionQueue, AnEmptyClassLosesItsCredit) {
  Fixture f({"quantum: 50", "quantum: 10"});
  ASSERT_TRUE(f.add(tokens(10, 0, 0)));
  EXPECT_EQ(f.drain(), "a");  // 40 would be left
  ASSERT_TRUE(f.add(tokens(10, 0, 1)));
  ASSERT_TRUE(f.add(tokens(60, 0, 0)));
  ASSERT_TRUE(f.add(tokens(10, 0, 1)));
  EXPECT_EQ(f.drain(), "bdc") << "with 40 left c would go before d";
}

TEST(AdmissionQueue, WhatIsGivenBackIsNextAgain) {
  Fixture f({"quantum: 100", "quantum: 100"});
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(f.add(tokens(60, 0, 0), i));
    ASSERT_TRUE(f.add(tokens(60, 0, 1), i));
  }
  std::string served;
  while (QueueEntry* entry = f.queue.next()) {
    EXPECT_EQ(entry->state(), State::Trying);
    for (int again = 0; again < 3; ++again) {
      f.queue.give_back(*entry);
      EXPECT_EQ(entry->state(), State::Waiting);
      ASSERT_EQ(f.queue.next(), entry);
    }
    served += f.name(entry);
    f.queue.done(*entry);
  }
  Fixture plain({"quantum: 100", "quantum: 100"});
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(plain.add(tokens(60, 0, 0), i));
    ASSERT_TRUE(plain.add(tokens(60, 0, 1), i));
  }
  EXPECT_EQ(served, plain.drain());
}

TEST(AdmissionQueue, WhatIsGivenBackKeepsItsPlaceAndItsClassTheCredit) {
  Fixture f({"quantum: 100", "quantum: 100"});
  ASSERT_TRUE(f.add(tokens(100, 0, 0), 0));  // a
  ASSERT_TRUE(f.add(tokens(100, 0, 1), 0));  // b
  QueueEntry* a = f.queue.next();
  QueueEntry* b = f.queue.next();
  ASSERT_EQ(f.name(a), 'a');
  ASSERT_EQ(f.name(b), 'b');
  EXPECT_TRUE(f.queue.backlog(0)) << "newer ones do not pass it while it is tried";
  ASSERT_TRUE(f.add(tokens(100, 0, 0), 5));  // c
  f.queue.give_back(*a);
  f.queue.give_back(*b);
  // The cursor is at c1, whose credit is back; c0's is, too, so c0 has two turns in its round.
  EXPECT_EQ(f.drain(), "bac");
}

TEST(AdmissionQueue, LeavesInAnyState) {
  Fixture f({"quantum: 100"});
  ASSERT_TRUE(f.add(tokens(50, 20)));
  ASSERT_TRUE(f.add(tokens(70, 30)));
  ASSERT_TRUE(f.add(tokens(90, 40)));
  f.queue.remove(f.entries[1]);
  EXPECT_EQ(f.entries[1].state(), State::Out);
  f.queue.remove(f.entries[1]);  // again: nothing
  QueueEntry* tried = f.queue.next();
  ASSERT_EQ(f.name(tried), 'a');
  EXPECT_EQ(f.queue.trying(), 1u);
  EXPECT_EQ(f.queue.load(0).trying, 1u);
  EXPECT_EQ(f.queue.load(0).requests, 2u);
  EXPECT_EQ(f.queue.load(0).prompt_tokens, 140u);
  EXPECT_EQ(f.queue.load(0).cached_tokens, 60u);
  f.queue.remove(*tried);
  EXPECT_EQ(f.queue.trying(), 0u);
  EXPECT_EQ(f.queue.size(), 1u);
  {
    QueueEntry gone;
    ASSERT_TRUE(f.queue.add(gone, tokens(5), at_ms(9), 1));
    EXPECT_EQ(f.queue.size(), 2u);
  }
  EXPECT_EQ(f.queue.size(), 1u);
  EXPECT_EQ(f.drain(), "c");
  EXPECT_FALSE(f.queue.backlog(0));
  EXPECT_EQ(f.queue.load(0).prompt_tokens, 0u);
  EXPECT_EQ(f.queue.load(0).cached_tokens, 0u);
  // An entry may be used again.
  ASSERT_TRUE(f.queue.add(f.entries[0], tokens(1), at_ms(0), 1));
  EXPECT_EQ(f.drain(), "a");
}

TEST(AdmissionQueue, EntriesMayOutliveIt) {
  QueueEntry waiting;
  QueueEntry tried;
  {
    AdmissionQueue queue(make_profile({"quantum: 1"}), 10, kQueueStart);
    ASSERT_TRUE(queue.add(tried, tokens(1), at_ms(0), 1));
    ASSERT_TRUE(queue.add(waiting, tokens(1), at_ms(1), 1));
    ASSERT_EQ(queue.next(), &tried);
  }
  EXPECT_EQ(waiting.state(), State::Out);
  EXPECT_EQ(tried.state(), State::Out);
}

TEST(AdmissionQueue, TheEntryThatCrossesALimitIsTheLast) {
  {
    Fixture f({"quantum: 1, request_queue_limit_per_worker: 2"});
    for (int i = 0; i < 6; ++i) {
      ASSERT_TRUE(f.add(tokens(1), 0, 3)) << i;
    }
    const auto refused = f.add(tokens(1), 0, 3);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::QueueFull);
    EXPECT_EQ(refused.error().message,
              "The queue `c0` is full: 6 requests wait for a worker, please retry later");
    EXPECT_EQ(f.entries.back().state(), State::Out);
    EXPECT_FALSE(f.add(tokens(1), 0, 2)) << "fewer workers: nobody is thrown out, nobody added";
    EXPECT_EQ(f.queue.size(), 6u);
    EXPECT_TRUE(f.add(tokens(1), 0, 4));
    QueueEntry* tried = f.queue.next();
    EXPECT_FALSE(f.add(tokens(1), 0, 3)) << "one that is tried may come back";
    f.queue.give_back(*tried);
    EXPECT_FALSE(f.add(tokens(1), 0, 0));
  }
  {
    Fixture f({"quantum: 1, raw_isl_token_queue_limit_per_worker: 100"});
    ASSERT_TRUE(f.add(tokens(199), 0, 2));
    ASSERT_TRUE(f.add(tokens(5000), 0, 2)) << "199 of 200";
    const auto refused = f.add(tokens(1), 0, 2);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message,
              "The queue `c0` is full: 5199 prompt tokens wait for a worker, please retry later");
    f.queue.remove(f.entries[1]);
    ASSERT_TRUE(f.add(tokens(1), 0, 2));
    EXPECT_FALSE(f.add(tokens(1), 0, 2)) << "200 of 200";
  }
  {
    Fixture f({"quantum: 1, cached_token_queue_limit_per_worker: 10", "quantum: 1"});
    ASSERT_TRUE(f.add(tokens(50, 9), 0, 1));
    ASSERT_TRUE(f.add(tokens(50, 60), 0, 1)) << "counted as 50";
    EXPECT_EQ(f.queue.load(0).cached_tokens, 59u);
    EXPECT_FALSE(f.add(tokens(50), 0, 1));
    EXPECT_TRUE(f.add(tokens(50, 0, 1), 0, 1)) << "another class";
  }
  {
    Fixture f({"quantum: 1, request_queue_limit_per_worker: 0"});
    EXPECT_FALSE(f.add(tokens(1), 0, 1000)) << "nobody may wait";
  }
  {
    Fixture f({"quantum: 1, request_queue_limit_per_worker: 9223372036854775807", "quantum: 1"}, 3);
    ASSERT_TRUE(f.add(tokens(1, 0, 0), 0, 1'000'000));
    ASSERT_TRUE(f.add(tokens(1, 0, 1), 0, 1'000'000));
    ASSERT_TRUE(f.add(tokens(1, 0, 0), 0, 1'000'000));
    const auto refused = f.add(tokens(1, 0, 1), 0, 1'000'000);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message,
              "The queue `c1` is full: 3 requests of all classes wait for a worker, please retry "
              "later");
  }
}

TEST(AdmissionQueue, ARefusalIsA429WithRetryAfter) {
  EXPECT_EQ(traits(ErrorCode::QueueFull).http_status, 429);
  EXPECT_TRUE(traits(ErrorCode::QueueFull).retryable);
  EXPECT_TRUE(traits(ErrorCode::QueueFull).public_message);
}

}  // namespace
}  // namespace fairlead::routing
