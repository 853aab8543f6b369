#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "net/http_server.hpp"
#include "net/socket.hpp"
#include "net/testing.hpp"

namespace fairlead::engine::testing {

/// An HTTP server on a loopback port in the reactor of its test, for life the same one. Whoever
/// inherits from it says what answers, and stops it before that is destroyed.
class LoopbackServer {
 public:
  LoopbackServer(const LoopbackServer&) = delete;
  LoopbackServer& operator=(const LoopbackServer&) = delete;

  /// Accepts connections, again after `stop`.
  void listen() {
    net::testing::in_turn(reactor_, [this] {
      drop_connections();
      const auto want = net::Address::parse("127.0.0.1", address_.port());
      auto opened = net::Listener::open(reactor_, *want, [this](int fd) { server_->accept(fd); });
      ASSERT_TRUE(opened) << opened.error().message;
      listener_ = std::move(*opened);
      address_ = listener_->address();
    });
  }
  /// Breaks every connection and refuses new ones.
  void stop() {
    net::testing::in_turn(reactor_, [this] {
      listener_.reset();
      server_.reset();
    });
  }
  /// Breaks every connection; later ones are accepted. Called inside a turn.
  void drop_connections() {
    server_ = std::make_unique<net::http::Server>(handler_, net::http::ServerLimits{}, nullptr);
  }

  net::Address address() const { return address_; }
  /// Accepted since the last time that all were broken.
  std::uint64_t connections() const { return server_->counters().connections_total; }

 protected:
  explicit LoopbackServer(net::Reactor& reactor) : reactor_(reactor) {}
  ~LoopbackServer() = default;

  void answer_with(net::http::Handler handler) {
    handler_ = std::move(handler);
    listen();
  }

 private:
  net::Reactor& reactor_;
  net::http::Handler handler_;
  net::Address address_;
  std::unique_ptr<net::http::Server> server_;
  std::unique_ptr<net::Listener> listener_;
};

}  // namespace fairlead::engine::testing
