#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "net/body_budget.hpp"
#include "net/event.hpp"
#include "net/handlers.hpp"
#include "net/http2_testing.hpp"
#include "net/http_server.hpp"

namespace fairlead::net::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::big_endian;
using testing::data;
using testing::Fields;
using testing::frame;
using testing::headers;
using testing::RawPeer;
using testing::run_until;
using testing::with;

Fields get(std::string path) {
  return {{":method", "GET"},
          {":scheme", "http"},
          {":path", std::move(path)},
          {":authority", "host:80"}};
}

Fields post(std::string path) {
  return {{":method", "POST"},
          {":scheme", "http"},
          {":path", std::move(path)},
          {":authority", "host:80"}};
}

class Http2Server : public ::testing::Test {
 protected:
  void open(Handler handler, std::size_t max_read = 0, std::size_t capacity = 1024 * 1024) {
    run([&] {
      server = std::make_unique<Server>(std::move(handler), limits,
                                        [](int status, std::string_view text) {
                                          return std::to_string(status) + " " + std::string(text);
                                        });
      connect(max_read, capacity);
    });
  }
  void connect(std::size_t max_read = 0, std::size_t capacity = 1024 * 1024) {
    auto [near, far] = make_pipe(max_read, capacity);
    server->accept(std::move(far));
    peer = std::make_unique<RawPeer>(std::move(near), true);
  }
  void TearDown() override {
    run([&] {
      peer.reset();
      server.reset();
    });
  }
  void run(const std::function<void()>& job) {
    bool ran = false;
    reactor.post([&] {
      job();
      ran = true;
    });
    EXPECT_TRUE(run_until(reactor, [&] { return ran; }));
  }
  bool until(const std::function<bool()>& done) { return run_until(reactor, done); }
  void send(std::string_view bytes) {
    run([&] { peer->send(bytes); });
  }
  std::string status(std::uint32_t stream) const {
    const auto* head = peer->first(testing::kHeaders, stream);
    return head ? head->field(":status") : "none";
  }

  Reactor reactor;
  ServerLimits limits;
  std::unique_ptr<Server> server;
  std::unique_ptr<RawPeer> peer;
};

struct Gone {
  explicit Gone(int& c) : count(c) {}
  Gone(const Gone&) = delete;
  Gone& operator=(const Gone&) = delete;
  ~Gone() { ++count; }
  int& count;
};

class Http2ServerCut : public Http2Server, public ::testing::WithParamInterface<std::size_t> {};

TEST_P(Http2ServerCut, RequestsReadTheSameHoweverTheyAreCut) {
  Request seen;
  std::size_t spare = 0;
  open(with(
           [](Exchange& exchange, Request& seen, std::size_t& spare) -> Task<> {
             seen = exchange.request();
             spare = exchange.request().body.capacity() - exchange.request().body.size();
             exchange.start(200, {{"content-type", "text/plain"}, {"connection", "close"}});
             exchange.out() += "one ";
             exchange.commit();
             co_await Sleep(milliseconds(1));
             exchange.out() += "two";
             exchange.finish();
           },
           seen, spare),
       GetParam());
  Fields fields = post("/v1/a%20b?x=%20y");
  fields.insert(fields.end(), {{"cookie", "a=1"}, {"cookie", "b=2"}, {"x-empty", ""}});
  send(headers(1, fields, false) + data(1, "hello ") + data(1, "body", true));
  ASSERT_TRUE(until([&] { return peer->ended(1); }));
  EXPECT_EQ(seen.method, "POST");
  EXPECT_EQ(seen.path, "/v1/a b");
  EXPECT_EQ(seen.query, "x=%20y");
  EXPECT_EQ(seen.body, "hello body");
  EXPECT_GE(spare, kBodyPadding);
  EXPECT_TRUE(seen.http2);
  EXPECT_EQ(seen.headers.find("host"), "host:80");
  EXPECT_EQ(seen.headers.find("cookie"), "a=1; b=2");
  EXPECT_EQ(seen.headers.find("x-empty"), "");
  EXPECT_FALSE(seen.headers.find(":path"));
  EXPECT_EQ(status(1), "200");
  EXPECT_EQ(peer->first(testing::kHeaders, 1)->field("content-type"), "text/plain");
  EXPECT_EQ(peer->first(testing::kHeaders, 1)->field("connection"), "");
  EXPECT_NE(peer->first(testing::kHeaders, 1)->field("date"), "");
  EXPECT_EQ(peer->body(1), "one two");
}

