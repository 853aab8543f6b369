#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/loopback_server.hpp"
#include "net/event.hpp"
#include "net/http_server.hpp"

namespace fairlead::engine::testing {

/// An engine's HTTP interface. Answers are scripted; everything received is kept.
class FakeHttpServer : public LoopbackServer {
 public:
  /// What one request is answered with.
  struct Script {
    int status = 200;
    std::string body;                             ///< Of an answer that is not streamed.
    std::vector<std::string> events = {};         ///< Data of a stream's events, one chunk each.
    bool stay_open = false;                       ///< The stream does not end.
    bool wait_for_release = false;                ///< The end of the stream waits for `release`.
    std::string content_type = {};                ///< Empty: by the kind of answer.
    std::function<Script(std::string_view)> ask;  ///< Decides by the request's body instead.
  };
  /// What one request was.
  struct Received {
    std::string path;
    std::string body;
    net::http::HeaderList headers;
  };

  explicit FakeHttpServer(net::Reactor& reactor) : LoopbackServer(reactor) {
    answer_with([this](net::http::Exchange& exchange) { return serve(exchange); });
  }
  ~FakeHttpServer() { stop(); }

  /// Answers a path from now on; others are 404.
  void on(const std::string& path, Script script) { scripts_[path] = std::move(script); }
  void on(const std::string& path, std::string body) {
    on(path, Script{.status = 200, .body = std::move(body), .ask = {}});
  }
  void on(const std::string& path, int status, std::string body) {
    on(path, Script{.status = status, .body = std::move(body), .ask = {}});
  }

  /// Lets streams that wait end.
  void release() { released_.set(); }
  std::size_t count(std::string_view path) const {
    std::size_t n = 0;
    for (const Received& request : received) {
      n += request.path == path ? 1U : 0U;
    }
    return n;
  }

  std::vector<Received> received;          ///< In order of arrival.
  int left = 0;                            ///< Streams whose client went away before their end.
  int running = 0;                         ///< Requests that have not ended.
  net::http::Exchange* current = nullptr;  ///< The stream that stays open.

 private:
  struct Guard {
    FakeHttpServer& server;
    bool done = false;
    explicit Guard(FakeHttpServer& s) : server(s) { ++server.running; }
    ~Guard() {
      --server.running;
      server.left += done ? 0 : 1;
      server.current = nullptr;
    }
  };

  net::Task<> serve(net::http::Exchange& exchange) {
    Guard guard(*this);
    const net::http::Request& request = exchange.request();
    received.push_back({request.path, request.body, request.headers});
    const auto found = scripts_.find(request.path);
    Script script =
        found == scripts_.end() ? Script{.status = 404, .body = {}, .ask = {}} : found->second;
    if (script.ask) {
      script = script.ask(request.body);
    }
    const bool streamed = !script.events.empty() || script.stay_open;
    const std::string type = !script.content_type.empty() ? script.content_type
                             : streamed                   ? "text/event-stream"
                                                          : "application/json";
    if (!streamed) {
      exchange.respond(script.status, {{"content-type", type}}, script.body);
      guard.done = true;
      co_return;
    }
    exchange.start(script.status, {{"content-type", type}});
    current = &exchange;
    for (const std::string& event : script.events) {
      exchange.out().append("data: ").append(event).append("\n\n");
    }
    exchange.commit();
    if (script.stay_open) {
      net::Event never;
      co_await never.wait();
    }
    if (script.wait_for_release) {
      co_await released_.wait();
    }
    exchange.finish();
    guard.done = true;
  }

  std::map<std::string, Script> scripts_;
  net::Event released_;
};

}  // namespace fairlead::engine::testing
