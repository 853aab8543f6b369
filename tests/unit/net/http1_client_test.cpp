#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/http1_client_testing.hpp"
#include "net/http_client.hpp"
#include "net/http_testing.hpp"
#include "net/socket.hpp"

namespace fairlead::net::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::address;
using testing::count_of;
using testing::in_turn;
using testing::run_until;
using Bench = testing::ClientBench;

TEST(Http1Client, SendsWhatWasAskedAndReturnsTheAnswer) {
  Bench bench;
  Bench::Answer answer;
  bench.start(answer, {"POST", "/v1/x?y", {{"content-type", "a/b"}, {"x", "1\r\n2"}}, "body"});
  ASSERT_TRUE(bench.until([&] { return bench.peer().text.ends_with("body"); }));
  EXPECT_EQ(bench.peer().text,
            "POST /v1/x?y HTTP/1.1\r\nhost: engine:80\r\ncontent-type: a/b\r\nx: 1  2\r\n"
            "content-length: 4\r\n\r\nbody");
  bench.answer_with("HTTP/1.1 201 Created\r\nX-Two: b \r\nContent-Length: 5\r\n\r\nhello");
  ASSERT_TRUE(bench.until([&] { return answer.has_value(); }));
  ASSERT_TRUE(*answer);
  EXPECT_EQ((*answer)->status, 201);
  EXPECT_EQ((*answer)->headers.find("x-two"), "b");
  EXPECT_EQ((*answer)->body, "hello");
}

struct Sample {
  std::string text;
  int status;
  std::string body;
};

TEST(Http1Client, ReadsTheSameHoweverTheBytesAreCut) {
  const std::vector<Sample> samples = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", 200, "abc"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, ""},
      {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n"
       "0\r\nT: u\r\n\r\n",
       200, "abcdefg"},
      {"HTTP/1.1 200 OK\r\n\r\nuntil the end", 200, "until the end"},
      {"HTTP/1.0 200 OK\r\nA: b\r\n\r\nold", 200, "old"},
      {"HTTP/1.1 204 No Content\r\n\r\n", 204, ""},
      {"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, ""},
      {"HTTP/1.1 503 \r\nContent-Length: 4\r\n\r\nbusy", 503, "busy"},
  };
  Bench bench;
  for (const Sample& sample : samples) {
    const std::string_view whole = sample.text;
    for (std::size_t cut = 0; cut < whole.size(); ++cut) {
      bench.dialer.max_read = cut % 8;
      std::string streamed;
      const bool streaming = cut % 2 == 1;
      const auto answer = bench.exchange({whole.substr(0, cut), whole.substr(cut)},
                                         streaming ? &streamed : nullptr);
      ASSERT_TRUE(answer) << answer.error().message << "\n" << sample.text << "\ncut at " << cut;
      EXPECT_EQ(answer->status, sample.status);
      const bool collected = !streaming || sample.status >= 400;
      EXPECT_EQ(collected ? answer->body : streamed, sample.body) << "cut at " << cut;
      EXPECT_EQ(collected ? streamed : answer->body, "");
    }
  }
}

TEST(Http1Client, RefusesMalformedAnswers) {
  Bench bench;
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  const std::vector<std::string> bad = {
      "nonsense",
      "\r\n\r\n",
      "HTTP/2 200 OK\r\n\r\n",
      "HTTP/1.1 2x0 OK\r\n\r\n",
      "HTTP/1.1 099 X\r\n\r\n",
      "HTTP/1.1 101 Switching Protocols\r\n\r\n",
      ok + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      ok + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
      ok + "Content-Length: x\r\n\r\n",
      ok + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
      ok + "Transfer-Encoding: gzip\r\n\r\nxx",
      ok + "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
      ok + "X: a\r\n folded\r\n\r\n",
      ok + "X: a\nY: b\r\n\r\n",
      ok + "X : a\r\n\r\n",
  };
  for (const std::string& text : bad) {
    const auto answer = bench.exchange({text, "\r\n\r\n\r\n"});
    ASSERT_FALSE(answer) << text;
    EXPECT_EQ(answer.error().code, ErrorCode::EngineProtocol) << text;
  }
  std::string interim;
  for (int i = 0; i < 20; ++i) {
    interim += "HTTP/1.1 100 Continue\r\n\r\n";
  }
  EXPECT_EQ(bench.exchange({interim}).error().code, ErrorCode::EngineProtocol);
}

