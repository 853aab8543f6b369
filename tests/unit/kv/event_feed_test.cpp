#include "kv/event_feed.hpp"

#include <gtest/gtest.h>
#include <netdb.h>
#include <sys/resource.h>

#include <random>

#include "kv/feed_testing.hpp"

namespace fairlead::kv {
namespace {

using Counters = RecoveryCounters;
using Order = std::vector<EngineHash>;

TEST_F(FeedTest, AppliesHistoryThenTheLiveStream) {
  ScriptedPublisher publisher;
  follow(publisher);
  ASSERT_EQ(publisher.request(), 0U);
  EXPECT_EQ(subscription_->status().state, ViewState::Replaying);
  publisher.publish(2, payload(102));
  publisher.answer(0, payload(100));
  publisher.answer(1, payload(101));
  publisher.answer(2, payload(102));
  publisher.end();
  ASSERT_TRUE(reaches(2));
  publisher.publish(3, payload(103));
  ASSERT_TRUE(reaches(3));
  EXPECT_EQ(sink_.order(), (Order{100, 101, 102, 103}));
  EXPECT_EQ(subscription_->status().coverage, Coverage::Complete);
  EXPECT_EQ(subscription_->events().stored_blocks.get(), 4);
  EXPECT_TRUE(subscription_->status().seconds_since_event);
}

TEST_F(FeedTest, ReadsAnswersWithoutATopicToo) {
  ScriptedPublisher publisher;
  follow(publisher);
  ASSERT_EQ(publisher.request(), 0U);
  publisher.answer({"", big_endian(0), payload(100)});
  publisher.answer({"", big_endian(1), payload(101)});
  publisher.answer({"", big_endian(UINT64_MAX), ""});
  ASSERT_TRUE(reaches(1));
  EXPECT_EQ(sink_.order(), (Order{100, 101}));
}

TEST_F(FeedTest, AnIdleEngineHasNoEvents) {
  ScriptedPublisher publisher;
  follow(publisher);
  ASSERT_EQ(publisher.request(), 0U);
  publisher.end();
  ASSERT_TRUE(reaches(ViewState::NoEvents));
  EXPECT_TRUE(subscription_->status().usable);
  EXPECT_FALSE(subscription_->status().last_sequence);
}

TEST_F(FeedTest, RepairsAGapAndIgnoresGarbage) {
  ScriptedPublisher publisher;
  follow(publisher);
  ASSERT_EQ(publisher.request(), 0U);
  publisher.end();
  ASSERT_TRUE(reaches(ViewState::NoEvents));
  publisher.publish(0, payload(100));
  publisher.publish({"topic"});
  publisher.publish({"topic", "short", payload(1)});
  publisher.publish({"topic", big_endian(1), payload(1), "more"});
  publisher.publish({"a", "b", "c", "d", "e", "f"});
  publisher.publish(2, payload(102));
  // A check may have been sent before.
  auto start = publisher.request();
  while (start == 0U) {
    publisher.answer(0, payload(100));
    publisher.end();
    start = publisher.request();
  }
  ASSERT_EQ(start, 1U);
  publisher.answer({""});
  publisher.answer({"", "topic", "short", payload(1)});
  publisher.answer({"not empty", "topic", big_endian(1), payload(1)});
  publisher.answer({"", "topic", big_endian(1), ""});
  publisher.answer({"", "topic", big_endian(UINT64_MAX), payload(1)});
  publisher.answer(1, payload(101));
  publisher.answer(2, payload(102));
  publisher.end();
  ASSERT_TRUE(reaches(2));
  EXPECT_EQ(sink_.order(), (Order{100, 101, 102}));
  EXPECT_EQ(count(&Counters::malformed), 9);
  EXPECT_EQ(count(&Counters::gaps), 1);
}

TEST_F(FeedTest, R3ASlowReplayIsWaitedForAsLongAsItMoves) {
  FeedOptions options = fast();
  options.recovery.replay_timeout = std::chrono::milliseconds(2000);
  ScriptedPublisher publisher;
  follow(publisher, options);
  ASSERT_EQ(publisher.request(), 0U);
  for (std::uint64_t i = 0; i < 5; ++i) {
    publisher.answer(i, payload(100 + i));
    ASSERT_TRUE(eventually([&] { return sink_.order().size() == i + 1; }));
  }
  publisher.end();
  ASSERT_TRUE(reaches(4));
  EXPECT_EQ(count(&Counters::replay_timeouts), 0);
}

TEST_F(FeedTest, ASilentReplayIsAskedAgainOnAFreshConnection) {
  FeedOptions options = fast();
  options.recovery.replay_timeout = std::chrono::milliseconds(100);
  ScriptedPublisher publisher;
  follow(publisher, options);
  ASSERT_EQ(publisher.request(), 0U);
  ASSERT_TRUE(eventually([&] { return count(&Counters::replays) == 2; }));
  // The answer to the first request is not taken for the second one's.
  publisher.answer(7, payload(107));
  publisher.end();
  ASSERT_EQ(publisher.request(), 0U);
  publisher.answer(0, payload(100));
  publisher.end();
  ASSERT_TRUE(eventually([&] { return subscription_->status().last_sequence == 0U; }));
  EXPECT_EQ(sink_.order(), (Order{100}));
  EXPECT_EQ(subscription_->status().coverage, Coverage::Complete);
}

TEST_F(FeedTest, AMessageAboveTheLimitIsGivenUpAndTheRestFollowed) {
  FeedOptions options = fast();
  options.max_message_bytes = 64 * 1024;
  options.recovery.replay_timeout = std::chrono::milliseconds(100);
  ScriptedPublisher publisher;
  follow(publisher, options);
  ASSERT_EQ(publisher.request(), 0U);
  publisher.answer(0, payload(100));
  publisher.answer(1, std::string(1 << 20, 'x'));
  // The connection is cut and made again; each attempt meets the same batch.
  while (count(&Counters::given_up) == 0) {
    if (const auto start = publisher.request(); start == 1U && count(&Counters::given_up) == 0) {
      publisher.answer(1, std::string(1 << 20, 'x'));
    }
    ASSERT_TRUE(eventually([&, before = count(&Counters::replays)] {
      return count(&Counters::replays) > before || count(&Counters::given_up) > 0;
    }));
  }
  publisher.publish(2, payload(102));
  ASSERT_TRUE(eventually([&] { return subscription_->status().last_sequence == 2U; }));
  EXPECT_EQ(sink_.order(), (Order{100, 102}));
}

TEST_F(FeedTest, AnEngineThatWasCutForALiveMessageAboveTheLimitIsFollowedOn) {
  FeedOptions options = fast();
  options.max_message_bytes = 64 * 1024;
  options.reopen = std::chrono::milliseconds(50);
  options.recovery.replay_timeout = std::chrono::milliseconds(100);
  ScriptedPublisher publisher;
  follow(publisher, options);
  ASSERT_EQ(publisher.request(), 0U);
  publisher.end();
  ASSERT_TRUE(reaches(ViewState::NoEvents));
  publisher.publish(0, payload(100));
  ASSERT_TRUE(reaches(0));
  publisher.publish(1, std::string(1 << 20, 'x'));
  ASSERT_TRUE(eventually([&] { return subscription_->status().state != ViewState::Live; }));
  // The replay has that batch, too, and is given up.
  while (count(&Counters::given_up) == 0) {
    if (const auto start = publisher.request(); start && count(&Counters::given_up) == 0) {
      publisher.answer(0, payload(100));
      publisher.answer(1, std::string(1 << 20, 'x'));
    }
    ASSERT_TRUE(eventually([&, before = count(&Counters::replays)] {
      return count(&Counters::replays) > before || count(&Counters::given_up) > 0 ||
             subscription_->status().state == ViewState::Live;
    }));
    if (subscription_->status().state == ViewState::Live) {
      break;  // the last known batch was confirmed; what comes next shows the gap
    }
  }
  publisher.publish(2, payload(102));
  ASSERT_TRUE(eventually([&] { return subscription_->status().last_sequence == 2U; }));
  EXPECT_EQ(sink_.order(), (Order{100, 102}));
}

TEST_F(FeedTest, AStrangerAtTheEnginesPortIsForgotten) {
  FeedOptions options = fast();
  options.reopen = std::chrono::milliseconds(50);
  mock::KvPublisherOptions engine;
  engine.block_size = kBlockSize;
  engine.replay_endpoint = "tcp://127.0.0.1:*";
  {
    net::zmq::Context context;
    auto stranger = net::zmq::Socket::open(context, net::zmq::Kind::Router);
    ASSERT_TRUE(stranger);
    const auto bound = (*stranger)->bind("tcp://127.0.0.1:*");
    ASSERT_TRUE(bound);
    engine.endpoint = *bound;
    auto monitor = (*stranger)->monitor(context);
    ASSERT_TRUE(monitor);
    follow(engine.endpoint, "", sink_, options);
    // It is met, and the greeting fails.
    ASSERT_TRUE(eventually([&] { return (*monitor)->next().has_value(); }));
  }
  auto publisher = mock::KvPublisher::start(engine);
  ASSERT_TRUE(publisher) << publisher.error().message;
  EXPECT_TRUE(reaches(ViewState::NoEvents));
}

TEST_F(FeedTest, BatchesOfAnotherRankAreRejected) {
  ScriptedPublisher publisher;
  follow(publisher);
  ASSERT_EQ(publisher.request(), 0U);
  publisher.answer(0, payload(100, 1));
  publisher.answer(1, payload(101, 0));
  publisher.end();
  ASSERT_TRUE(reaches(1));
  EXPECT_EQ(sink_.order(), (Order{101}));
  EXPECT_EQ(count(&Counters::wrong_rank), 1);
}

TEST_F(FeedTest, UndecodableBatchesAreReplayedOnceThenSkipped) {
  FeedOptions options = fast();
  options.recovery.settle_check = std::chrono::minutes(1);
  options.recovery.idle_check = std::chrono::minutes(1);
  ScriptedPublisher publisher;
  follow(publisher, options);
  ASSERT_EQ(publisher.request(), 0U);
  publisher.end();
  ASSERT_TRUE(reaches(ViewState::NoEvents));
  publisher.publish(0, payload(100));
  publisher.publish(1, "no batch");
  publisher.publish(2, payload(102));
  ASSERT_EQ(publisher.request(), 1U);
  publisher.answer(1, "no batch");
  publisher.answer(2, payload(102));
  publisher.end();
  ASSERT_TRUE(reaches(2));
  EXPECT_EQ(sink_.order(), (Order{100, 102}));
  EXPECT_EQ(count(&Counters::decode_errors), 2);
  EXPECT_EQ(count(&Counters::lost_batches), 1);
  EXPECT_EQ(subscription_->status().coverage, Coverage::Doubtful);
}

TEST_F(FeedTest, AnUnreachableEngineBecomesStaleAndIsFoundLater) {
  mock::KvPublisherOptions options;
  options.endpoint = "tcp://127.0.0.1:*";
  options.replay_endpoint = "tcp://127.0.0.1:*";
  options.block_size = kBlockSize;
  auto first = mock::KvPublisher::start(options);
  ASSERT_TRUE(first);
  options.endpoint = (*first)->endpoint();
  options.replay_endpoint = (*first)->replay_endpoint();
  first->reset();
  FeedOptions quick = fast();
  quick.recovery.connect_timeout = std::chrono::milliseconds(50);
  follow(options.endpoint, options.replay_endpoint, sink_, quick);
  ASSERT_TRUE(reaches(ViewState::Stale));
  EXPECT_EQ(subscription_->status().reason, StaleReason::CannotConnect);
  auto second = mock::KvPublisher::start(options);
  ASSERT_TRUE(second) << second.error().message;
  (*second)->publish({block(100)});
  ASSERT_TRUE(reaches(0));
  EXPECT_EQ(sink_.order(), (Order{100}));
}

TEST_F(FeedTest, AnEngineThatRestartsOnItsPortIsBuiltAnew) {
  mock::KvPublisherOptions options;
  options.endpoint = "tcp://127.0.0.1:*";
  options.replay_endpoint = "tcp://127.0.0.1:*";
  options.block_size = kBlockSize;
  auto engine = mock::KvPublisher::start(options);
  ASSERT_TRUE(engine);
  options.endpoint = (*engine)->endpoint();
  options.replay_endpoint = (*engine)->replay_endpoint();
  for (std::uint64_t i = 0; i < 3; ++i) {
    (*engine)->publish({block(100 + i)});
  }
  follow(**engine);
  ASSERT_TRUE(reaches(2));
  // The next life is ahead of the last number known, behind it, and exactly at it.
  std::uint64_t hash = 200;
  for (const std::uint64_t batches : {10U, 4U, 4U}) {
    SCOPED_TRACE(batches);
    engine->reset();
    ASSERT_TRUE(reaches(ViewState::Stale));
    EXPECT_FALSE(subscription_->status().usable);
    engine = mock::KvPublisher::start(options);
    ASSERT_TRUE(engine) << engine.error().message;
    Order expected;
    for (std::uint64_t i = 0; i < batches; ++i) {
      (*engine)->publish({block(++hash)});
      expected.push_back(hash);
    }
    ASSERT_TRUE(eventually([&] { return sink_.order() == expected; }));
    ASSERT_TRUE(reaches(batches - 1));
    EXPECT_EQ(subscription_->status().coverage, Coverage::Complete);
  }
  EXPECT_EQ(count(&Counters::restarts), 3);
}

TEST_F(FeedTest, ReplaysNoMoreThanTheEngineKept) {
  mock::KvPublisherOptions options;
  options.endpoint = "tcp://127.0.0.1:*";
  options.replay_endpoint = "tcp://127.0.0.1:*";
  options.block_size = kBlockSize;
  options.buffer_steps = 3;
  auto engine = mock::KvPublisher::start(options);
  ASSERT_TRUE(engine);
  for (std::uint64_t i = 0; i < 10; ++i) {
    (*engine)->publish({block(100 + i)});
  }
  ASSERT_TRUE(eventually([&] { return (*engine)->sent() == 10; }));
  follow(**engine);
  ASSERT_TRUE(reaches(9));
  EXPECT_EQ(sink_.order(), (Order{107, 108, 109}));
  EXPECT_EQ(subscription_->status().coverage, Coverage::Partial);
  EXPECT_EQ(count(&Counters::partial_starts), 1);
  // Later the subscriber misses more than is kept.
  (*engine)->set_drop_probability(1);
  for (std::uint64_t i = 10; i < 20; ++i) {
    (*engine)->publish({block(100 + i)});
  }
  ASSERT_TRUE(reaches(19));
  EXPECT_EQ(sink_.order(), (Order{117, 118, 119}));
  EXPECT_GE(count(&Counters::lost_batches), 1);
}

TEST_F(FeedTest, FollowsAnEngineWithoutReplay) {
  ScriptedPublisher publisher;
  follow(publisher.endpoint, "", sink_);
  ASSERT_TRUE(reaches(ViewState::NoEvents));
  // The subscription takes effect at the publisher some time after the connection.
  std::uint64_t sequence = 0;
  ASSERT_TRUE(eventually([&] {
    publisher.publish(sequence, payload(sequence));
    ++sequence;
    return subscription_->status().state == ViewState::Live;
  }));
  const std::uint64_t next = sequence + 5;
  publisher.publish(next, payload(next));
  ASSERT_TRUE(reaches(next));
  EXPECT_EQ(count(&Counters::gaps), 1);
  EXPECT_EQ(count(&Counters::lost_batches), 5);
  EXPECT_EQ(count(&Counters::replays), 0);
}

TEST_F(FeedTest, AHostNameIsTriedWithBothFamilies) {
  addrinfo wanted{};
  wanted.ai_family = AF_INET6;
  addrinfo* found = nullptr;
  if (getaddrinfo("localhost", nullptr, &wanted, &found) != 0) {
    GTEST_SKIP() << "localhost has no IPv6 address here";
  }
  freeaddrinfo(found);
  net::zmq::Context context;
  auto publisher = net::zmq::Socket::open(context, net::zmq::Kind::Pub);
  ASSERT_TRUE(publisher);
  const auto bound = (*publisher)->bind("tcp://[::1]:*");
  if (!bound) {
    GTEST_SKIP() << bound.error().message;
  }
  FeedOptions options = fast();
  options.reopen = std::chrono::milliseconds(50);
  const std::string port = bound->substr(bound->rfind(':'));
  follow("tcp://localhost" + port, "", sink_, options);
  EXPECT_TRUE(reaches(ViewState::NoEvents));
}

TEST_F(FeedTest, OnlyItsTopicIsReceived) {
  ScriptedPublisher publisher;
  feed_.emplace(fast());
  SourceSpec spec;
  spec.endpoint = publisher.endpoint;
  spec.replay_endpoint = publisher.replay_endpoint;
  spec.topic = "top";
  spec.block_size = kBlockSize;
  auto subscription = feed_->subscribe(spec, sink_);
  ASSERT_TRUE(subscription);
  subscription_ = std::move(*subscription);
  ASSERT_EQ(publisher.request(), 0U);
  publisher.answer(0, payload(100));
  publisher.end();
  ASSERT_TRUE(reaches(0));
  publisher.publish({"other", big_endian(1), payload(1)});
  publisher.publish({"topic", big_endian(1), payload(101)});
  ASSERT_TRUE(eventually([&] { return sink_.order() == (Order{100, 101}); }));
}

TEST_F(FeedTest, ManySourcesShareThreadsAndStopAtAnyTime) {
  constexpr std::size_t kSources = 20;
  FeedOptions fast_options = fast();
  fast_options.threads = 2;
  fast_options.reopen = std::chrono::milliseconds(10);
  feed_.emplace(fast_options);
  std::vector<std::unique_ptr<mock::KvPublisher>> engines;
  std::vector<std::unique_ptr<CountingSink>> sinks;
  std::vector<std::unique_ptr<Subscription>> subscriptions;
  for (std::size_t i = 0; i < kSources; ++i) {
    mock::KvPublisherOptions options;
    options.endpoint = "tcp://127.0.0.1:*";
    options.replay_endpoint = "tcp://127.0.0.1:*";
    options.block_size = kBlockSize;
    auto engine = mock::KvPublisher::start(options);
    ASSERT_TRUE(engine);
    sinks.push_back(std::make_unique<CountingSink>());
    SourceSpec spec;
    spec.endpoint = (*engine)->endpoint();
    spec.replay_endpoint = (*engine)->replay_endpoint();
    spec.block_size = kBlockSize;
    auto subscription = feed_->subscribe(spec, *sinks.back());
    ASSERT_TRUE(subscription);
    engines.push_back(std::move(*engine));
    subscriptions.push_back(std::move(*subscription));
  }
  for (std::uint64_t round = 0; round < 50; ++round) {
    for (auto& engine : engines) {
      engine->publish({block(round)});
    }
    if (round == 25) {
      // In the middle of it; its sink may go at once.
      subscriptions[3].reset();
      sinks[3].reset();
    }
  }
  for (std::size_t i = 0; i < kSources; ++i) {
    if (subscriptions[i]) {
      EXPECT_TRUE(eventually([&] { return sinks[i]->copies().size() == 50; }))
          << i << ": " << name(subscriptions[i]->status().state) << " " << sinks[i]->copies().size()
          << " blocks, " << subscriptions[i]->recovery().replays.get() << " replays "
          << describe(subscriptions[i]->status().reason);
    }
  }
}

TEST_F(FeedTest, SaysWhatIsWrongWithAnEndpoint) {
  feed_.emplace(fast());
  SourceSpec spec;
  spec.endpoint = "tcp://nonsense";
  const auto subscription = feed_->subscribe(spec, sink_);
  ASSERT_FALSE(subscription);
  EXPECT_NE(subscription.error().message.find("tcp://nonsense"), std::string::npos);
}

TEST_F(FeedTest, SaysWhenDescriptorsRunOut) {
  ScriptedPublisher publisher;
  feed_.emplace(fast());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 4;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  SourceSpec spec;
  spec.endpoint = publisher.endpoint;
  const auto subscription = feed_->subscribe(spec, sink_);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(subscription);
  EXPECT_NE(subscription.error().message.find("ulimit -n"), std::string::npos);
}

}  // namespace
}  // namespace fairlead::kv