INSTANTIATE_TEST_SUITE_P(EveryCut, Http2ServerCut,
                         ::testing::Values(0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 17, 23, 24, 25, 100));

TEST_F(Http2Server, WholeResponsesCarryTheirLength) {
  open([](Exchange& exchange) -> Task<> {
    const std::string& path = exchange.request().path;
    exchange.respond(path == "/none" ? 204 : 200, {{"x-bad", "a\r\nb"}},
                     path == "/none" ? "" : "four");
    co_return;
  });
  Fields head = get("/");
  head[0].second = "HEAD";
  send(headers(1, get("/"), true) + headers(3, get("/none"), true) + headers(5, head, true));
  ASSERT_TRUE(until([&] { return peer->ended(1) && peer->ended(3) && peer->ended(5); }));
  EXPECT_EQ(peer->first(testing::kHeaders, 1)->field("content-length"), "4");
  EXPECT_EQ(peer->first(testing::kHeaders, 1)->field("x-bad"), "a  b");
  EXPECT_EQ(peer->body(1), "four");
  EXPECT_EQ(status(3), "204");
  EXPECT_EQ(peer->first(testing::kHeaders, 3)->field("content-length"), "");
  EXPECT_EQ(peer->first(testing::kHeaders, 5)->field("content-length"), "4");
  EXPECT_EQ(peer->body(5), "");
}

TEST_F(Http2Server, RefusesWhatIsTooLargeOrMalformed) {
  limits.header_bytes = 2000;
  limits.header_count = 20;
  limits.body_bytes = 100;
  open([](Exchange& exchange) -> Task<> {
    exchange.respond(200, {}, "");
    co_return;
  });
  Fields long_field = get("/");
  long_field.emplace_back("x", std::string(3000, 'v'));
  Fields many = get("/");
  for (int i = 0; i < 30; ++i) {
    many.emplace_back("x-" + std::to_string(i), "v");
  }
  Fields declared = post("/");
  declared.emplace_back("content-length", "101");
  send(headers(1, long_field, true));
  send(headers(3, many, true));
  send(headers(5, declared, false));
  send(headers(7, post("/"), false) + data(7, std::string(101, 'b')));
  send(headers(9, get("/%zz"), true));
  send(headers(11, post("/"), false) + data(11, std::string(100, 'b'), true));
  ASSERT_TRUE(until([&] { return peer->ended(11); }));
  EXPECT_EQ(status(1), "431");
  EXPECT_EQ(status(3), "431");
  EXPECT_EQ(status(5), "413");
  EXPECT_EQ(status(7), "413");
  EXPECT_EQ(status(9), "400");
  EXPECT_EQ(status(11), "200");
  EXPECT_EQ(peer->body(9), "400 malformed request target");
  // Uploads that are not wanted any more are stopped without blame.
  for (const std::uint32_t stream : {5u, 7u}) {
    ASSERT_TRUE(until([&] { return peer->first(testing::kRstStream, stream) != nullptr; }));
    EXPECT_EQ(peer->first(testing::kRstStream, stream)->number(), 0u);
    EXPECT_TRUE(peer->ended(stream));
  }
  EXPECT_EQ(server->counters().bad_requests.load(), 5u);
  EXPECT_EQ(server->counters().requests_total.load(), 1u);
}