TEST(Http1Client, AnAnswerThatEndsEarlyIsADisconnect) {
  Bench bench;
  for (const std::string_view text :
       {"", "HTTP/1.1 2", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc"}) {
    const auto answer = bench.exchange({text});
    ASSERT_FALSE(answer) << text;
    EXPECT_EQ(answer.error().code, ErrorCode::EngineDisconnected) << text;
  }
}

TEST(Http1Client, BoundsAnswers) {
  ClientLimits limits;
  limits.header_bytes = 100;
  limits.body_bytes = 10;
  Bench bench(limits);
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  EXPECT_FALSE(bench.exchange({ok + "x: " + std::string(100, 'x')}));
  EXPECT_TRUE(bench.exchange({ok + "\r\n0123456789"}));
  EXPECT_FALSE(bench.exchange({ok + "\r\n0123456789a"}));
  EXPECT_FALSE(bench.exchange({ok + "Content-Length: 11\r\n\r\n0123456789a"}));
  EXPECT_FALSE(bench.exchange({ok + "Transfer-Encoding: chunked\r\n\r\nb\r\n0123456789a"}));
  std::string streamed;
  EXPECT_TRUE(bench.exchange(
      {ok + "Transfer-Encoding: chunked\r\n\r\nb\r\n0123456789a\r\n0\r\n\r\n"}, &streamed));
  EXPECT_EQ(streamed, "0123456789a");
}

TEST(Http1Client, HeadHasNoBody) {
  Bench bench;
  const auto answer =
      bench.exchange({"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n"}, nullptr, "HEAD");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body, "");
}

