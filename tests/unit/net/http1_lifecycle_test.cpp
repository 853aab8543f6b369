#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "net/http_script.hpp"
#include "net/http_testing.hpp"

namespace fairlead::net::http {
namespace {

using std::chrono::milliseconds;
using testing::BytePeer;
using testing::count_of;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::in_turn;
using ::testing::Not;
using testing::PipeServer;
using ::testing::StartsWith;

TEST(Http1Lifecycle, AnswersPipelinedRequestsInOrder) {
  Script script;
  PipeServer server(bind(wait_then_answer, script));
  BytePeer& peer = server.connect();
  std::string requests;
  for (int i = 0; i < 5; ++i) {
    requests += fmt::format("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", i);
  }
  server.send(peer, requests);
  for (std::size_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(server.until([&] { return script.held == 1; }));
    EXPECT_EQ(server.server->in_flight(), 1u);
    EXPECT_EQ(count_of(peer.text, "HTTP/1.1 200"), i);
    in_turn(server.reactor, [&] { script.go.set(); });
    ASSERT_TRUE(server.until([&] { return peer.text.ends_with(fmt::format("/{}", i)); }));
  }
  EXPECT_EQ(server.server->in_flight(), 0u);
  EXPECT_EQ(server.server->counters().requests_total, 5u);
}

TEST(Http1Lifecycle, AVanishingClientTakesItsHandlerAlongInTheSameTurn) {
  for (const bool reset : {false, true}) {
    Script script;
    PipeServer server(bind(wait_then_answer, script));
    BytePeer& peer = server.connect();
    server.send(peer, kGet);
    ASSERT_TRUE(server.until([&] { return script.held == 1; }));
    in_turn(server.reactor, [&] { reset ? peer.reset() : peer.close(); });
    EXPECT_EQ(script.held, 0);
    EXPECT_EQ(server.server->in_flight(), 0u);
    EXPECT_EQ(server.server->connections(), 0u);
    EXPECT_EQ(server.server->counters().clients_gone, 1u);
    EXPECT_EQ(server.server->counters().connections_open, 0u);
  }
}

TEST(Http1Lifecycle, ClientsMayVanishAtEveryStage) {
  const std::vector<std::string> stages = {
      "",
      "PRI * HT",
      "GET / HTT",
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nab",
      "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nTrail",
      std::string(kGet),
      std::string(kGet) + std::string(kGet) + "GET",
      "GET /%zz HTTP/1.1\r\n\r\n",
  };
  for (const auto handler : {wait_then_answer, start_then_wait}) {
    for (const std::string& stage : stages) {
      for (const bool reset : {false, true}) {
        Script script;
        PipeServer server(bind(handler, script));
        BytePeer& peer = server.connect();
        server.send(peer, stage);
        server.settle();
        in_turn(server.reactor, [&] { reset ? peer.reset() : peer.close(); });
        server.settle();
        EXPECT_EQ(script.held, 0) << stage;
        EXPECT_EQ(server.server->in_flight(), 0u) << stage;
        EXPECT_EQ(server.server->connections(), 0u) << stage;
      }
    }
  }
}

TEST(Http1Lifecycle, AClientMayLeaveWhileItsAnswerIsWritten) {
  Script script;
  PipeServer server(bind(start_then_wait, script));
  BytePeer& peer = server.connect(0, 1000);
  peer.pause();
  server.send(peer, kGet);
  ASSERT_TRUE(server.until([&] { return script.held == 1; }));
  in_turn(server.reactor, [&] {
    script.exchange->out().append(5000, 'x');
    script.exchange->commit();
  });
  EXPECT_GE(script.exchange->unsent(), 4000u);
  in_turn(server.reactor, [&] { peer.close(); });
  server.settle();
  EXPECT_EQ(script.held, 0);
  EXPECT_EQ(server.server->connections(), 0u);
}

TEST(Http1Lifecycle, AHalfClosedClientIsGoneUnlessAllowed) {
  for (const bool allowed : {false, true}) {
    ServerLimits limits;
    limits.allow_half_close = allowed;
    Script script;
    PipeServer server(bind(wait_then_answer, script), limits);
    BytePeer& peer = server.connect();
    server.send(peer, std::string(kGet) + std::string(kGet));
    ASSERT_TRUE(server.until([&] { return script.held == 1; }));
    in_turn(server.reactor, [&] { peer.shutdown(); });
    server.settle();
    EXPECT_EQ(script.held, allowed ? 1 : 0);
    for (int i = 0; allowed && i < 2; ++i) {
      in_turn(server.reactor, [&] { script.go.set(); });
      server.settle();
    }
    ASSERT_TRUE(server.until([&] { return peer.ended; }));
    EXPECT_EQ(count_of(peer.text, "HTTP/1.1 200"), allowed ? 2u : 0u);
    EXPECT_EQ(server.server->connections(), 0u);
  }
}

TEST(Http1Lifecycle, AnAnswerThatIsReadyReachesAHalfClosedClient) {
  PipeServer server([](Exchange& exchange) -> Task<> {
    exchange.respond(200, {}, "ready");
    co_return;
  });
  BytePeer& peer = server.connect();
  in_turn(server.reactor, [&] {
    peer.send(kGet);
    peer.shutdown();
  });
  ASSERT_TRUE(server.until([&] { return peer.ended; }));
  EXPECT_THAT(peer.text, EndsWith("ready"));
  EXPECT_EQ(server.server->counters().clients_gone, 0u);
}

TEST(Http1Lifecycle, SlowHeadsAndBodiesTimeOut) {
  ServerLimits limits;
  limits.header_timeout = milliseconds(30);
  limits.body_timeout = milliseconds(30);
  PipeServer server(
      [](Exchange& exchange) -> Task<> {
        exchange.respond(200, {}, "");
        co_return;
      },
      limits);
  for (const std::string_view text :
       {"GET / HTTP/1.1\r\nHost:", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc"}) {
    BytePeer& peer = server.connect();
    const TimePoint begin = Clock::now();
    server.send(peer, text);
    ASSERT_TRUE(server.until([&] { return peer.ended; }));
    EXPECT_GE(Clock::now() - begin, milliseconds(30));
    EXPECT_THAT(peer.text, StartsWith("HTTP/1.1 408 Request Timeout\r\n"));
    EXPECT_THAT(peer.text, HasSubstr("connection: close"));
  }
}

TEST(Http1Lifecycle, BytesOfAHeadDoNotPostponeItsTimeout) {
  ServerLimits limits;
  limits.header_timeout = milliseconds(50);
  Script script;
  PipeServer server(bind(wait_then_answer, script), limits);
  BytePeer& peer = server.connect();
  server.send(peer, "GET / HTTP/1.1\r\n");
  Timer drip([&] {
    peer.send("a");
    drip.arm(milliseconds(10));
  });
  in_turn(server.reactor, [&] { drip.arm(milliseconds(10)); });
  ASSERT_TRUE(server.until([&] { return peer.ended; }));
  EXPECT_THAT(peer.text, StartsWith("HTTP/1.1 408"));
  drip.cancel();
}

TEST(Http1Lifecycle, IdleConnectionsCloseWithoutAWord) {
  ServerLimits limits;
  limits.idle_timeout = milliseconds(30);
  Script script;
  PipeServer server(bind(wait_then_answer, script), limits);
  BytePeer& silent = server.connect();
  ASSERT_TRUE(server.until([&] { return silent.ended; }));
  EXPECT_EQ(silent.text, "");
  BytePeer& used = server.connect();
  server.send(used, kGet);
  ASSERT_TRUE(server.until([&] { return script.held == 1; }));
  const TimePoint begin = Clock::now();
  ASSERT_TRUE(server.until([&] { return Clock::now() - begin > milliseconds(60); }));
  EXPECT_FALSE(used.ended) << "a running request is not idle";
  in_turn(server.reactor, [&] { script.go.set(); });
  ASSERT_TRUE(server.until([&] { return used.ended; }));
  EXPECT_EQ(count_of(used.text, "HTTP/1.1"), 1u);
  EXPECT_EQ(server.server->counters().bad_requests, 0u);
}

TEST(Http1Lifecycle, ThrowingAndSilentHandlersAnswer500) {
  PipeServer server([](Exchange& exchange) -> Task<> {
    if (exchange.request().path == "/throw") {
      throw std::runtime_error("boom");
    }
    if (exchange.request().path == "/late") {
      co_await NextTurn();
      throw 42;
    }
  });
  BytePeer& peer = server.connect();
  for (const std::string_view path : {"/throw", "/late", "/silent"}) {
    peer.text.clear();
    server.send(peer, fmt::format("GET {} HTTP/1.1\r\nHost: h\r\n\r\n", path));
    ASSERT_TRUE(server.until([&] { return peer.text.ends_with("500 internal error"); }));
    EXPECT_THAT(peer.text, StartsWith("HTTP/1.1 500 Internal Server Error\r\n"));
    EXPECT_THAT(peer.text, Not(HasSubstr("boom")));
  }
  EXPECT_EQ(server.server->connections(), 1u);
}

TEST(Http1Lifecycle, AnUnfinishedStreamIsAborted) {
  PipeServer server([](Exchange& exchange) -> Task<> {
    exchange.start(200, {});
    exchange.out() += "part";
    exchange.commit();
    co_await NextTurn();
    co_await NextTurn();
  });
  BytePeer& peer = server.connect();
  server.send(peer, kGet);
  ASSERT_TRUE(server.until([&] { return peer.ended; }));
  EXPECT_TRUE(peer.failed);
  EXPECT_THAT(peer.text, EndsWith("4\r\npart\r\n"));
  EXPECT_EQ(server.server->connections(), 0u);
}

TEST(Http1Lifecycle, DrainClosesIdleConnectionsAndFinishesTheRest) {
  Script script;
  PipeServer server(bind(wait_then_answer, script));
  BytePeer& fresh = server.connect();
  BytePeer& used = server.connect();
  server.send(used, kGet);
  ASSERT_TRUE(server.until([&] { return script.held == 1; }));
  in_turn(server.reactor, [&] { script.go.set(); });
  ASSERT_TRUE(server.until([&] { return used.text.ends_with("/"); }));
  BytePeer& busy = server.connect();
  server.send(busy, kGet);
  ASSERT_TRUE(server.until([&] { return script.held == 1; }));
  in_turn(server.reactor, [&] { server.server->drain(); });
  ASSERT_TRUE(server.until([&] { return fresh.ended && used.ended; }));
  EXPECT_EQ(server.server->connections(), 1u);
  in_turn(server.reactor, [&] { script.go.set(); });
  ASSERT_TRUE(server.until([&] { return busy.ended; }));
  EXPECT_THAT(busy.text, HasSubstr("connection: close"));
  // New connections still get an answer.
  BytePeer& late = server.connect();
  server.send(late, kGet);
  ASSERT_TRUE(server.until([&] { return script.held == 1; }));
  in_turn(server.reactor, [&] { script.go.set(); });
  ASSERT_TRUE(server.until([&] { return late.ended; }));
  EXPECT_THAT(late.text, HasSubstr("connection: close"));
  in_turn(server.reactor, [&] {
    busy.close();
    late.close();
  });
  EXPECT_TRUE(server.until([&] { return server.server->connections() == 0; }));
}

TEST(Http1Lifecycle, AnAnswerThatWaitsForItsReaderIsInFlight) {
  PipeServer server([](Exchange& exchange) -> Task<> {
    exchange.respond(200, {}, std::string(5000, 'x'));
    co_return;
  });
  BytePeer& peer = server.connect(0, 1000);
  peer.pause();
  server.send(peer, kGet);
  server.settle();
  EXPECT_EQ(server.server->in_flight(), 1u);
  in_turn(server.reactor, [&] { server.server->drain(); });
  server.settle();
  EXPECT_EQ(server.server->in_flight(), 1u);
  in_turn(server.reactor, [&] { peer.resume(); });
  ASSERT_TRUE(server.until([&] { return peer.ended; }));
  EXPECT_GT(peer.text.size(), 5000u);
  EXPECT_EQ(server.server->in_flight(), 0u);
}

TEST(Http1Lifecycle, DrainLetsAStreamEnd) {
  Script script;
  PipeServer server(bind(start_then_wait, script));
  BytePeer& peer = server.connect();
  server.send(peer, kGet);
  ASSERT_TRUE(server.until([&] { return !peer.text.empty(); }));
  in_turn(server.reactor, [&] { server.server->drain(); });
  server.settle();
  EXPECT_EQ(script.held, 1);
  in_turn(server.reactor, [&] { script.go.set(); });
  ASSERT_TRUE(server.until([&] { return peer.ended; }));
  EXPECT_FALSE(peer.failed);
  EXPECT_THAT(peer.text, EndsWith("0\r\n\r\n"));
}

TEST(Http1Lifecycle, DestroyingTheServerDestroysItsHandlers) {
  Script script;
  PipeServer server(bind(start_then_wait, script));
  BytePeer& peer = server.connect();
  server.send(peer, kGet);
  ASSERT_TRUE(server.until([&] { return script.held == 1; }));
  in_turn(server.reactor, [&] {
    server.server.reset();
    EXPECT_EQ(script.held, 0);
  });
  ASSERT_TRUE(server.until([&] { return peer.ended; }));
}

// A connection that is over waits for the end of its turn; the server may go first.
TEST(Http1Lifecycle, TheServerMayGoInTheTurnInWhichAClientLeft) {
  Script script;
  PipeServer server(bind(wait_then_answer, script));
  BytePeer& peer = server.connect();
  server.send(peer, kGet);
  ASSERT_TRUE(server.until([&] { return script.held == 1; }));
  in_turn(server.reactor, [&] {
    script.exchange->start(200, {});
    peer.reset();
    server.server.reset();
    EXPECT_EQ(script.held, 0);
  });
  server.settle();
}

TEST(Http1Lifecycle, WritingAfterTheClientLeftGoesNowhere) {
  Script script;
  PipeServer server(bind(wait_then_answer, script));
  BytePeer& peer = server.connect();
  server.send(peer, kGet);
  ASSERT_TRUE(server.until([&] { return script.held == 1; }));
  in_turn(server.reactor, [&] {
    peer.close();
    script.go.set();  // resumed before the connection sees the end
  });
  server.settle();
  EXPECT_EQ(script.held, 0);
  EXPECT_EQ(server.server->connections(), 0u);
}

TEST(Http1Lifecycle, HandsHttp2OverHoweverThePrefaceIsCut) {
  PipeServer server([](Exchange& exchange) -> Task<> {
    exchange.respond(200, {}, "");
    co_return;
  });
  const std::string preface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
  for (std::size_t cut = 0; cut < preface.size(); ++cut) {
    BytePeer& peer = server.connect();
    server.send(peer, preface.substr(0, cut));
    server.settle();
    server.send(peer, preface.substr(cut));
    ASSERT_TRUE(server.until([&] { return peer.text.size() >= 9; })) << cut;
    EXPECT_EQ(peer.text[3], 4) << "a SETTINGS frame comes first";
    EXPECT_THAT(peer.text, Not(HasSubstr("HTTP/1.1")));
    in_turn(server.reactor, [&] { peer.close(); });
    ASSERT_TRUE(server.until([&] { return server.server->connections() == 0; }));
  }
}

}  // namespace
}  // namespace fairlead::net::http