TEST_F(Http2Server, AResetDestroysItsHandlerOnly) {
  int gone = 0;
  Event* other = nullptr;
  open(with(
      [](Exchange& exchange, int& gone, Event*& other) -> Task<> {
        const Gone guard(gone);
        Event event;
        if (exchange.request().path == "/other") {
          other = &event;
        }
        co_await event.wait();
        exchange.respond(200, {}, "ok");
      },
      gone, other));
  send(headers(1, get("/"), true) + headers(3, get("/other"), true));
  ASSERT_TRUE(until([&] { return server->in_flight() == 2; }));
  send(frame(testing::kRstStream, 0, 1, big_endian(8, 4)));
  ASSERT_TRUE(until([&] { return gone == 1; }));
  EXPECT_EQ(server->in_flight(), 1u);
  EXPECT_EQ(server->counters().clients_gone.load(), 1u);
  run([&] { other->set(); });
  ASSERT_TRUE(until([&] { return peer->ended(3); }));
  EXPECT_EQ(gone, 2);
  EXPECT_EQ(status(1), "none");
}

TEST_F(Http2Server, AClosedConnectionDestroysEveryHandler) {
  int gone = 0;
  open(with(
      [](Exchange&, int& gone) -> Task<> {
        const Gone guard(gone);
        Event never;
        co_await never.wait();
      },
      gone));
  for (std::uint32_t stream = 1; stream < 20; stream += 2) {
    send(headers(stream, get("/"), true));
  }
  ASSERT_TRUE(until([&] { return server->in_flight() == 10; }));
  run([&] { peer->close(); });
  ASSERT_TRUE(until([&] { return gone == 10; }));
  EXPECT_EQ(server->in_flight(), 0u);
  EXPECT_TRUE(until([&] { return server->connections() == 0; }));
}

TEST_F(Http2Server, HandlersThatFailAnswer500OrResetTheStream) {
  open([](Exchange& exchange) -> Task<> {
    if (exchange.request().path == "/throw") {
      throw std::runtime_error("on purpose");
    }
    if (exchange.request().path == "/half") {
      exchange.start(200, {});
      exchange.out() += "part";
      exchange.commit();
      co_await Sleep(milliseconds(1));
    }
  });
  send(headers(1, get("/nothing"), true) + headers(3, get("/throw"), true) +
       headers(5, get("/half"), true));
  ASSERT_TRUE(until(
      [&] { return peer->ended(1) && peer->ended(3) && peer->first(testing::kRstStream, 5); }));
  EXPECT_EQ(status(1), "500");
  EXPECT_EQ(status(3), "500");
  EXPECT_EQ(peer->first(testing::kRstStream, 5)->number(), 2u);
  EXPECT_EQ(server->in_flight(), 0u);
}

TEST_F(Http2Server, ATurnsOutputIsOneFramePerStream) {
  open([](Exchange& exchange) -> Task<> {
    exchange.start(200, {});
    for (int i = 0; i < 100; ++i) {
      exchange.out() += "piece;";
      exchange.commit();
    }
    co_await Sleep(milliseconds(1));
    exchange.finish();
  });
  send(headers(1, get("/"), true));
  ASSERT_TRUE(until([&] { return peer->ended(1); }));
  const auto frames = peer->all(testing::kData, 1);
  EXPECT_EQ(frames.front()->payload.size(), 600u);
  EXPECT_LE(frames.size(), 2u);
}

TEST_F(Http2Server, TellsTheWriterWhenASlowReaderHasCaughtUp) {
  limits.high_mark_bytes = 100 * 1000;
  limits.low_mark_bytes = 20 * 1000;
  int drains = 0;
  Exchange* exchange = nullptr;
  open(with(
      [](Exchange& e, Exchange*& exchange, int& drains) -> Task<> {
        exchange = &e;
        e.set_on_drain([&] { ++drains; });
        e.start(200, {});
        e.out().append(150 * 1000, 'x');
        e.commit();
        Event never;
        co_await never.wait();
      },
      exchange, drains));
  send(headers(1, get("/"), true));
  ASSERT_TRUE(until([&] { return peer->body(1).size() == 65535; }));
  EXPECT_EQ(exchange->unsent(), 150u * 1000 - 65535);
  EXPECT_EQ(drains, 0);
  const auto window = [](std::uint32_t stream, std::uint32_t bytes) {
    return frame(testing::kWindowUpdate, 0, stream, big_endian(bytes, 4));
  };
  send(window(0, 1 << 20) + window(1, 60000));
  ASSERT_TRUE(until([&] { return peer->body(1).size() == 125535; }));
  EXPECT_EQ(drains, 0);
  send(window(1, 10000));
  ASSERT_TRUE(until([&] { return drains == 1; }));
  run([&] {
    exchange->out().append(110 * 1000, 'y');
    exchange->commit();
  });
  send(window(1, 1 << 20));
  ASSERT_TRUE(until([&] { return drains == 2 && peer->body(1).size() == 260u * 1000; }));
  EXPECT_EQ(exchange->unsent(), 0u);
}

