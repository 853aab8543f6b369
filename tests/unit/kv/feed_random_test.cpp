#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <deque>
#include <random>

#include "kv/dump.hpp"
#include "kv/feed_testing.hpp"
#include "kv/index_writer.hpp"
#include "mock/block_pool.hpp"

namespace fairlead::kv {
namespace {

/// A simulated engine's cache under a random load, publishing what changes.
class RandomEngine {
 public:
  RandomEngine(const mock::KvPublisherOptions& options, std::uint64_t seed)
      : random_(seed), pool_(kBlocks, kBlockSize, true) {
    pool_.set_recording(true);
    auto started = mock::KvPublisher::start(options);
    EXPECT_TRUE(started) << started.error().message;
    publisher_ = std::move(*started);
  }

  mock::KvPublisher& publisher() { return *publisher_; }

  /// One step: a prompt that shares its beginning with others comes in, older ones leave, and now
  /// and then the cache is reset. The result is the number of events.
  std::size_t step() {
    if (next(400) == 0) {
      release(0);
      EXPECT_TRUE(pool_.reset());
    }
    const std::vector<mock::TokenId> tokens = prompt();
    std::vector<std::uint64_t> hashes;
    mock::extend_block_hashes(hashes, tokens, kBlockSize, {});
    std::vector<mock::BlockId> blocks;
    // Some prompts skip the cache, so that blocks get copies.
    if (next(10) != 0) {
      blocks = pool_.find_prefix(hashes);
      pool_.acquire(blocks);
    }
    const std::size_t known = blocks.size();
    release(20);
    if (pool_.allocate(hashes.size() - known, blocks)) {
      pool_.store(blocks, hashes, tokens, known, hashes.size(), {});
    }
    running_.push_back(std::move(blocks));
    auto events = pool_.take_events();
    const std::size_t count = events.size();
    publisher_->publish(std::move(events));
    batches_ += count == 0 ? 0 : 1;
    return count;
  }

  /// A prompt as `step` makes them.
  std::vector<mock::TokenId> prompt() {
    std::vector<mock::TokenId> tokens;
    const auto document = static_cast<mock::TokenId>(next(60));
    const std::size_t shared = kBlockSize * next(30);
    for (std::size_t i = 0; i < shared; ++i) {
      tokens.push_back(document * 1000 + static_cast<mock::TokenId>(i));
    }
    for (std::size_t i = kBlockSize * (1 + next(30)); i > 0; --i) {
      tokens.push_back(static_cast<mock::TokenId>(100000 + next(1000)));
    }
    return tokens;
  }

  /// Leading blocks of a prompt that are cached.
  std::size_t cached_prefix(std::span<const mock::TokenId> tokens) const {
    std::vector<std::uint64_t> hashes;
    mock::extend_block_hashes(hashes, tokens, kBlockSize, {});
    return pool_.find_prefix(hashes).size();
  }

  std::uint64_t batches() const { return batches_; }
  CountingSink::Copies truth() const {
    CountingSink::Copies copies;
    for (const auto& cached : pool_.cached()) {
      copies[cached.hash] = static_cast<int>(pool_.copies(cached.hash));
    }
    return copies;
  }

 private:
  static constexpr std::size_t kBlocks = 2000;

  std::size_t next(std::size_t bound) {
    return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random_);
  }
  void release(std::size_t keep) {
    while (running_.size() > keep) {
      pool_.release(running_.front());
      running_.pop_front();
    }
  }

  std::mt19937_64 random_;
  mock::BlockPool pool_;
  std::unique_ptr<mock::KvPublisher> publisher_;
  std::deque<std::vector<mock::BlockId>> running_;
  std::uint64_t batches_ = 0;
};

mock::KvPublisherOptions engine_options() {
  mock::KvPublisherOptions options;
  options.endpoint = "tcp://127.0.0.1:*";
  options.replay_endpoint = "tcp://127.0.0.1:*";
  options.block_size = kBlockSize;
  options.seed = 7;
  return options;
}

/// Breaks this process's connections to an endpoint. The descriptors stay their owners'.
int break_connections(const std::string& endpoint) {
  const int port = std::stoi(endpoint.substr(endpoint.rfind(':') + 1));
  int broken = 0;
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_in peer{};
    socklen_t length = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0 &&
        peer.sin_family == AF_INET && ntohs(peer.sin_port) == port) {
      broken += shutdown(fd, SHUT_RDWR) == 0 ? 1 : 0;
    }
  }
  return broken;
}

