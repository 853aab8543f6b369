#include "mock/kv_publisher.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "net/zmq.hpp"

namespace fairlead::mock {
namespace {

using net::zmq::Frames;

std::string big_endian(std::uint64_t value) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(value >> shift));
  }
  return bytes;
}

class Publisher : public ::testing::Test {
 protected:
  void start(KvPublisherOptions options = {}) {
    options.endpoint = "tcp://127.0.0.1:*";
    options.replay_endpoint = "tcp://127.0.0.1:*";
    options.topic = "topic";
    auto started = KvPublisher::start(options);
    ASSERT_TRUE(started) << started.error().message;
    publisher_ = std::move(*started);
  }

  std::unique_ptr<net::zmq::Socket> open(net::zmq::Kind kind, const std::string& endpoint) {
    auto socket = net::zmq::Socket::open(context_, kind, {0, 0});
    EXPECT_TRUE(socket);
    EXPECT_TRUE((*socket)->connect(endpoint));
    return std::move(*socket);
  }

  static Frames next(net::zmq::Socket& socket) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (std::chrono::steady_clock::now() < deadline) {
      if (auto frames = socket.receive()) {
        return *frames;
      }
      net::zmq::wait(&socket, -1, 100);
    }
    ADD_FAILURE() << "nothing was received";
    return {};
  }

  static std::vector<KvEvent> removal(std::uint64_t hash) { return {BlockRemoved{hash}}; }

  net::zmq::Context context_;
  std::unique_ptr<KvPublisher> publisher_;
};

TEST_F(Publisher, SendsTopicSequenceAndPayload) {
  start();
  auto subscriber = open(net::zmq::Kind::Sub, publisher_->endpoint());
  ASSERT_TRUE(subscriber->subscribe("topic"));
  // What is published before the subscription is in force is lost, so publish until one arrives.
  std::optional<Frames> first;
  for (int i = 0; i < 1000 && !first; ++i) {
    publisher_->publish(removal(7));
    net::zmq::wait(subscriber.get(), -1, 20);
    first = subscriber->receive();
  }
  ASSERT_TRUE(first);
  ASSERT_EQ(first->size(), 3U);
  EXPECT_EQ((*first)[0], "topic");
  EXPECT_EQ((*first)[1].size(), 8U);
  EXPECT_NE((*first)[2].find("BlockRemoved"), std::string::npos);
}

TEST_F(Publisher, ReplaysWhatItKeptAndMarksTheEnd) {
  KvPublisherOptions options;
  options.buffer_steps = 3;
  start(options);
  for (std::uint64_t i = 0; i < 5; ++i) {
    publisher_->publish(removal(i));
  }
  publisher_->publish({});
  auto dealer = open(net::zmq::Kind::Dealer, publisher_->replay_endpoint());
  const auto ask = [&] {
    std::vector<Frames> received;
    EXPECT_TRUE(dealer->send({"", big_endian(0)}));
    do {
      received.push_back(next(*dealer));
    } while (!HasFailure() && received.back().at(2) != big_endian(UINT64_MAX));
    return received;
  };
  // Batches are published by another thread; a request answered before that sees fewer.
  while (publisher_->published() < 5 && !HasFailure()) {
    ask();
  }
  const std::vector<Frames> answers = ask();
  ASSERT_EQ(answers.size(), 4U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(answers[i][1], "topic");
    EXPECT_EQ(answers[i][2], big_endian(2 + i));
  }
  EXPECT_EQ(answers[3], (Frames{"", "", big_endian(UINT64_MAX), ""}));
  ASSERT_TRUE(dealer->send({"", big_endian(4)}));
  EXPECT_EQ(next(*dealer)[2], big_endian(4));
  EXPECT_EQ(next(*dealer)[2], big_endian(UINT64_MAX));
}

TEST_F(Publisher, IgnoresMalformedReplayRequests) {
  start();
  auto dealer = open(net::zmq::Kind::Dealer, publisher_->replay_endpoint());
  ASSERT_TRUE(dealer->send({big_endian(0)}));
  ASSERT_TRUE(dealer->send({"", big_endian(0), "more"}));
  ASSERT_TRUE(dealer->send({"not empty", big_endian(0)}));
  // The only answer is the one to the last, well-formed request.
  ASSERT_TRUE(dealer->send({"", std::string(20, '\xff')}));
  EXPECT_EQ(next(*dealer), (Frames{"", "", big_endian(UINT64_MAX), ""}));
  EXPECT_FALSE(dealer->receive());
}

TEST_F(Publisher, ABusyEndpointIsNamed) {
  start();
  KvPublisherOptions options;
  options.endpoint = publisher_->endpoint();
  const auto second = KvPublisher::start(options);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find(options.endpoint), std::string::npos);
}

TEST_F(Publisher, EndsAtOnceWithWorkLeft) {
  start();
  for (std::uint64_t i = 0; i < 10000; ++i) {
    publisher_->publish(removal(i));
  }
  publisher_.reset();
}

}  // namespace
}  // namespace fairlead::mock