TEST_F(Http2Server, AReaderWithTooMuchUnsentIsCutAloneAndAtOnce) {
  limits.max_unsent_bytes = 500 * 1000;
  int gone = 0;
  open(with(
      [](Exchange& exchange, int& gone) -> Task<> {
        const Gone guard(gone);
        exchange.start(200, {});
        if (exchange.request().path == "/slow") {
          while (true) {
            exchange.out().append(100 * 1000, 'x');
            exchange.commit();
            co_await Sleep(milliseconds(1));
          }
        }
        exchange.finish();
      },
      gone));
  send(headers(1, get("/slow"), true));
  ASSERT_TRUE(until([&] { return gone == 1; }));
  ASSERT_TRUE(until([&] { return peer->first(testing::kRstStream, 1) != nullptr; }));
  EXPECT_EQ(peer->first(testing::kRstStream, 1)->number(), 8u);
  EXPECT_EQ(server->counters().slow_readers_cut.load(), 1u);
  send(frame(testing::kWindowUpdate, 0, 0, big_endian(1 << 20, 4)) +
       headers(3, get("/fast"), true));
  ASSERT_TRUE(until([&] { return peer->ended(3); }));
}

TEST_F(Http2Server, AReaderWithoutProgressIsCutAfterItsTime) {
  limits.slow_reader_timeout = milliseconds(60);
  int gone = 0;
  open(with(
      [](Exchange& exchange, int& gone) -> Task<> {
        const Gone guard(gone);
        exchange.start(200, {});
        exchange.out().append(100 * 1000, 'x');
        exchange.commit();
        Event never;
        co_await never.wait();
      },
      gone));
  send(headers(1, get("/"), true));
  ASSERT_TRUE(until([&] { return gone == 1; }));
  ASSERT_TRUE(until([&] { return peer->first(testing::kRstStream, 1) != nullptr; }));
  EXPECT_EQ(server->counters().slow_readers_cut.load(), 1u);
  EXPECT_EQ(server->connections(), 1u);
}

TEST_F(Http2Server, AConnectionThatTakesNothingIsClosed) {
  limits.slow_reader_timeout = milliseconds(60);
  int gone = 0;
  bool stuck = false;
  run([&] {
    server = std::make_unique<Server>(with(
                                          [](Exchange& exchange, int& gone, bool& stuck) -> Task<> {
                                            const Gone guard(gone);
                                            exchange.start(200, {});
                                            exchange.out().append(60 * 1000, 'x');
                                            exchange.commit();
                                            stuck = true;
                                            Event never;
                                            co_await never.wait();
                                          },
                                          gone, stuck),
                                      limits, [](int, std::string_view) { return std::string(); });
  });
  // A client that never reads, behind a small buffer.
  std::unique_ptr<Stream> near;
  run([&] {
    auto ends = make_pipe(0, 4096);
    near = std::move(ends.first);
    server->accept(std::move(ends.second));
    const std::string bytes = std::string(testing::kClientPreface) +
                              frame(testing::kSettings, 0, 0) + headers(1, get("/"), true);
    const iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
    EXPECT_EQ(near->write({&piece, 1}).bytes, bytes.size());
  });
  ASSERT_TRUE(until([&] { return stuck; }));
  ASSERT_TRUE(until([&] { return gone == 1 && server->connections() == 0; }));
  EXPECT_EQ(server->counters().slow_readers_cut.load(), 1u);
  run([&] { near.reset(); });
}