/// Device copies by block.
CountingSink::Copies copies_in(const KvIndex& index, TargetId target) {
  std::vector<HeldBlock> held;
  index.snapshot(target, held);
  CountingSink::Copies copies;
  for (const HeldBlock& block : held) {
    copies[block.engine] = static_cast<int>(block.copies[static_cast<int>(Tier::Device)]);
  }
  return copies;
}

class RandomFeedTest : public FeedTest {
 protected:
  // Steps until that many events were published, never far ahead of the feed.
  void run(RandomEngine& engine, std::size_t events) {
    while (events > 0) {
      events -= std::min(events, engine.step());
      ASSERT_TRUE(eventually([&] {
        return engine.batches() - (subscription_->status().last_sequence.value_or(0)) < 50;
      }));
    }
  }
  void expect_truth(RandomEngine& engine) {
    ASSERT_TRUE(reaches(engine.batches() - 1));
    EXPECT_EQ(subscription_->status().coverage, Coverage::Complete);
    EXPECT_EQ(sink_.copies(), engine.truth());
    EXPECT_GT(sink_.copies().size(), 500U);
  }
};

TEST_F(RandomFeedTest, TheViewEqualsTheEnginesCacheInSpiteOfDropsAndRestarts) {
  mock::KvPublisherOptions options = engine_options();
  auto engine = std::make_unique<RandomEngine>(options, 1);
  options.endpoint = engine->publisher().endpoint();
  options.replay_endpoint = engine->publisher().replay_endpoint();
  follow(engine->publisher());
  ASSERT_TRUE(reaches(ViewState::NoEvents));
  engine->publisher().set_drop_probability(0.1);
  run(*engine, 60000);
  expect_truth(*engine);
  // How many depends on how many drops meet while one is being repaired.
  EXPECT_GT(count(&RecoveryCounters::gaps), 0);
  EXPECT_EQ(count(&RecoveryCounters::lost_batches), 0);

  engine.reset();
  engine = std::make_unique<RandomEngine>(options, 2);
  engine->publisher().set_drop_probability(0.5);
  run(*engine, 60000);
  expect_truth(*engine);
  EXPECT_EQ(count(&RecoveryCounters::restarts), 1);
  EXPECT_EQ(count(&RecoveryCounters::lost_batches), 0);
}

TEST_F(RandomFeedTest, BrokenConnectionsLoseNothing) {
  RandomEngine engine(engine_options(), 3);
  follow(engine.publisher());
  ASSERT_TRUE(reaches(ViewState::NoEvents));
  engine.publisher().set_drop_probability(0.1);
  for (int round = 0; round < 5; ++round) {
    run(engine, 2000);
    ASSERT_GT(break_connections(engine.publisher().endpoint()), 0);
    if (round % 2 == 0) {
      break_connections(engine.publisher().replay_endpoint());
    }
    run(engine, 2000);
    expect_truth(engine);
  }
  EXPECT_EQ(count(&RecoveryCounters::restarts), 0);
  EXPECT_EQ(count(&RecoveryCounters::lost_batches), 0);
  EXPECT_EQ(count(&RecoveryCounters::clears), 0);
}

TEST_F(RandomFeedTest, TheIndexEqualsTheEnginesCache) {
  KvIndex index({});
  const auto target = index.add_target();
  ASSERT_TRUE(target);
  IndexWriter writer(index, *target);
  RandomEngine engine(engine_options(), 4);
  follow(engine.publisher().endpoint(), engine.publisher().replay_endpoint(), writer);
  ASSERT_TRUE(reaches(ViewState::NoEvents));
  engine.publisher().set_drop_probability(0.2);
  for (int round = 0; round < 4; ++round) {
    run(engine, 30000);
    ASSERT_TRUE(reaches(engine.batches() - 1));
    EXPECT_EQ(copies_in(index, *target), engine.truth());
    std::size_t hits = 0;
    for (int i = 0; i < 500; ++i) {
      const auto tokens = engine.prompt();
      std::vector<SequenceHash> prompt;
      prompt_hashes(tokens, {.block_size = kBlockSize}, kBaseSeed, prompt);
      std::vector<Overlap> found;
      index.find(prompt, found);
      const std::size_t expected = engine.cached_prefix(tokens);
      ASSERT_EQ(found.empty() ? 0 : found.front().device, expected);
      hits += expected != 0 ? 1 : 0;
    }
    EXPECT_GT(hits, 50U);
  }
  EXPECT_GT(count(&RecoveryCounters::gaps), 0);
  EXPECT_EQ(writer.counters().unknown_parent.get(), 0);
}

