#include "net/zmq.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

namespace fairlead::net::zmq {
namespace {

class Zmq : public ::testing::Test {
 protected:
  std::unique_ptr<Socket> open(Kind kind, const SocketOptions& options = {}) {
    auto socket = Socket::open(context_, kind, options);
    EXPECT_TRUE(socket);
    return std::move(*socket);
  }
  static std::string bind(Socket& socket, const std::string& endpoint = "tcp://127.0.0.1:*") {
    auto bound = socket.bind(endpoint);
    EXPECT_TRUE(bound) << bound.error().message;
    return bound.value_or("");
  }
  static bool next(Socket& socket, Message& message) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (std::chrono::steady_clock::now() < deadline) {
      if (socket.receive(message)) {
        return true;
      }
      wait(&socket, -1, 100);
    }
    return false;
  }
  static std::optional<ConnectionEvent> next(Monitor& monitor) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (std::chrono::steady_clock::now() < deadline) {
      if (const auto event = monitor.next()) {
        return event;
      }
      wait(nullptr, monitor.fd(), 100);
    }
    return std::nullopt;
  }

  Context context_;
};

TEST_F(Zmq, ReceivesFramesInPlaceAndDropsWhatIsTooMany) {
  auto router = open(Kind::Router);
  auto dealer = open(Kind::Dealer);
  ASSERT_TRUE(dealer->connect(bind(*router)));
  const std::string large(100000, 'x');
  ASSERT_TRUE(dealer->send({"", large}));
  ASSERT_TRUE(dealer->send({"a", "b", "c", "d", "e", "f", "g"}));
  ASSERT_TRUE(dealer->send({"last"}));
  Message message;
  ASSERT_TRUE(next(*router, message));
  ASSERT_EQ(message.size(), 3U);  // the peer's identity comes first
  EXPECT_EQ(message[1], "");
  EXPECT_EQ(message[2], large);
  ASSERT_TRUE(next(*router, message));
  ASSERT_EQ(message.size(), 8U);
  EXPECT_EQ(message[3], "c");
  ASSERT_TRUE(next(*router, message));
  ASSERT_EQ(message.size(), 2U);
  EXPECT_EQ(message[1], "last");
  EXPECT_FALSE(router->receive(message));
}

TEST_F(Zmq, TheMonitorTellsOfConnections) {
  auto publisher = open(Kind::Pub);
  const std::string endpoint = bind(*publisher);
  auto subscriber = open(Kind::Sub);
  auto monitor = subscriber->monitor(context_);
  ASSERT_TRUE(monitor);
  ASSERT_TRUE(subscriber->connect(endpoint));
  EXPECT_EQ(next(**monitor), ConnectionEvent::Up);
  publisher.reset();
  EXPECT_EQ(next(**monitor), ConnectionEvent::Down);
  publisher = open(Kind::Pub);
  bind(*publisher, endpoint);
  EXPECT_EQ(next(**monitor), ConnectionEvent::Up);
  EXPECT_FALSE((*monitor)->next());
}

TEST_F(Zmq, APeerThatSendsMoreThanAllowedIsCut) {
  auto router = open(Kind::Router);
  auto dealer = open(Kind::Dealer, {.max_message_bytes = 1000});
  auto monitor = dealer->monitor(context_);
  ASSERT_TRUE(monitor);
  ASSERT_TRUE(dealer->connect(bind(*router)));
  EXPECT_EQ(next(**monitor), ConnectionEvent::Up);
  ASSERT_TRUE(dealer->send({"hello"}));
  Message message;
  ASSERT_TRUE(next(*router, message));
  ASSERT_TRUE(router->send({std::string(message[0]), std::string(1001, 'x')}));
  EXPECT_EQ(next(**monitor), ConnectionEvent::Down);
  EXPECT_FALSE(dealer->receive(message));
}

TEST_F(Zmq, SocketsBeyondTheContextsLimitFailWithAReason) {
  Context small(2);
  std::vector<std::unique_ptr<Socket>> sockets;
  for (int i = 0; i < 5; ++i) {
    auto socket = Socket::open(small, Kind::Sub);
    if (!socket) {
      EXPECT_FALSE(sockets.empty());
      EXPECT_NE(socket.error().message.find("cannot open"), std::string::npos);
      return;
    }
    sockets.push_back(std::move(*socket));
  }
  FAIL() << "no limit";
}

}  // namespace
}  // namespace fairlead::net::zmq