TEST_F(Http2Server, SlowRequestsTimeOut) {
  limits.body_timeout = milliseconds(60);
  limits.header_timeout = milliseconds(60);
  open([](Exchange& exchange) -> Task<> {
    exchange.respond(200, {}, "");
    co_return;
  });
  send(headers(1, post("/"), false) + data(1, "part"));
  ASSERT_TRUE(until([&] { return peer->ended(1); }));
  EXPECT_EQ(status(1), "408");
  // A header block without its end blocks the whole connection.
  send(frame(testing::kHeaders, testing::kEndStream, 3, testing::header_block(get("/"))));
  ASSERT_TRUE(until([&] { return peer->eof; }));
  EXPECT_EQ(server->connections(), 0u);
}

TEST_F(Http2Server, ADrippedBodyEndsHoweverSmallItsPauses) {
  limits.body_timeout = milliseconds(80);
  open([](Exchange& exchange) -> Task<> {
    exchange.respond(200, {}, "");
    co_return;
  });
  for (std::uint32_t stream = 1; stream <= 3; stream += 2) {
    const std::string drop = stream == 1 ? "a" : "";
    send(headers(stream, post("/"), false));
    Timer drip([&] {
      peer->send(data(stream, drop));
      drip.arm(milliseconds(10));
    });
    run([&] { drip.arm(milliseconds(10)); });
    EXPECT_TRUE(until([&] { return peer->ended(stream); }));
    drip.cancel();
    EXPECT_EQ(status(stream), "408");
  }
}

