#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/loopback_server.hpp"
#include "net/event.hpp"
#include "net/grpc.hpp"

namespace fairlead::engine::testing {

/// An engine's gRPC interface. Methods are scripted; everything received is kept.
class FakeServer : public LoopbackServer {
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

  explicit FakeServer(net::Reactor& reactor) : LoopbackServer(reactor) {
    answer_with(service_.handler());
  }
  ~FakeServer() { stop(); }

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

  net::grpc::Service service_;
  std::map<std::string, Script> scripts_;
  net::Event released_;
};

}  // namespace fairlead::engine::testing
