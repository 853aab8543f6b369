#include "net/http_client.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/http_testing.hpp"
#include "net/socket.hpp"

namespace fairlead::net::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::BytePeer;
using testing::count_of;
using testing::in_turn;
using testing::run_until;
using ::testing::StartsWith;

// Connects to pipes whose other ends the test plays. Addresses with port 1 refuse.
class PipeDialer final : public Dialer {
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

Address address(std::uint16_t port) { return *Address::parse("127.0.0.1", port); }

// A client whose server is the test.
class Bench {
 public:
  explicit Bench(ClientLimits limits = {}, std::vector<Address> addresses = {address(80)}) {
    client.emplace(dialer, "engine:80", std::move(addresses), limits);
  }
  ~Bench() {
    in_turn(reactor, [&] {
      tasks.cancel();
      client.reset();
      dialer.peers.clear();
    });
    reactor.run_turn(Duration(0));
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  using Answer = std::optional<Result<ClientResponse>>;

  void start(Answer& answer, ClientRequest request, Duration timeout = seconds(10),
             std::string* streamed = nullptr) {
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
  // Sends one GET on a fresh client and lets the server answer with the pieces, then close.
  Result<ClientResponse> exchange(const std::vector<std::string_view>& pieces,
                                  std::string* streamed = nullptr,
                                  const std::string& method = "GET") {
    Answer answer;
    const auto dials = dialer.peers.size();
    start(answer, {method, "/", {}, ""}, seconds(10), streamed);
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
  PipeDialer dialer;
  std::optional<Client> client;
  TaskGroup tasks;

 private:
  static Task<> run(Client& client, Answer& answer, ClientRequest request, TimePoint deadline,
                    std::string* streamed) {
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

constexpr std::string_view kOk = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

TEST(Http1Client, ReusesConnections) {
  Bench bench;
  Bench::Answer answer;
  for (std::size_t i = 1; i <= 5; ++i) {
    bench.start(answer, {});
    ASSERT_TRUE(bench.until([&] { return count_of(bench.peer().text, "GET / ") == i; }));
    bench.answer_with(kOk);
    ASSERT_TRUE(bench.until([&] { return answer.has_value(); }));
    ASSERT_TRUE(*answer);
  }
  EXPECT_EQ(bench.dialer.dials, 1);
  // Two at a time need two.
  Bench::Answer other;
  bench.start(answer, {});
  bench.start(other, {});
  EXPECT_EQ(bench.dialer.dials, 2);
}

TEST(Http1Client, DoesNotReuseWhatMayNotBeReused) {
  Bench bench;
  Bench::Answer answer;
  int dials = 0;
  for (const std::string text :
       {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nexcess"}) {
    bench.start(answer, {});
    bench.answer_with(text);
    ASSERT_TRUE(bench.until([&] { return answer.has_value(); }));
    ASSERT_TRUE(*answer);
    EXPECT_EQ(bench.dialer.dials, ++dials);
    EXPECT_TRUE(bench.until([&] { return bench.peer().ended; })) << "closed at once";
  }
}

TEST(Http1Client, DropsParkedConnectionsThatTheServerEndsOrFills) {
  for (const bool fills : {false, true}) {
    Bench bench;
    Bench::Answer answer;
    bench.start(answer, {});
    bench.answer_with(kOk);
    ASSERT_TRUE(bench.until([&] { return answer.has_value(); }));
    in_turn(bench.reactor, [&] { fills ? bench.peer().send("x") : bench.peer().shutdown(); });
    ASSERT_TRUE(bench.until([&] { return bench.peer().ended; }));
    bench.start(answer, {});
    EXPECT_EQ(bench.dialer.dials, 2);
  }
}

TEST(Http1Client, ClosesParkedConnectionsInTime) {
  ClientLimits limits;
  limits.idle_timeout = milliseconds(30);
  Bench bench(limits);
  Bench::Answer answer;
  bench.start(answer, {});
  bench.answer_with(kOk);
  ASSERT_TRUE(bench.until([&] { return answer.has_value(); }));
  EXPECT_TRUE(bench.until([&] { return bench.peer().ended; }));
}

TEST(Http1Client, SendsAgainOnceWhenAReusedConnectionWasStale) {
  Bench bench;
  Bench::Answer answer;
  bench.start(answer, {});
  bench.answer_with(kOk);
  ASSERT_TRUE(bench.until([&] { return answer.has_value(); }));
  // The server closes while the next request is on its way.
  bench.start(answer, {"POST", "/again", {}, "b"});
  EXPECT_EQ(bench.dialer.dials, 1);
  in_turn(bench.reactor, [&] { bench.dialer.peers[0]->close(); });
  ASSERT_TRUE(bench.until([&] { return bench.dialer.dials == 2; }));
  ASSERT_TRUE(bench.until([&] { return bench.peer().text.ends_with("\r\n\r\nb"); }));
  EXPECT_THAT(bench.peer().text, StartsWith("POST /again "));
  bench.answer_with(kOk);
  ASSERT_TRUE(bench.until([&] { return answer.has_value(); }));
  EXPECT_TRUE(*answer);
  // A new connection that breaks is not tried again.
  bench.start(answer, {});
  in_turn(bench.reactor, [&] { bench.peer().close(); });
  ASSERT_TRUE(bench.until([&] { return bench.dialer.dials == 3; }));
  in_turn(bench.reactor, [&] { bench.peer().close(); });
  ASSERT_TRUE(bench.until([&] { return answer.has_value(); }));
  ASSERT_FALSE(*answer);
  EXPECT_EQ(answer->error().code, ErrorCode::EngineDisconnected);
  EXPECT_EQ(bench.dialer.dials, 3);
}

TEST(Http1Client, DoesNotSendAgainOnceTheAnswerHasBegun) {
  Bench bench;
  Bench::Answer answer;
  bench.start(answer, {});
  bench.answer_with(kOk);
  ASSERT_TRUE(bench.until([&] { return answer.has_value(); }));
  bench.start(answer, {});
  in_turn(bench.reactor, [&] {
    bench.peer().send("H");
    bench.peer().close();
  });
  ASSERT_TRUE(bench.until([&] { return answer.has_value(); }));
  ASSERT_FALSE(*answer);
  EXPECT_EQ(bench.dialer.dials, 1);
}

TEST(Http1Client, TriesAddressesInOrder) {
  Bench bench({}, {address(1), address(80)});
  Bench::Answer answer;
  bench.start(answer, {});
  EXPECT_EQ(bench.dialer.dials, 2);
  bench.answer_with(kOk);
  ASSERT_TRUE(bench.until([&] { return answer.has_value(); }));
  EXPECT_TRUE(*answer);
  Bench unreachable({}, {address(1), address(1)});
  unreachable.start(answer, {});
  ASSERT_TRUE(unreachable.until([&] { return answer.has_value(); }));
  EXPECT_EQ(answer->error().code, ErrorCode::EngineUnreachable);
  Bench nowhere({}, {});
  nowhere.start(answer, {});
  ASSERT_TRUE(nowhere.until([&] { return answer.has_value(); }));
  EXPECT_EQ(answer->error().code, ErrorCode::EngineUnreachable);
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

TEST(Http1Client, NewAddressesLeaveIdleConnectionsBehind) {
  Bench bench;
  Bench::Answer answer;
  for (int i = 0; i < 2; ++i) {
    bench.start(answer, {});
    ASSERT_TRUE(bench.until([&] { return !bench.dialer.peers.empty(); }));
    ASSERT_TRUE(
        bench.until([&] { return count_of(bench.peer().text, "\r\n\r\n") == std::size_t(i) + 1; }));
    bench.answer_with("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    ASSERT_TRUE(bench.until([&] { return answer.has_value(); }));
  }
  EXPECT_EQ(bench.dialer.dials, 1);
  in_turn(bench.reactor, [&] { bench.client->set_addresses({address(81)}); });
  EXPECT_TRUE(bench.until([&] { return bench.peer().ended; }));
  bench.start(answer, {});
  EXPECT_TRUE(bench.until([&] { return bench.dialer.dials == 2; }));
}

// Takes as long as it is given.
class StuckDialer final : public Dialer {
 public:
  Task<Result<std::unique_ptr<Stream>>> connect(Address, TimePoint deadline) override {
    given = deadline - Reactor::current()->now();
    co_return fail(ErrorCode::EngineConnectTimeout, "stuck");
  }
  Duration given{};
};

Task<> send_without_deadline(Client& client, std::optional<Result<ClientResponse>>& out) {
  out = co_await client.send({}, TimePoint::max());
}

TEST(Http1Client, ConnectingIsBoundedWithoutADeadline) {
  Reactor reactor;
  StuckDialer dialer;
  ClientLimits limits;
  limits.connect_timeout = seconds(2);
  std::optional<Client> client;
  in_turn(reactor, [&] { client.emplace(dialer, "h", std::vector{address(80)}, limits); });
  std::optional<Result<ClientResponse>> answer;
  testing::run_task(reactor, send_without_deadline(*client, answer));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->error().code, ErrorCode::EngineConnectTimeout);
  EXPECT_EQ(dialer.given, seconds(2));
  in_turn(reactor, [&] { client.reset(); });
}

// Connects when the test says so.
class SlowDialer final : public Dialer {
 public:
  Task<Result<std::unique_ptr<Stream>>> connect(Address, TimePoint) override {
    ++under_way;
    most = std::max(most, under_way);
    Event& ready = events.emplace_back();
    co_await ready.wait();
    --under_way;
    if (failing) {
      co_return fail(ErrorCode::EngineUnreachable, "refused");
    }
    auto [ours, theirs] = make_pipe(0, 64 * 1024);
    peers.push_back(std::make_unique<BytePeer>(std::move(theirs)));
    co_return std::move(ours);
  }

  std::size_t under_way = 0;
  std::size_t most = 0;
  bool failing = false;
  std::deque<Event> events;  // one per connection, in the order of dialing
  std::vector<std::unique_ptr<BytePeer>> peers;
};

class Http1ClientDials : public testing::ReactorTest {
 public:
  Http1ClientDials() { limits.dials_at_once = 2; }
  ~Http1ClientDials() override {
    in_turn([&] {
      tasks.cancel();
      client.reset();
      dialer.peers.clear();
    });
    reactor.run_turn(Duration(0));
  }

 protected:
  void start(std::size_t requests) {
    in_turn([&] {
      client.emplace(dialer, "h", std::vector{address(80)}, limits);
      answers.resize(requests);
      for (auto& answer : answers) {
        tasks.spawn(send_without_deadline(*client, answer));
      }
    });
  }
  void connect(std::size_t which) {
    ASSERT_TRUE(wait([&] { return dialer.events.size() > which; }));
    in_turn([&] { dialer.events[which].set(); });
  }

  ClientLimits limits;
  SlowDialer dialer;
  std::optional<Client> client;
  std::vector<std::optional<Result<ClientResponse>>> answers;
  TaskGroup tasks;
};

TEST_F(Http1ClientDials, OnlySoManyConnectionsAreEstablishedAtOnce) {
  start(7);
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_LE(dialer.events.size(), i + 2);
    connect(i);
    ASSERT_TRUE(wait([&] { return dialer.peers.size() == i + 1; }));
  }
  EXPECT_EQ(dialer.most, 2U);
  EXPECT_EQ(client->dials(), 7U);
}

TEST_F(Http1ClientDials, WhoWaitedTakesAConnectionThatBecameIdle) {
  limits.dials_at_once = 1;
  start(3);
  connect(0);
  ASSERT_TRUE(wait([&] { return dialer.events.size() == 2 && dialer.peers.size() == 1; }));
  in_turn([&] { dialer.peers[0]->send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"); });
  ASSERT_TRUE(wait([&] { return answers[0].has_value(); }));
  connect(1);
  // The third request has its turn now and finds the first one's connection.
  ASSERT_TRUE(wait([&] { return count_of(dialer.peers[0]->text, "\r\n\r\n") == 2; }));
  EXPECT_EQ(dialer.events.size(), 2U);
}

TEST_F(Http1ClientDials, ARefusedConnectionLetsTheNextTry) {
  dialer.failing = true;
  start(4);
  for (std::size_t i = 0; i < 4; ++i) {
    connect(i);
  }
  ASSERT_TRUE(wait([&] { return answers[3].has_value(); }));
  for (const auto& answer : answers) {
    EXPECT_EQ(answer->error().code, ErrorCode::EngineUnreachable);
  }
}

TEST_F(Http1ClientDials, AnAbandonedRequestGivesItsPlaceUp) {
  start(2);
  std::optional<Result<ClientResponse>> waiting;
  std::optional<TaskGroup> other;
  in_turn([&] {
    other.emplace();
    other->spawn(send_without_deadline(*client, waiting));
  });
  std::optional<Result<ClientResponse>> last;
  in_turn([&] { tasks.spawn(send_without_deadline(*client, last)); });
  EXPECT_EQ(dialer.events.size(), 2U);
  in_turn([&] { other.reset(); });  // leaves the line
  connect(0);
  ASSERT_TRUE(wait([&] { return dialer.events.size() == 3; }));
  connect(2);
  EXPECT_TRUE(wait([&] { return dialer.peers.size() == 2; }));
  EXPECT_FALSE(waiting);
}

TEST_F(Http1ClientDials, WaitingEndsWhenNothingIsEstablished) {
  limits.connect_timeout = milliseconds(50);
  start(3);
  ASSERT_TRUE(wait([&] { return answers[2].has_value(); }));
  EXPECT_EQ(answers[2]->error().code, ErrorCode::EngineConnectTimeout);
  EXPECT_EQ(dialer.events.size(), 2U);
}

}  // namespace
}  // namespace fairlead::net::http
