#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/client.hpp"
#include "net/event.hpp"
#include "net/grpc.hpp"
#include "net/http_server.hpp"
#include "net/socket.hpp"
#include "net/testing.hpp"

namespace fairlead::engine::testing {

/// A gRPC server on a loopback port in the reactor of its test. Methods are scripted; everything
/// received is kept.
class FakeServer {
 public:
  /// What one call answers.
  struct Script {
    std::vector<std::string> messages;  ///< In order.
    net::grpc::Status status;           ///< Behind them.
    bool stay_open = false;             ///< No status: wait for the client.
    bool wait_for_release = false;      ///< The status waits for `release`.
  };
  /// What one call received.
  struct Received {
    std::string path;
    std::string request;
    std::string rank;  ///< Metadata x-data-parallel-rank; empty when absent.
  };

  explicit FakeServer(net::Reactor& reactor) : reactor_(reactor) { listen(); }
  ~FakeServer() {
    net::testing::run_until(reactor_, [this] { return stop(); });
  }

  /// Answers a path from now on.
  void on(const std::string& path, Script script) {
    if (!scripts_.contains(path)) {
      service_.add(path, [this, path](net::grpc::ServerCall& call) { return serve(path, call); });
    }
    scripts_[path] = std::move(script);
  }
  /// Answers a path with one message, OK.
  void on(const std::string& path, std::string message) {
    on(path, Script{.messages = {std::move(message)}, .status = {}});
  }
  /// Answers a path with a status.
  void on(const std::string& path, net::grpc::StatusCode code, std::string text) {
    on(path, Script{.messages = {}, .status = {code, std::move(text)}});
  }

  /// Lets calls that wait end with their status.
  void release() { released_.set(); }
  /// Breaks every connection; later ones are accepted.
  void drop_connections() { make_server(); }
  /// Breaks every connection and refuses new ones.
  bool stop() {
    bool done = false;
    reactor_.post([&] {
      listener_.reset();
      server_.reset();
      done = true;
    });
    return net::testing::run_until(reactor_, [&] { return done; });
  }
  /// Listens again after `stop`, at the same port.
  void restart() { listen(); }

  net::Address address() const { return address_; }
  std::size_t count(std::string_view path) const {
    std::size_t n = 0;
    for (const Received& call : received) {
      n += call.path == path ? 1U : 0U;
    }
    return n;
  }

  std::vector<Received> received;  ///< In order of arrival.
  int cancelled = 0;               ///< Calls whose client went away before their end.
  int running = 0;                 ///< Calls that have not ended.

 private:
  struct Guard {
    FakeServer& server;
    bool done = false;
    explicit Guard(FakeServer& s) : server(s) { ++server.running; }
    ~Guard() {
      --server.running;
      server.cancelled += done ? 0 : 1;
    }
  };

  net::Task<> serve(std::string path, net::grpc::ServerCall& call) {
    Guard guard(*this);
    received.push_back({path, std::string(call.request()),
                        std::string(call.metadata("x-data-parallel-rank").value_or(""))});
    const Script script = scripts_[path];
    for (const std::string& message : script.messages) {
      call.write(message);
    }
    if (script.stay_open) {
      net::Event never;
      co_await never.wait();
    }
    if (script.wait_for_release) {
      co_await released_.wait();
    }
    call.finish(script.status);
    guard.done = true;
  }

  void make_server() {
    server_ =
        std::make_unique<net::http::Server>(service_.handler(), net::http::ServerLimits{}, nullptr);
  }

  void listen() {
    bool done = false;
    reactor_.post([&] {
      make_server();
      const auto want = net::Address::parse("127.0.0.1", address_.port());
      auto opened = net::Listener::open(reactor_, *want, [this](int fd) { server_->accept(fd); });
      ASSERT_TRUE(opened) << opened.error().message;
      listener_ = std::move(*opened);
      address_ = listener_->address();
      done = true;
    });
    ASSERT_TRUE(net::testing::run_until(reactor_, [&] { return done; }));
  }

  net::Reactor& reactor_;
  net::grpc::Service service_;
  std::map<std::string, Script> scripts_;
  net::Event released_;
  net::Address address_;
  std::unique_ptr<net::http::Server> server_;
  std::unique_ptr<net::Listener> listener_;
};

}  // namespace fairlead::engine::testing