TEST_F(Http2Server, UnfinishedBodiesShareOneBudget) {
  limits.bodies = std::make_shared<BodyBudget>(100'000);
  open([](Exchange& exchange) -> Task<> {
    exchange.respond(200, {}, "");
    co_return;
  });
  const auto upload = [&](std::uint32_t stream, std::size_t bytes) {
    for (; bytes > 0; bytes -= 10'000) {
      send(data(stream, std::string(10'000, ' ')));
    }
  };
  send(headers(1, post("/"), false));
  upload(1, 50'000);
  ASSERT_TRUE(until([&] { return limits.bodies->used() == 50'000; }));
  send(headers(3, post("/"), false));
  upload(3, 60'000);
  ASSERT_TRUE(until([&] { return peer->ended(3); }));
  EXPECT_EQ(status(3), "503");
  EXPECT_EQ(peer->first(testing::kHeaders, 3)->field("retry-after"), "1");
  EXPECT_EQ(limits.bodies->used(), 50'000u);
  // A length that cannot fit is refused before its first byte.
  Fields fields = post("/");
  fields.emplace_back("content-length", "60000");
  send(headers(5, fields, false));
  ASSERT_TRUE(until([&] { return peer->ended(5); }));
  EXPECT_EQ(status(5), "503");
  EXPECT_EQ(server->counters().bodies_refused, 2u);
  send(headers(7, get("/"), true));
  ASSERT_TRUE(until([&] { return peer->ended(7); }));
  EXPECT_EQ(status(7), "200");
  send(data(1, "", true));
  ASSERT_TRUE(until([&] { return peer->ended(1); }));
  EXPECT_EQ(status(1), "200");
  EXPECT_EQ(limits.bodies->used(), 0u);
  // So it is when the client leaves inside a body.
  send(headers(9, post("/"), false));
  upload(9, 50'000);
  ASSERT_TRUE(until([&] { return limits.bodies->used() == 50'000; }));
  run([&] { peer->close(); });
  ASSERT_TRUE(until([&] { return server->connections() == 0; }));
  EXPECT_EQ(limits.bodies->used(), 0u);
}

TEST_F(Http2Server, IdleConnectionsAreTakenDownPolitely) {
  limits.idle_timeout = milliseconds(50);
  open([](Exchange& exchange) -> Task<> {
    exchange.respond(200, {}, "");
    co_return;
  });
  run([&] { peer->ack_pings = true; });
  send(headers(1, get("/"), true));
  ASSERT_TRUE(until([&] { return peer->eof; }));
  EXPECT_TRUE(peer->ended(1));
  const auto goaways = peer->all(testing::kGoaway);
  ASSERT_EQ(goaways.size(), 2u);
  EXPECT_EQ(goaways[0]->number(), 0x7fffffffu);
  EXPECT_EQ(goaways[1]->number(), 1u);
}

TEST_F(Http2Server, DrainFinishesRequestsInFlight) {
  Event* release = nullptr;
  open(with(
      [](Exchange& exchange, Event*& release) -> Task<> {
        Event go;
        release = &go;
        co_await go.wait();
        exchange.respond(200, {}, "done");
      },
      release));
  run([&] { peer->ack_pings = true; });
  send(headers(1, get("/"), true));
  ASSERT_TRUE(until([&] { return release != nullptr; }));
  run([&] { server->drain(); });
  ASSERT_TRUE(until([&] { return peer->all(testing::kGoaway).size() == 2; }));
  EXPECT_FALSE(peer->eof);
  run([&] { release->set(); });
  ASSERT_TRUE(until([&] { return peer->eof; }));
  EXPECT_EQ(peer->body(1), "done");
  run([&] { peer->close(); });
  ASSERT_TRUE(until([&] { return server->connections() == 0; }));
  // Late connections are answered all the same.
  release = nullptr;
  run([&] { connect(); });
  send(headers(1, get("/late"), true));
  ASSERT_TRUE(until([&] { return release != nullptr; }));
  run([&] { release->set(); });
  ASSERT_TRUE(until([&] { return peer->ended(1); }));
  EXPECT_EQ(peer->body(1), "done");
}

TEST_F(Http2Server, AnAnswerThatWaitsForItsReaderIsInFlight) {
  open([](Exchange& exchange) -> Task<> {
    exchange.respond(200, {}, std::string(200 * 1000, 'x'));
    co_return;
  });
  run([&] { peer->ack_pings = true; });
  send(headers(1, get("/"), true));
  ASSERT_TRUE(until([&] { return peer->body(1).size() == 65535; }));
  EXPECT_EQ(server->in_flight(), 1u);
  run([&] { server->drain(); });
  const auto window = [](std::uint32_t stream, std::uint32_t bytes) {
    return frame(testing::kWindowUpdate, 0, stream, big_endian(bytes, 4));
  };
  send(window(0, 1 << 20) + window(1, 100 * 1000));
  ASSERT_TRUE(until([&] { return peer->body(1).size() == 165535; }));
  EXPECT_EQ(server->in_flight(), 1u);
  send(window(1, 1 << 20));
  ASSERT_TRUE(until([&] { return peer->ended(1); }));
  EXPECT_EQ(peer->body(1).size(), 200u * 1000);
  EXPECT_EQ(server->in_flight(), 0u);
}

TEST_F(Http2Server, AConnectionThatItsClientDoesNotReadIsInFlight) {
  open(
      [](Exchange& exchange) -> Task<> {
        exchange.respond(200, {}, std::string(10 * 1000, 'x'));
        co_return;
      },
      0, 4000);
  run([&] { peer->pause(); });
  send(headers(1, get("/"), true));
  ASSERT_TRUE(until([&] { return server->in_flight() == 1; }));
  run([&] { server->drain(); });
  EXPECT_EQ(server->in_flight(), 1u);
  run([&] { peer->resume(); });
  ASSERT_TRUE(until([&] { return peer->ended(1); }));
  EXPECT_EQ(server->in_flight(), 0u);
}

TEST_F(Http2Server, WhatTheClientStillSendsMeetsNoClosedConnection) {
  open([](Exchange& exchange) -> Task<> {
    exchange.respond(200, {}, "done");
    co_return;
  });
  run([&] { peer->ack_pings = true; });
  run([&] { server->drain(); });
  ASSERT_TRUE(until([&] { return peer->eof; }));
  EXPECT_EQ(server->connections(), 1u);
  EXPECT_EQ(server->in_flight(), 0u);
  run([&] { server->drain(); });
  send(frame(testing::kWindowUpdate, 0, 0, big_endian(1000, 4)));
  EXPECT_EQ(server->connections(), 1u);
  run([&] { peer->close(); });
  ASSERT_TRUE(until([&] { return server->connections() == 0; }));
}

TEST_F(Http2Server, AnIdleConnectionDrainsThoughItsClientIsDeaf) {
  open([](Exchange& exchange) -> Task<> {
    exchange.respond(200, {}, "");
    co_return;
  });
  ASSERT_TRUE(until([&] { return peer->first(testing::kSettings) != nullptr; }));
  run([&] { server->drain(); });
  ASSERT_TRUE(until([&] { return server->connections() == 0; }));
}

TEST_F(Http2Server, AFloodOfResetsEndsTheConnection) {
  int gone = 0;
  int begun = 0;
  open(with(
      [](Exchange&, int& gone, int& begun) -> Task<> {
        const Gone guard(gone);
        ++begun;
        Event never;
        co_await never.wait();
      },
      gone, begun));
  for (std::uint32_t stream = 1; stream < 6000 && !peer->eof; stream += 2) {
    send(headers(stream, get("/"), true) + frame(testing::kRstStream, 0, stream, big_endian(8, 4)));
  }
  ASSERT_TRUE(until([&] { return peer->eof; }));
  EXPECT_EQ(begun, gone);
  EXPECT_LT(begun, 2000);
  EXPECT_EQ(server->in_flight(), 0u);
  const auto* goaway = peer->first(testing::kGoaway);
  ASSERT_NE(goaway, nullptr);
}

TEST_F(Http2Server, StreamsAboveTheLimitAreRefused) {
  limits.max_streams = 2;
  open([](Exchange&) -> Task<> {
    Event never;
    co_await never.wait();
  });
  ASSERT_TRUE(until([&] { return peer->first(testing::kSettings) != nullptr; }));
  const auto* settings = peer->first(testing::kSettings);
  bool announced = false;
  for (std::size_t at = 0; at + 6 <= settings->payload.size(); at += 6) {
    announced = announced || (settings->payload.substr(at, 2) == big_endian(3, 2) &&
                              settings->number(at + 2) == 2);
  }
  EXPECT_TRUE(announced);
  for (std::uint32_t stream = 1; stream <= 5; stream += 2) {
    send(headers(stream, get("/"), true));
  }
  ASSERT_TRUE(until([&] { return peer->eof || peer->first(testing::kRstStream, 5); }));
  EXPECT_LE(server->in_flight(), 2u);
}

TEST_F(Http2Server, WindowsOfLargeUploadsAreReturned) {
  std::size_t received = 0;
  open(with(
           [](Exchange& exchange, std::size_t& received) -> Task<> {
             received = exchange.request().body.size();
             exchange.respond(200, {}, "");
             co_return;
           },
           received),
       0, 4 * 1024 * 1024);
  send(headers(1, post("/"), false));
  constexpr std::size_t kChunk = 16000;
  for (int i = 0; i < 200; ++i) {
    send(data(1, std::string(kChunk, 'b'), i == 199));
  }
  ASSERT_TRUE(until([&] { return peer->ended(1); }));
  EXPECT_EQ(received, 200 * kChunk);
  std::size_t returned = 0;
  for (const auto* update : peer->all(testing::kWindowUpdate, 1)) {
    returned += update->number();
  }
  EXPECT_GE(returned, 1024u * 1024);
}

TEST_F(Http2Server, InterimResponseForAClientThatExpectsIt) {
  open([](Exchange& exchange) -> Task<> {
    exchange.respond(200, {}, exchange.request().body);
    co_return;
  });
  Fields fields = post("/");
  fields.insert(fields.end(), {{"expect", "100-continue"}, {"content-length", "2"}});
  send(headers(1, fields, false));
  ASSERT_TRUE(until([&] { return status(1) == "100"; }));
  send(data(1, "ok", true));
  ASSERT_TRUE(until([&] { return peer->ended(1); }));
  EXPECT_EQ(peer->all(testing::kHeaders, 1).back()->field(":status"), "200");
  EXPECT_EQ(peer->body(1), "ok");
}

}  // namespace
}  // namespace fairlead::net::http