TEST(Http1Client, GivesUpAtItsDeadline) {
  Bench bench;
  Bench::Answer answer;
  for (const std::string_view text :
       {"", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"}) {
    bench.start(answer, {}, milliseconds(20));
    bench.answer_with(text);
    ASSERT_TRUE(bench.until([&] { return answer.has_value(); }));
    ASSERT_FALSE(*answer);
    EXPECT_EQ(answer->error().code, ErrorCode::EngineSilent);
    EXPECT_TRUE(bench.until([&] { return bench.peer().ended; })) << "not reused";
  }
}

TEST(Http1Client, DestroyingTheTaskClosesTheConnection) {
  Bench bench;
  Bench::Answer answer;
  for (const std::string_view text :
       {"", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"}) {
    bench.start(answer, {});
    bench.answer_with(text);
    bench.settle();
    in_turn(bench.reactor, [&] { bench.tasks.cancel(); });
    EXPECT_TRUE(bench.until([&] { return bench.peer().ended; }));
    EXPECT_FALSE(answer.has_value());
  }
}

TEST(Http1Client, ReadsAnAnswerThatComesBeforeTheRequestIsSent) {
  Bench bench;
  bench.dialer.capacity = 1000;
  Bench::Answer answer;
  bench.start(answer, {"POST", "/", {}, std::string(100'000, 'x')});
  in_turn(bench.reactor, [&] { bench.peer().pause(); });
  bench.answer_with("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig");
  ASSERT_TRUE(bench.until([&] { return answer.has_value(); }));
  ASSERT_TRUE(*answer);
  EXPECT_EQ((*answer)->status, 413);
  in_turn(bench.reactor, [&] { bench.peer().resume(); });
  EXPECT_TRUE(bench.until([&] { return bench.peer().ended; })) << "half a request is not reusable";
}

TEST(Http1Client, RefusesRequestsThatWouldBeTwo) {
  Bench bench;
  Bench::Answer answer;
  for (const ClientRequest& request :
       std::vector<ClientRequest>{{"GET", "/ HTTP/1.1\r\nX: y", {}, ""},
                                  {"GE T", "/", {}, ""},
                                  {"GET", "", {}, ""},
                                  {"GET", "/", {{"a b", "c"}}, ""},
                                  {"GET", "/", {{"a:b", "c"}}, ""},
                                  {"GET", "/", {{"", "c"}}, ""}}) {
    bench.start(answer, request);
    ASSERT_TRUE(bench.until([&] { return answer.has_value(); }));
    EXPECT_FALSE(*answer);
  }
  EXPECT_EQ(bench.dialer.dials, 0);
}

Task<> serve(Exchange& exchange) {
  const Request& request = exchange.request();
  if (request.path == "/stream") {
    exchange.start(200, {{"content-type", "text/event-stream"}});
    for (int i = 0; i < 100; ++i) {
      exchange.out() += fmt::format("data: {}\n\n", i);
      exchange.commit();
      co_await NextTurn();
    }
    exchange.finish();
  } else {
    exchange.respond(200, {}, request.method + request.body);
  }
}

TEST(Http1Client, TalksToTheServerOverPipes) {
  for (std::size_t max_read = 0; max_read <= 7; ++max_read) {
    Bench bench;
    std::optional<Server> server(std::in_place, serve, ServerLimits{}, testing::plain_error);
    bench.dialer.max_read = max_read;
    bench.dialer.accept = [&](std::unique_ptr<Stream> stream) {
      server->accept(std::move(stream));
    };
    Bench::Answer answer;
    for (const std::string& body : {std::string(), std::string("x"), std::string(200'000, 'y')}) {
      bench.start(answer, {"POST", "/", {}, body});
      ASSERT_TRUE(bench.until([&] { return answer.has_value(); }));
      ASSERT_TRUE(*answer) << answer->error().message;
      EXPECT_EQ((*answer)->body, "POST" + body);
    }
    std::string streamed;
    bench.start(answer, {"GET", "/stream", {}, ""}, seconds(10), &streamed);
    ASSERT_TRUE(bench.until([&] { return answer.has_value(); }));
    ASSERT_TRUE(*answer);
    EXPECT_EQ(count_of(streamed, "data: "), 100u);
    EXPECT_EQ(server->counters().connections_total, 1u);
    EXPECT_EQ(server->counters().requests_total, 4u);
    in_turn(bench.reactor, [&] {
      bench.client.reset();
      server.reset();
    });
  }
}

TEST(Http1Client, TalksToTheServerOverSockets) {
  Reactor reactor;
  std::optional<Server> server(std::in_place, serve, ServerLimits{}, testing::plain_error);
  auto listener = Listener::open(reactor, address(0), [&](int fd) { server->accept(fd); });
  ASSERT_TRUE(listener);
  TcpDialer dialer;
  std::optional<Client> client(std::in_place, dialer, "localhost",
                               std::vector{(*listener)->address()});
  testing::run_task(reactor, [](Client& c) -> Task<> {
    const TimePoint deadline = Clock::now() + seconds(10);
    const std::string large(5'000'000, 'z');
    for (const std::string& body : {std::string(), std::string("small"), large}) {
      const auto answer = co_await c.send({"POST", "/", {}, body}, deadline);
      EXPECT_TRUE(answer);
      EXPECT_EQ(answer ? answer->body.size() : 0, body.size() + 4);
    }
    int events = 0;
    SseReader reader;
    const auto answer =
        co_await c.stream({"GET", "/stream", {}, ""}, deadline, [&](std::string_view bytes) {
          reader.feed(bytes, [&](std::string_view, std::string_view) { ++events; });
        });
    EXPECT_TRUE(answer);
    EXPECT_EQ(events, 100);
  }(*client));
  EXPECT_EQ(server->counters().connections_total, 1u);
  EXPECT_EQ(server->counters().requests_total, 4u);
  client.reset();
  EXPECT_TRUE(run_until(reactor, [&] { return server->connections() == 0; }));
  EXPECT_EQ(server->counters().clients_gone, 0u);
}

Task<> never(Exchange& exchange) {
  Event event;
  exchange.start(200, {});
  co_await event.wait();
}

TEST(Http1Client, ACancelledRequestReachesTheServerOverSockets) {
  Reactor reactor;
  std::optional<Server> server(std::in_place, never, ServerLimits{}, testing::plain_error);
  auto listener = Listener::open(reactor, address(0), [&](int fd) { server->accept(fd); });
  ASSERT_TRUE(listener);
  TcpDialer dialer;
  Client client(dialer, "localhost", {(*listener)->address()});
  TaskGroup tasks;
  in_turn(reactor, [&] {
    for (int i = 0; i < 10; ++i) {
      tasks.spawn([](Client& c) -> Task<> {
        const auto answer = co_await c.send({}, Clock::now() + seconds(60));
        EXPECT_FALSE(answer);
      }(client));
    }
  });
  ASSERT_TRUE(run_until(reactor, [&] { return server->in_flight() == 10; }));
  in_turn(reactor, [&] { tasks.cancel(); });
  EXPECT_TRUE(run_until(reactor, [&] { return server->connections() == 0; }));
  EXPECT_EQ(server->in_flight(), 0u);
  EXPECT_EQ(server->counters().clients_gone, 10u);
}

// A streamed request through a gate.
class GatedBench : public Bench {
 public:
  using Bench::Bench;
  ~GatedBench() {
    in_turn(reactor, [&] { tasks.cancel(); });
  }
  void start_gated(Answer& answer) {
    in_turn(reactor, [&] { tasks.spawn(run_gated(answer)); });
    ASSERT_TRUE(until([&] { return !dialer.peers.empty(); }));
    ASSERT_TRUE(until([&] { return peer().text.ends_with("\r\n\r\n"); }));
  }

  BodyGate gate;
  std::string streamed;
  std::function<void()> on_piece;

 private:
  Task<> run_gated(Answer& answer) {
    answer = co_await client->stream(
        {"GET", "/", {}, ""}, TimePoint::max(),
        [this](std::string_view bytes) {
          streamed.append(bytes);
          if (on_piece) {
            on_piece();
          }
        },
        &gate);
  }
};

TEST(Http1ClientGate, APausedBodyIsNotRead) {
  GatedBench bench;
  Bench::Answer answer;
  bench.start_gated(answer);
  bench.answer_with("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
  ASSERT_TRUE(bench.until([&] { return bench.streamed == "abc"; }));
  in_turn(bench.reactor, [&] { bench.gate.pause(); });
  EXPECT_TRUE(bench.gate.paused());
  const std::string chunk = "4000\r\n" + std::string(0x4000, 'x') + "\r\n";
  for (int i = 0; i < 20; ++i) {
    bench.answer_with(chunk);
    bench.settle();
  }
  // The pipe takes 64 KiB; the rest stays with the server.
  EXPECT_GT(bench.peer().unsent(), 0x4000U * 15);
  EXPECT_EQ(bench.streamed, "abc");
  in_turn(bench.reactor, [&] { bench.gate.resume(); });
  bench.answer_with("0\r\n\r\n");
  ASSERT_TRUE(bench.until([&] { return answer.has_value(); }));
  EXPECT_TRUE(*answer);
  EXPECT_EQ(bench.streamed.size(), 3 + 20 * 0x4000U);
}

TEST(Http1ClientGate, APauseInsideTheBodyTakesEffectAtTheNextRead) {
  GatedBench bench;
  bench.dialer.max_read = 1;
  bench.on_piece = [&] { bench.gate.pause(); };
  Bench::Answer answer;
  bench.start_gated(answer);
  bench.answer_with("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc");
  for (const std::string_view expected : {"a", "ab", "abc"}) {
    ASSERT_TRUE(bench.until([&] { return bench.streamed == expected; }));
    bench.settle();
    EXPECT_EQ(bench.streamed, expected);
    in_turn(bench.reactor, [&] { bench.gate.resume(); });
  }
  EXPECT_TRUE(bench.until([&] { return answer.has_value(); }));
}

TEST(Http1ClientGate, APausedRequestCanBeAbandoned) {
  GatedBench bench;
  Bench::Answer answer;
  bench.gate.pause();
  bench.start_gated(answer);
  bench.answer_with("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc");
  bench.settle();
  EXPECT_EQ(bench.streamed, "");
  in_turn(bench.reactor, [&] { bench.tasks.cancel(); });
  EXPECT_TRUE(bench.until([&] { return bench.peer().ended; }));
  in_turn(bench.reactor, [&] { bench.gate.resume(); });
  EXPECT_FALSE(answer);
}

}  // namespace
}  // namespace fairlead::net::http
