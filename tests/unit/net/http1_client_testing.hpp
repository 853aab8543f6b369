#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/http_client.hpp"
#include "net/http_testing.hpp"

namespace fairlead::net::testing {

/// Connects to pipes whose other ends the test plays. Addresses with port 1 refuse.
class PeerDialer final : public Dialer {
 public:
  Task<Result<std::unique_ptr<Stream>>> connect(Address address, TimePoint) override {
    ++dials;
    if (address.port() == 1) {
      co_return fail(ErrorCode::EngineUnreachable, "refused");
    }
    auto [ours, theirs] = make_pipe(max_read, capacity);
    if (accept) {
      accept(std::move(theirs));
    } else {
      peers.push_back(std::make_unique<BytePeer>(std::move(theirs)));
    }
    co_return std::move(ours);
  }

  int dials = 0;
  std::size_t max_read = 0;
  std::size_t capacity = 64 * 1024;
  std::function<void(std::unique_ptr<Stream>)> accept;
  std::vector<std::unique_ptr<BytePeer>> peers;
};

/// On the loopback.
inline Address address(std::uint16_t port) { return *Address::parse("127.0.0.1", port); }

/// A client whose server is the test.
class ClientBench {
 public:
  explicit ClientBench(http::ClientLimits limits = {},
                       std::vector<Address> addresses = {address(80)}) {
    client.emplace(dialer, "engine:80", std::move(addresses), limits);
  }
  ~ClientBench() {
    in_turn(reactor, [&] {
      tasks.cancel();
      client.reset();
      dialer.peers.clear();
    });
    reactor.run_turn(Duration(0));
  }
  ClientBench(const ClientBench&) = delete;
  ClientBench& operator=(const ClientBench&) = delete;

  using Answer = std::optional<Result<http::ClientResponse>>;

  void start(Answer& answer, http::ClientRequest request,
             Duration timeout = std::chrono::seconds(10), std::string* streamed = nullptr) {
    answer.reset();
    in_turn(reactor, [&] {
      tasks.spawn(run(*client, answer, std::move(request), Clock::now() + timeout, streamed));
    });
  }
  bool until(const std::function<bool()>& done) { return run_until(reactor, done); }
  void settle() {
    for (int i = 0; i < 8; ++i) {
      reactor.run_turn(Duration(0));
    }
  }
  BytePeer& peer() { return *dialer.peers.back(); }
  void answer_with(std::string_view text) {
    in_turn(reactor, [&] { peer().send(text); });
  }
  /// Sends one GET on a fresh client and lets the server answer with the pieces, then close.
  Result<http::ClientResponse> exchange(const std::vector<std::string_view>& pieces,
                                        std::string* streamed = nullptr,
                                        const std::string& method = "GET") {
    Answer answer;
    const auto dials = dialer.peers.size();
    start(answer, {method, "/", {}, ""}, std::chrono::seconds(10), streamed);
    EXPECT_TRUE(until([&] { return dialer.peers.size() > dials; }));
    EXPECT_TRUE(until([&] { return peer().text.ends_with("\r\n\r\n"); }));
    for (const std::string_view piece : pieces) {
      answer_with(piece);
      settle();
    }
    in_turn(reactor, [&] { peer().close(); });
    EXPECT_TRUE(until([&] { return answer.has_value(); }));
    return std::move(*answer);
  }

  Reactor reactor;
  PeerDialer dialer;
  std::optional<http::Client> client;
  TaskGroup tasks;

 private:
  static Task<> run(http::Client& client, Answer& answer, http::ClientRequest request,
                    TimePoint deadline, std::string* streamed) {
    if (streamed) {
      streamed->clear();
      answer = co_await client.stream(std::move(request), deadline, [streamed](std::string_view b) {
        EXPECT_FALSE(b.empty());
        streamed->append(b);
      });
    } else {
      answer = co_await client.send(std::move(request), deadline);
    }
  }
};

}  // namespace fairlead::net::testing
