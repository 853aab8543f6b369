#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>

#include "net/http_script.hpp"
#include "net/http_testing.hpp"
#include "net/socket.hpp"

namespace fairlead::net::http {
namespace {

using std::chrono::milliseconds;
using testing::BytePeer;
using testing::count_of;
using testing::in_turn;
using testing::PipeServer;

TEST(Http1BackPressure, PipelinedAnswersWaitForASlowReader) {
  ServerLimits limits;
  limits.high_mark_bytes = 2000;
  PipeServer server(
      [](Exchange& exchange) -> Task<> {
        exchange.respond(200, {}, std::string(1000, 'x'));
        co_return;
      },
      limits);
  BytePeer& peer = server.connect(0, 1000);
  peer.pause();
  std::string requests;
  for (int i = 0; i < 30; ++i) {
    requests += kGet;
  }
  server.send(peer, requests);
  server.settle();
  EXPECT_LE(server.server->counters().requests_total, 5u);
  in_turn(server.reactor, [&] { peer.resume(); });
  EXPECT_TRUE(server.until([&] { return count_of(peer.text, "HTTP/1.1 200") == 30; }));
}

TEST(Http1BackPressure, CutsAReaderThatStaysSlow) {
  ServerLimits limits;
  limits.slow_reader_timeout = milliseconds(40);
  Script script;
  PipeServer server(bind(start_then_wait, script), limits);
  BytePeer& peer = server.connect(0, 500);
  peer.pause();
  server.send(peer, kGet);
  ASSERT_TRUE(server.until([&] { return script.held == 1; }));
  in_turn(server.reactor, [&] {
    script.exchange->out().append(2000, 'x');
    script.exchange->commit();
  });
  ASSERT_TRUE(server.until([&] { return server.server->connections() == 0; }));
  EXPECT_EQ(script.held, 0);
  EXPECT_EQ(server.server->counters().slow_readers_cut, 1u);
  in_turn(server.reactor, [&] { peer.resume(); });
  server.settle();
  EXPECT_TRUE(peer.failed) << "cut, not ended";
}

TEST(Http1BackPressure, AReaderThatMakesProgressIsNotCut) {
  ServerLimits limits;
  limits.slow_reader_timeout = milliseconds(60);
  Script script;
  PipeServer server(bind(start_then_wait, script), limits);
  BytePeer& peer = server.connect(0, 100);
  peer.pause();
  server.send(peer, kGet);
  ASSERT_TRUE(server.until([&] { return script.held == 1; }));
  in_turn(server.reactor, [&] {
    script.exchange->out().append(1000, 'x');
    script.exchange->commit();
  });
  Timer drip([&] {
    peer.read_once(50);
    drip.arm(milliseconds(10));
  });
  const TimePoint begin = Clock::now();
  in_turn(server.reactor, [&] { drip.arm(milliseconds(10)); });
  ASSERT_TRUE(server.until([&] { return Clock::now() - begin > milliseconds(120); }));
  drip.cancel();
  // A loaded machine may have paused everything for longer than the timeout; then nothing is shown.
  if (server.server->counters().slow_readers_cut == 0) {
    EXPECT_EQ(script.held, 1);
  }
}

TEST(Http1BackPressure, CutsAStreamWithTooMuchUnsent) {
  ServerLimits limits;
  limits.max_unsent_bytes = 10'000;
  Script script;
  PipeServer server(bind(start_then_wait, script), limits);
  BytePeer& peer = server.connect(0, 500);
  peer.pause();
  server.send(peer, kGet);
  ASSERT_TRUE(server.until([&] { return script.held == 1; }));
  int rounds = 0;
  while (script.held == 1 && rounds < 100) {
    in_turn(server.reactor, [&] {
      script.exchange->out().append(1000, 'x');
      script.exchange->commit();
    });
    ++rounds;
  }
  EXPECT_EQ(script.held, 0);
  EXPECT_GE(rounds, 10);
  EXPECT_LE(rounds, 12);
  EXPECT_EQ(server.server->connections(), 0u);
  EXPECT_EQ(server.server->counters().slow_readers_cut, 1u);
}

TEST(Http1BackPressure, TellsWhenASlowReaderHasCaughtUp) {
  ServerLimits limits;
  limits.high_mark_bytes = 4000;
  limits.low_mark_bytes = 1000;
  Script script;
  PipeServer server(bind(start_then_wait, script), limits);
  BytePeer& peer = server.connect(0, 500);
  peer.pause();
  server.send(peer, kGet);
  ASSERT_TRUE(server.until([&] { return script.held == 1; }));
  int drained = 0;
  std::size_t unsent_then = 0;
  in_turn(server.reactor, [&] {
    script.exchange->set_on_drain([&] {
      ++drained;
      unsent_then = script.exchange->unsent();
    });
    script.exchange->out().append(3000, 'x');
    script.exchange->commit();
  });
  in_turn(server.reactor, [&] { peer.resume(); });
  ASSERT_TRUE(server.until([&] { return script.exchange->unsent() == 0; }));
  EXPECT_EQ(drained, 0) << "the high mark was not reached";
  for (int round = 1; round <= 2; ++round) {
    in_turn(server.reactor, [&] {
      peer.pause();
      script.exchange->out().append(6000, 'x');
      script.exchange->commit();
    });
    server.settle();
    EXPECT_EQ(drained, round - 1);
    in_turn(server.reactor, [&] { peer.resume(); });
    ASSERT_TRUE(server.until([&] { return drained == round; }));
    EXPECT_LE(unsent_then, 1000u);
  }
  in_turn(server.reactor, [&] { script.go.set(); });
  ASSERT_TRUE(server.until([&] { return peer.text.ends_with("0\r\n\r\n"); }));
  EXPECT_EQ(count_of(peer.text, "x"), 15'000u);
  EXPECT_EQ(drained, 2);
}

// The source has seen the high mark and paused, so it must hear of the end.
TEST(Http1BackPressure, TellsAlsoWhenTheSocketTookAllAtOnce) {
  ServerLimits limits;
  limits.high_mark_bytes = 4000;
  limits.low_mark_bytes = 1000;
  Script script;
  PipeServer server(bind(start_then_wait, script), limits);
  BytePeer& peer = server.connect(0, 100'000);
  server.send(peer, kGet);
  ASSERT_TRUE(server.until([&] { return script.held == 1; }));
  int drained = 0;
  in_turn(server.reactor, [&] {
    script.exchange->set_on_drain([&] { ++drained; });
    script.exchange->out().append(6000, 'x');
    script.exchange->commit();
    EXPECT_GT(script.exchange->unsent(), 4000u);
  });
  ASSERT_TRUE(server.until([&] { return script.exchange->unsent() == 0; }));
  EXPECT_EQ(drained, 1);
  in_turn(server.reactor, [&] { script.go.set(); });
  ASSERT_TRUE(server.until([&] { return peer.text.ends_with("0\r\n\r\n"); }));
}

TEST(Http1BackPressure, PartialWritesLoseNothing) {
  Script script;
  PipeServer server(bind(start_then_wait, script));
  BytePeer& peer = server.connect(3, 7);
  server.send(peer, kGet);
  ASSERT_TRUE(server.until([&] { return script.held == 1; }));
  std::string expected;
  for (int i = 0; i < 200; ++i) {
    in_turn(server.reactor, [&] {
      const std::string text = fmt::format("[{}]", i);
      expected += text;
      script.exchange->out() += text;
      script.exchange->commit();
    });
  }
  in_turn(server.reactor, [&] { script.go.set(); });
  ASSERT_TRUE(server.until([&] { return peer.text.ends_with("0\r\n\r\n"); }));
  std::string body;
  std::string_view rest = std::string_view(peer.text).substr(peer.text.find("\r\n\r\n") + 4);
  while (!rest.empty()) {
    const std::size_t size = std::stoul(std::string(rest.substr(0, rest.find('\r'))), nullptr, 16);
    rest.remove_prefix(rest.find('\n') + 1);
    body += rest.substr(0, size);
    ASSERT_TRUE(rest.substr(size).starts_with("\r\n"));
    rest.remove_prefix(size + 2);
  }
  EXPECT_EQ(body, expected);
}

// Writes as a producer should: pauses above the high mark, goes on when told.
Task<> write_much(Exchange& exchange, Script& script) {
  const Held held(script.held);
  Event drained;
  int waits = 0;
  exchange.set_on_drain([&] { drained.set(); });
  exchange.start(200, {});
  const std::string piece(64 * 1024, 'x');
  for (int i = 0; i < 256; ++i) {
    drained.reset();
    exchange.out() += piece;
    exchange.commit();
    co_await NextTurn();
    if (exchange.unsent() > 256 * 1024) {
      ++waits;
      co_await drained.wait();
    }
  }
  EXPECT_GT(waits, 0);
  exchange.finish();
}

TEST(Http1BackPressure, BackPressureWorksOverSockets) {
  Reactor reactor;
  Script script;
  ServerLimits limits;
  limits.max_unsent_bytes = 1024 * 1024;
  limits.socket.send_buffer_bytes = 64 * 1024;
  std::optional<Server> server(std::in_place, bind(write_much, script), limits,
                               testing::plain_error);
  auto listener =
      Listener::open(reactor, *Address::parse("127.0.0.1", 0), [&](int fd) { server->accept(fd); });
  ASSERT_TRUE(listener);
  std::optional<BytePeer> peer;
  testing::run_task(reactor, [](Address to, std::optional<BytePeer>& out) -> Task<> {
    TcpDialer dialer;
    auto stream = co_await dialer.connect(to, Clock::now() + std::chrono::seconds(10));
    EXPECT_TRUE(stream);
    out.emplace(std::move(*stream));
    out->pause();
    out->send(kGet);
  }((*listener)->address(), peer));
  ASSERT_TRUE(testing::run_until(reactor, [&] { return script.held == 1; }));
  for (int i = 0; i < 200; ++i) {
    reactor.run_turn(milliseconds(0));
  }
  EXPECT_EQ(script.held, 1) << "waits for its reader, is not cut";
  in_turn(reactor, [&] { peer->resume(); });
  ASSERT_TRUE(testing::run_until(reactor, [&] { return peer->text.ends_with("0\r\n\r\n"); }));
  EXPECT_EQ(count_of(peer->text, "x"), 256u * 64 * 1024);
  EXPECT_EQ(server->counters().slow_readers_cut, 0u);
  // A reset is noticed over sockets too.
  in_turn(reactor, [&] {
    peer->pause();
    peer->send(kGet);
  });
  ASSERT_TRUE(testing::run_until(reactor, [&] { return script.held == 1; }));
  in_turn(reactor, [&] { peer->reset(); });
  ASSERT_TRUE(testing::run_until(reactor, [&] { return server->connections() == 0; }));
  EXPECT_EQ(script.held, 0);
}

}  // namespace
}  // namespace fairlead::net::http
