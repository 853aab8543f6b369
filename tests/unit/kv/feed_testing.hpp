#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kv/event_feed.hpp"
#include "mock/kv_events.hpp"
#include "mock/kv_publisher.hpp"
#include "net/zmq.hpp"

namespace fairlead::kv {

/// The copies of each block that a source announced.
class CountingSink : public EventSink {
 public:
  using Copies = std::map<EngineHash, int>;

  void stored(Tier /*tier*/, std::optional<EngineHash> /*parent*/,
              std::span<const StoredBlock> blocks) override {
    const std::lock_guard lock(mutex_);
    for (const StoredBlock& block : blocks) {
      ++copies_[block.engine];
    }
    order_.push_back(blocks.front().engine);
  }
  void removed(Tier /*tier*/, std::span<const EngineHash> blocks) override {
    const std::lock_guard lock(mutex_);
    for (const EngineHash block : blocks) {
      if (const auto found = copies_.find(block); found != copies_.end() && --found->second == 0) {
        copies_.erase(found);
      }
    }
  }
  void cleared() override {
    const std::lock_guard lock(mutex_);
    copies_.clear();
    order_.clear();
    ++clears_;
  }

  Copies copies() const {
    const std::lock_guard lock(mutex_);
    return copies_;
  }
  /// First blocks of the stored events since the last clear.
  std::vector<EngineHash> order() const {
    const std::lock_guard lock(mutex_);
    return order_;
  }
  int clears() const {
    const std::lock_guard lock(mutex_);
    return clears_;
  }

 private:
  mutable std::mutex mutex_;
  Copies copies_;
  std::vector<EngineHash> order_;
  int clears_ = 0;
};

/// Waits until `done`, at most half a minute.
inline testing::AssertionResult eventually(const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) {
      return testing::AssertionFailure() << "not within half a minute";
    }
    never.wait_for(lock, std::chrono::milliseconds(1));
  }
  return testing::AssertionSuccess();
}

inline std::string big_endian(std::uint64_t value) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(value >> shift));
  }
  return bytes;
}

inline constexpr std::uint32_t kBlockSize = 4;

/// One block at the start of a chain, named `hash`.
inline mock::KvEvent block(std::uint64_t hash) {
  mock::BlocksStored stored;
  stored.hashes = {hash};
  for (std::uint32_t i = 0; i < kBlockSize; ++i) {
    stored.tokens.push_back(static_cast<mock::TokenId>(hash));
  }
  return stored;
}

/// A payload that stores that block.
inline std::string payload(std::uint64_t hash, std::uint32_t rank = 0) {
  const std::vector<mock::KvEvent> events{block(hash)};
  return mock::encode_kv_batch(events, kBlockSize, 1.5, rank, mock::KvEventLayout::Map);
}

/// A publisher whose every message the test decides.
class ScriptedPublisher {
 public:
  ScriptedPublisher() {
    pub_ = open(net::zmq::Kind::Pub, endpoint);
    router_ = open(net::zmq::Kind::Router, replay_endpoint);
  }

  void publish(const net::zmq::Frames& frames) { EXPECT_TRUE(pub_->send(frames)); }
  void publish(std::uint64_t sequence, const std::string& payload) {
    publish({"topic", big_endian(sequence), payload});
  }
  /// Waits for the next replay request; its start.
  std::optional<std::uint64_t> request() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < deadline) {
      if (auto frames = router_->receive()) {
        EXPECT_EQ(frames->size(), 3U);
        EXPECT_EQ((*frames)[1], "");
        EXPECT_EQ((*frames)[2].size(), 8U);
        peer_ = (*frames)[0];
        std::uint64_t start = 0;
        for (const char c : (*frames)[2]) {
          start = start << 8 | static_cast<unsigned char>(c);
        }
        return start;
      }
      net::zmq::wait(router_.get(), -1, 100);
    }
    ADD_FAILURE() << "no replay request";
    return std::nullopt;
  }
  /// Answers the last request with one message.
  void answer(net::zmq::Frames frames) {
    frames.insert(frames.begin(), peer_);
    EXPECT_TRUE(router_->send(frames));
  }
  void answer(std::uint64_t sequence, const std::string& payload) {
    answer({"", "topic", big_endian(sequence), payload});
  }
  void end() { answer({"", "", big_endian(UINT64_MAX), ""}); }

  std::string endpoint;
  std::string replay_endpoint;

 private:
  std::unique_ptr<net::zmq::Socket> open(net::zmq::Kind kind, std::string& bound_to) {
    auto socket = net::zmq::Socket::open(context_, kind);
    EXPECT_TRUE(socket);
    auto bound = (*socket)->bind("tcp://127.0.0.1:*");
    EXPECT_TRUE(bound);
    bound_to = *bound;
    return std::move(*socket);
  }

  net::zmq::Context context_;
  std::unique_ptr<net::zmq::Socket> pub_;
  std::unique_ptr<net::zmq::Socket> router_;
  std::string peer_;
};

/// A feed with short delays, following one source.
class FeedTest : public ::testing::Test {
 protected:
  static FeedOptions fast() {
    FeedOptions options;
    options.recovery.settle_check = std::chrono::milliseconds(50);
    options.recovery.idle_check = std::chrono::milliseconds(200);
    options.recovery.first_backoff = std::chrono::milliseconds(10);
    return options;
  }
  static SourceSpec spec_of(const std::string& endpoint, const std::string& replay) {
    SourceSpec spec;
    spec.endpoint = endpoint;
    spec.replay_endpoint = replay;
    spec.block_size = kBlockSize;
    spec.label = "worker_1 dp_rank=0";
    return spec;
  }
  void follow(const std::string& endpoint, const std::string& replay, EventSink& sink,
              FeedOptions options = fast()) {
    feed_.emplace(options);
    auto subscription = feed_->subscribe(spec_of(endpoint, replay), sink);
    ASSERT_TRUE(subscription) << subscription.error().message;
    subscription_ = std::move(*subscription);
  }
  void follow(const ScriptedPublisher& publisher, FeedOptions options = fast()) {
    follow(publisher.endpoint, publisher.replay_endpoint, sink_, options);
  }
  void follow(const mock::KvPublisher& publisher, FeedOptions options = fast()) {
    follow(publisher.endpoint(), publisher.replay_endpoint(), sink_, options);
  }
  testing::AssertionResult reaches(ViewState state) {
    return eventually([&] { return subscription_->status().state == state; });
  }
  testing::AssertionResult reaches(std::uint64_t sequence) {
    return eventually([&] {
      const SourceStatus status = subscription_->status();
      return status.state == ViewState::Live && status.last_sequence == sequence;
    });
  }
  std::int64_t count(observe::Cell RecoveryCounters::* cell) {
    return (subscription_->recovery().*cell).get();
  }

  CountingSink sink_;
  std::optional<EventFeed> feed_;
  std::unique_ptr<Subscription> subscription_;
};

}  // namespace fairlead::kv
