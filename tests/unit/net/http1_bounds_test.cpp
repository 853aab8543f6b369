#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "net/body_budget.hpp"
#include "net/http_script.hpp"
#include "net/http_testing.hpp"
#include "net/socket.hpp"

// What a client may make an HTTP/1 connection hold, and for how long.

namespace fairlead::net::http {
namespace {

using std::chrono::milliseconds;
using testing::BytePeer;
using testing::count_of;
using ::testing::HasSubstr;
using testing::in_turn;
using testing::PipeServer;
using ::testing::StartsWith;

constexpr std::string_view kChunkedHead =
    "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";

std::string post_head(std::size_t length) {
  return fmt::format("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", length);
}

Task<> answer_at_once(Exchange& exchange) {
  exchange.respond(200, {}, "");
  co_return;
}

std::string repeated(std::string_view text, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) {
    out += text;
  }
  return out;
}

// Whatever stands before the client's end: little, a body, far more than is kept.
TEST(Http1Bounds, AVanishingClientIsNoticedBehindWhateverItPipelined) {
  ServerLimits limits;
  limits.read_ahead_bytes = 1000;
  for (const auto handler : {wait_then_answer, start_then_wait}) {
    for (const std::string& behind : {repeated(kGet, 20), repeated(kGet, 10'000),
                                      post_head(300'000) + std::string(9000, ' ')}) {
      for (const bool reset : {false, true}) {
        Script script;
        PipeServer server(bind(handler, script), limits);
        BytePeer& peer = server.connect(0, 16 * 1024);
        server.send(peer, kGet);
        ASSERT_TRUE(server.until([&] { return script.held == 1; }));
        server.send(peer, behind);
        ASSERT_TRUE(server.until([&] { return peer.unsent() == 0; })) << "reading goes on";
        EXPECT_EQ(script.held, 1);
        in_turn(server.reactor, [&] { reset ? peer.reset() : peer.close(); });
        ASSERT_TRUE(server.until([&] { return server.server->connections() == 0; }));
        EXPECT_EQ(script.held, 0);
        EXPECT_EQ(server.server->counters().requests_total, 1u) << "nothing more was started";
        EXPECT_EQ(server.server->counters().clients_gone, 1u);
      }
    }
  }
}

TEST(Http1Bounds, AClientThatIsTooFarAheadIsAnsweredWhatWasKept) {
  ServerLimits limits;
  limits.read_ahead_bytes = 1000;
  Script script;
  PipeServer server(bind(wait_then_answer, script), limits);
  BytePeer& peer = server.connect(0, 100);
  server.send(peer, repeated(kGet, 200));
  ASSERT_TRUE(server.until([&] { return peer.unsent() == 0; }));
  std::size_t answered = 0;
  while (!peer.ended) {
    ASSERT_TRUE(server.until([&] { return script.held == 1 || peer.ended; }));
    if (script.held == 1) {
      ++answered;
      in_turn(server.reactor, [&] { script.go.set(); });
      server.settle();
    }
  }
  EXPECT_FALSE(peer.failed) << "what was answered is not lost to a reset";
  EXPECT_EQ(count_of(peer.text, "HTTP/1.1 200"), answered);
  EXPECT_GE(answered, 1000 / kGet.size());
  EXPECT_LE(answered, 1100 / kGet.size() + 2);
}

// A kept request whose end was dropped is not taken for one with what came later.
TEST(Http1Bounds, NothingIsReadOverAGapInThePipeline) {
  ServerLimits limits;
  limits.read_ahead_bytes = 1000;
  Script script;
  PipeServer server(bind(wait_then_answer, script), limits);
  BytePeer& peer = server.connect(0, 100);
  server.send(peer, std::string(kGet) + post_head(5000) + std::string(5000, 'a'));
  ASSERT_TRUE(server.until([&] { return peer.unsent() == 0 && script.held == 1; }));
  in_turn(server.reactor, [&] {
    script.go.set();
    peer.send(std::string(5000, 'b'));
  });
  ASSERT_TRUE(server.until([&] { return peer.ended; }));
  EXPECT_FALSE(peer.failed);
  EXPECT_EQ(count_of(peer.text, "HTTP/1.1"), 1u);
  EXPECT_EQ(server.server->counters().requests_total, 1u);
}

TEST(Http1Bounds, AnAnswerThatWaitsForItsReaderLetsMoreRequestsWaitUnread) {
  ServerLimits limits;
  limits.read_ahead_bytes = 1000;
  limits.high_mark_bytes = 1000;
  PipeServer server(
      [](Exchange& exchange) -> Task<> {
        exchange.respond(200, {}, std::string(3000, 'x'));
        co_return;
      },
      limits);
  BytePeer& peer = server.connect(0, 500);
  peer.pause();
  server.send(peer, repeated(kGet, 200));
  for (int i = 0; i < 50; ++i) {
    server.settle();
  }
  EXPECT_GT(peer.unsent(), 0u);
  in_turn(server.reactor, [&] { peer.resume(); });
  EXPECT_TRUE(server.until([&] { return count_of(peer.text, "HTTP/1.1 200") == 200; }));
}

TEST(Http1Bounds, ADrippedBodyEndsHoweverSmallItsPauses) {
  ServerLimits limits;
  limits.body_timeout = milliseconds(80);
  const std::string chunks(kChunkedHead);
  struct Case {
    std::string first;
    std::string_view drip;
  };
  for (const Case& c : {Case{post_head(5000), "a"}, Case{chunks, "1\r\na\r\n"},
                        Case{chunks + "1;", "x"}, Case{chunks + "1\r\na\r\n0\r\nX: ", "t"}}) {
    PipeServer server(answer_at_once, limits);
    BytePeer& peer = server.connect();
    server.send(peer, c.first);
    Timer drip([&] {
      peer.send(c.drip);
      drip.arm(milliseconds(10));
    });
    in_turn(server.reactor, [&] { drip.arm(milliseconds(10)); });
    EXPECT_TRUE(server.until([&] { return peer.ended; })) << c.first;
    drip.cancel();
    EXPECT_THAT(peer.text, StartsWith("HTTP/1.1 408 Request Timeout\r\n"));
    EXPECT_THAT(peer.text, HasSubstr("connection: close"));
  }
}

TEST(Http1Bounds, ABodyBuysTimeByItsRate) {
  ServerLimits limits;
  limits.body_timeout = std::chrono::seconds(60);
  const TimePoint now{std::chrono::hours(1)};
  const TimePoint deadline = now + std::chrono::seconds(10);
  EXPECT_EQ(limits.body_deadline(deadline, 0, now), deadline);
  EXPECT_EQ(limits.body_deadline(deadline, 5 * 1024, now), deadline + std::chrono::seconds(5));
  EXPECT_EQ(limits.body_deadline(deadline, 50 * 1024, now), now + limits.body_timeout);
  EXPECT_EQ(limits.body_deadline(deadline, std::size_t{1} << 40, now), now + limits.body_timeout)
      << "what came fast does not pay for hours";
  limits.body_min_rate = 0;
  EXPECT_EQ(limits.body_deadline(deadline, 1, now), now + limits.body_timeout);
  EXPECT_EQ(limits.body_deadline(deadline, 0, now), deadline);
}

// Exactly the least rate, for many times the longest pause.
TEST(Http1Bounds, ABodyAtTheLeastRateMayTakeItsTime) {
  ServerLimits limits;
  const TimePoint begin{std::chrono::hours(1)};
  TimePoint deadline = begin + limits.body_timeout;
  for (int second = 1; second <= 3600; ++second) {
    const TimePoint now = begin + std::chrono::seconds(second);
    ASSERT_GT(deadline, now) << second;
    deadline = limits.body_deadline(deadline, limits.body_min_rate, now);
  }
}

TEST(Http1Bounds, UnfinishedBodiesShareOneBudget) {
  ServerLimits limits;
  limits.bodies = std::make_shared<BodyBudget>(100'000);
  for (const bool chunked : {false, true}) {
    PipeServer server(answer_at_once, limits);
    const std::string head =
        chunked ? std::string(kChunkedHead) + "ea60\r\n" : post_head(60'000);  // 60,000
    const std::string tail = chunked ? "\r\n0\r\n\r\n" : "";
    BytePeer& first = server.connect();
    BytePeer& second = server.connect();
    server.send(first, head + std::string(50'000, ' '));
    ASSERT_TRUE(server.until([&] { return limits.bodies->used() == 50'000; }));
    // The second is refused when its length is known, or when it comes to hold too much.
    server.send(second, head + std::string(55'000, ' '));
    ASSERT_TRUE(server.until([&] { return second.ended; }));
    EXPECT_THAT(second.text, StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
    EXPECT_THAT(second.text, HasSubstr("retry-after: 1\r\n"));
    EXPECT_THAT(second.text, HasSubstr("connection: close"));
    EXPECT_EQ(limits.bodies->used(), 50'000u) << "a refused body is given up at once";
    EXPECT_EQ(server.server->counters().bodies_refused, 1u);
    // Small requests are not concerned, and the first goes on.
    BytePeer& small = server.connect();
    server.send(small, post_head(10'000) + std::string(5000, ' '));
    server.settle();
    server.send(small, std::string(5000, ' '));
    ASSERT_TRUE(server.until([&] { return count_of(small.text, "HTTP/1.1 200") == 1; }));
    const std::size_t before = small.text.size();
    server.send(small, post_head(55'000) + std::string(55'000, ' '));  // in one piece: never held
    ASSERT_TRUE(server.until([&] { return small.text.size() > before; }));
    EXPECT_THAT(small.text.substr(before), StartsWith("HTTP/1.1 200"));
    server.send(first, std::string(10'000, ' ') + tail);
    ASSERT_TRUE(server.until([&] { return count_of(first.text, "HTTP/1.1 200") == 1; }));
    EXPECT_EQ(limits.bodies->used(), 0u);
  }
}

TEST(Http1Bounds, ALeavingClientGivesItsShareBack) {
  ServerLimits limits;
  limits.bodies = std::make_shared<BodyBudget>(100'000);
  PipeServer server(answer_at_once, limits);
  for (const bool reset : {false, true}) {
    BytePeer& peer = server.connect();
    server.send(peer, post_head(90'000) + std::string(80'000, ' '));
    ASSERT_TRUE(server.until([&] { return limits.bodies->used() == 80'000; }));
    in_turn(server.reactor, [&] { reset ? peer.reset() : peer.close(); });
    ASSERT_TRUE(server.until([&] { return server.server->connections() == 0; }));
    EXPECT_EQ(limits.bodies->used(), 0u);
  }
}

Task<> answer_with_share(Exchange& exchange, std::shared_ptr<BodyBudget> budget) {
  auto share = std::make_shared<BodyShare>(std::move(budget));
  EXPECT_TRUE(share->hold(20'000));
  exchange.respond_owned(200, {{"x-one", "1"}}, std::string(20'000, 'b'), std::move(share));
  co_return;
}

TEST(Http1Bounds, WhatBelongsToAnAnswerIsKeptUntilItIsTaken) {
  auto budget = std::make_shared<BodyBudget>(100'000);
  PipeServer server([&](Exchange& exchange) { return answer_with_share(exchange, budget); });
  BytePeer& peer = server.connect();
  server.send(peer, std::string(kGet) + std::string(kGet));
  ASSERT_TRUE(server.until([&] { return peer.text.size() > 40'000; }));
  EXPECT_EQ(count_of(peer.text, "HTTP/1.1 200 OK\r\n"), 2u);
  EXPECT_EQ(count_of(peer.text, "content-length: 20000\r\n"), 2u);
  EXPECT_EQ(count_of(peer.text, "x-one: 1\r\n"), 2u);
  EXPECT_THAT(peer.text, ::testing::EndsWith("bbb"));
  server.settle();
  EXPECT_EQ(budget->used(), 0u);
}

TEST(Http1Bounds, PipelinedBytesCountToo) {
  ServerLimits limits;
  limits.bodies = std::make_shared<BodyBudget>(100'000);
  Script script;
  PipeServer server(bind(wait_then_answer, script), limits);
  BytePeer& peer = server.connect();
  server.send(peer, std::string(kGet) + post_head(90'000) + std::string(40'000, ' '));
  ASSERT_TRUE(server.until([&] { return limits.bodies->used() > 40'000; }));
  server.send(peer, std::string(50'000, ' '));
  ASSERT_TRUE(server.until([&] { return limits.bodies->used() > 90'000; }));
  // What does not fit is dropped, and the running request is answered all the same.
  server.send(peer, std::string(50'000, ' '));
  ASSERT_TRUE(server.until([&] { return limits.bodies->used() == 0; }));
  EXPECT_EQ(script.held, 1);
  in_turn(server.reactor, [&] { script.go.set(); });
  ASSERT_TRUE(server.until([&] { return peer.ended; }));
  EXPECT_EQ(count_of(peer.text, "HTTP/1.1 200"), 1u);
}

TEST(Http1Bounds, SeveralServersShareABudget) {
  auto budget = std::make_shared<BodyBudget>(100'000);
  BodyShare one(budget);
  BodyShare two(budget);
  EXPECT_TRUE(one.hold(BodyShare::kFree));
  EXPECT_EQ(budget->used(), 0u);
  EXPECT_TRUE(one.hold(60'000));
  EXPECT_FALSE(two.hold(60'000));
  EXPECT_FALSE(two.has_room(40'001));
  EXPECT_TRUE(two.has_room(BodyShare::kFree));
  EXPECT_TRUE(two.hold(40'000));
  EXPECT_FALSE(one.hold(60'001));
  EXPECT_TRUE(one.hold(20'000));
  EXPECT_EQ(budget->used(), 60'000u);
  EXPECT_FALSE(budget->take(static_cast<std::size_t>(-1)));
}

// The kernel holds the client's end back behind bytes that nobody reads.
TEST(Http1Bounds, AVanishingClientIsNoticedOverSockets) {
  for (const bool reset : {false, true}) {
    Reactor reactor;
    Script script;
    std::optional<Server> server(std::in_place, bind(start_then_wait, script), ServerLimits{},
                                 testing::plain_error);
    auto listener = Listener::open(reactor, *Address::parse("127.0.0.1", 0),
                                   [&](int fd) { server->accept(fd); });
    ASSERT_TRUE(listener);
    std::optional<BytePeer> peer;
    testing::run_task(reactor, [](Address to, std::optional<BytePeer>& out) -> Task<> {
      TcpDialer dialer;
      auto stream = co_await dialer.connect(to, Clock::now() + std::chrono::seconds(10));
      EXPECT_TRUE(stream);
      out.emplace(std::move(*stream));
      out->send(kGet);
    }((*listener)->address(), peer));
    ASSERT_TRUE(testing::run_until(reactor, [&] { return script.held == 1; }));
    in_turn(reactor, [&] { peer->send(repeated(kGet, 1024 * 1024 / kGet.size())); });
    ASSERT_TRUE(testing::run_until(reactor, [&] { return peer->unsent() == 0; }));
    EXPECT_EQ(script.held, 1);
    in_turn(reactor, [&] { reset ? peer->reset() : peer->close(); });
    ASSERT_TRUE(testing::run_until(reactor, [&] { return server->connections() == 0; }));
    EXPECT_EQ(script.held, 0);
    EXPECT_EQ(server->counters().requests_total, 1u);
    in_turn(reactor, [&] { server.reset(); });
    reactor.run_turn(Duration(0));
  }
}

}  // namespace
}  // namespace fairlead::net::http