// The engine keeps few batches: who comes late by itself learns less than all of it.
TEST_F(RandomFeedTest, APeersViewIsGoneOnWithWhereItStood) {
  mock::KvPublisherOptions options = engine_options();
  options.buffer_steps = 300;
  RandomEngine engine(options, 5);
  KvIndex index({});
  IndexWriter writer(index, *index.add_target());
  const std::string& endpoint = engine.publisher().endpoint();
  const std::string& replay = engine.publisher().replay_endpoint();
  follow(endpoint, replay, writer);
  ASSERT_TRUE(reaches(ViewState::NoEvents));
  engine.publisher().set_drop_probability(0.05);
  run(engine, 20000);
  EventFeed late_feed(fast());
  for (int round = 0; round < 5; ++round) {
    // Batches are being applied while the view is read.
    std::optional<Checkpoint> point;
    DumpedTarget dumped;
    for (int step = 0; step < 100; ++step) {
      engine.step();
    }
    ASSERT_TRUE(eventually([&] {
      dumped.blocks.clear();
      point = subscription_->checkpoints()->checkpoint(
          [&] { index.snapshot(writer.target(), dumped.blocks); });
      return point.has_value();
    }));
    dumped.checkpoint = point;
    KvIndex late_index({});
    IndexWriter late_writer(late_index, *late_index.add_target());
    ASSERT_EQ(late_index.restore(late_writer.target(), dumped.blocks), StoreOutcome::Stored);
    auto late = late_feed.subscribe(spec_of(endpoint, replay), late_writer, point);
    ASSERT_TRUE(late);
    run(engine, 500);
    ASSERT_TRUE(reaches(engine.batches() - 1));
    ASSERT_TRUE(
        eventually([&] { return (*late)->status().last_sequence == engine.batches() - 1; }));
    EXPECT_EQ((*late)->status().coverage, Coverage::Complete);
    EXPECT_EQ((*late)->recovery().clears.get(), 0);
    EXPECT_EQ(copies_in(late_index, late_writer.target()), engine.truth());
  }
}

TEST_F(RandomFeedTest, APeersViewOfAnotherLifeIsDropped) {
  mock::KvPublisherOptions options = engine_options();
  auto engine = std::make_unique<RandomEngine>(options, 6);
  options.endpoint = engine->publisher().endpoint();
  options.replay_endpoint = engine->publisher().replay_endpoint();
  KvIndex index({});
  IndexWriter writer(index, *index.add_target());
  follow(options.endpoint, options.replay_endpoint, writer);
  ASSERT_TRUE(reaches(ViewState::NoEvents));
  run(*engine, 3000);
  ASSERT_TRUE(reaches(engine->batches() - 1));
  std::vector<HeldBlock> held;
  const auto point =
      subscription_->checkpoints()->checkpoint([&] { index.snapshot(writer.target(), held); });
  ASSERT_TRUE(point);
  const auto giver = subscription_->checkpoints();
  subscription_.reset();
  EXPECT_FALSE(giver->checkpoint([] { ADD_FAILURE() << "read after the end"; }));

  engine.reset();
  engine = std::make_unique<RandomEngine>(options, 7);
  for (int step = 0; step < 2000; ++step) {
    engine->step();
  }
  KvIndex late_index({});
  IndexWriter late_writer(late_index, *late_index.add_target());
  ASSERT_EQ(late_index.restore(late_writer.target(), held), StoreOutcome::Stored);
  EventFeed late_feed(fast());
  auto late =
      late_feed.subscribe(spec_of(options.endpoint, options.replay_endpoint), late_writer, point);
  ASSERT_TRUE(late);
  ASSERT_TRUE(eventually([&] { return (*late)->status().last_sequence == engine->batches() - 1; }));
  EXPECT_EQ((*late)->recovery().restarts.get(), 1);
  EXPECT_EQ(copies_in(late_index, late_writer.target()), engine->truth());
}

}  // namespace
}  // namespace fairlead::kv
