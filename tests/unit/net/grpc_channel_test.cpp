#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "net/event.hpp"
#include "net/grpc_testing.hpp"
#include "net/handlers.hpp"
#include "net/http2_testing.hpp"

namespace fairlead::net::grpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::big_endian;
using testing::data;
using testing::Fields;
using testing::frame;
using testing::grpc_message;
using testing::GrpcPair;
using testing::headers;
using testing::PipeDialer;
using testing::RawPeer;
using testing::Recorder;
using testing::run_until;
using testing::with;

const Fields kAnswer = {{":status", "200"}, {"content-type", "application/grpc+proto"}};

// A channel whose servers are scripted by the test.
class ScriptedServer : public ::testing::Test {
 protected:
  void open(ChannelOptions options = {}, bool send_settings = true, std::size_t max_read = 0) {
    run([&] {
      dialer = std::make_unique<PipeDialer>(
          [this, send_settings](std::unique_ptr<Stream> stream) {
            peers.push_back(std::make_unique<RawPeer>(std::move(stream), false));
            if (send_settings) {
              peers.back()->send(settings);
            }
          },
          max_read);
      channel = std::make_unique<Channel>(
          *dialer, "engine:50051", std::vector{*Address::parse("127.0.0.1", 50051)}, options);
    });
  }
  void TearDown() override {
    run([&] {
      calls.clear();
      channel.reset();
      peers.clear();
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
  void start(Recorder& recorder, std::string_view request = "request",
             std::optional<TimePoint> deadline = std::nullopt) {
    run([&] {
      calls.push_back(channel->start("/e.E/Generate", {}, request, recorder, deadline));
      EXPECT_EQ(recorder.ends, 0);
    });
  }
  // Starts a call and waits until the whole request has reached the scripted server.
  void start_and_see(Recorder& recorder, std::uint32_t stream) {
    start(recorder);
    EXPECT_TRUE(until([&] { return !peers.empty() && peers.back()->ended(stream); }));
  }

  Reactor reactor;
  std::string settings = frame(testing::kSettings, 0, 0);
  std::vector<std::unique_ptr<RawPeer>> peers;
  std::unique_ptr<PipeDialer> dialer;
  std::unique_ptr<Channel> channel;
  std::vector<std::unique_ptr<Call>> calls;
};

TEST_F(ScriptedServer, SendsWhatTheProtocolAsksFor) {
  open();
  Recorder recorder;
  run([&] {
    calls.push_back(channel->start("/e.E/Generate", {{"x-request-id", "42"}}, "hi", recorder,
                                   reactor.now() + seconds(10)));
  });
  ASSERT_TRUE(until([&] { return !peers.empty() && peers[0]->ended(1); }));
  const auto* head = peers[0]->first(testing::kHeaders, 1);
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->field(":method"), "POST");
  EXPECT_EQ(head->field(":scheme"), "http");
  EXPECT_EQ(head->field(":path"), "/e.E/Generate");
  EXPECT_EQ(head->field(":authority"), "engine:50051");
  EXPECT_EQ(head->field("te"), "trailers");
  EXPECT_EQ(head->field("content-type"), "application/grpc");
  EXPECT_EQ(head->field("x-request-id"), "42");
  EXPECT_EQ(head->field("grpc-timeout").back(), 'm');
  EXPECT_EQ(peers[0]->body(1), grpc_message("hi"));
}

TEST_F(ScriptedServer, AnswersOfEveryShapeEndInTheRightStatus) {
  struct Case {
    std::string name;
    std::function<std::string(std::uint32_t)> answer;
    StatusCode code;
    Status::Origin origin;
    std::size_t messages;
  };
  using enum StatusCode;
  using Origin = Status::Origin;
  const auto rst = [](std::uint32_t stream, std::uint32_t code) {
    return frame(testing::kRstStream, 0, stream, big_endian(code, 4));
  };
  const Fields ok = {{"grpc-status", "0"}};
  const std::vector<Case> cases = {
      {"ok",
       [&](auto s) {
         return headers(s, kAnswer, false) + data(s, grpc_message("m")) + headers(s, ok, true);
       },
       Ok, Origin::Server, 1},
      {"several per frame",
       [&](auto s) {
         return headers(s, kAnswer, false) +
                data(s, grpc_message("a") + grpc_message("") + grpc_message("ccc")) +
                headers(s, ok, true);
       },
       Ok, Origin::Server, 3},
      {"early hints",
       [&](auto s) {
         return headers(s, {{":status", "103"}}, false) + headers(s, kAnswer, false) +
                headers(s, ok, true);
       },
       Ok, Origin::Server, 0},
      {"trailers only",
       [](auto s) {
         return headers(s,
                        {{":status", "200"},
                         {"content-type", "application/grpc"},
                         {"grpc-status", "5"},
                         {"grpc-message", "no%20such"}},
                        true);
       },
       NotFound, Origin::Server, 0},
      {"an unknown code",
       [](auto s) {
         return headers(s, kAnswer, false) + headers(s, {{"grpc-status", "77"}}, true);
       },
       Unknown, Origin::Server, 0},
      {"no status",
       [](auto s) { return headers(s, kAnswer, false) + data(s, grpc_message("m"), true); },
       Unknown, Origin::Client, 1},
      {"a status in the head only",
       [](auto s) {
         return headers(s,
                        {{":status", "200"},
                         {"content-type", "application/grpc"},
                         {"grpc-status", "0"}},
                        false) +
                data(s, "", true);
       },
       Unknown, Origin::Client, 0},
      {"cut message",
       [&](auto s) {
         return headers(s, kAnswer, false) + data(s, grpc_message("whole").substr(0, 7)) +
                headers(s, ok, true);
       },
       Internal, Origin::Client, 0},
      {"compressed",
       [&](auto s) { return headers(s, kAnswer, false) + data(s, std::string("\1\0\0\0\1x", 6)); },
       Internal, Origin::Client, 0},
      {"huge length",
       [&](auto s) {
         return headers(s, kAnswer, false) + data(s, std::string("\0\xff\xff\xff\xff", 5));
       },
       ResourceExhausted, Origin::Client, 0},
      {"http 503",
       [](auto s) {
         return headers(s, {{":status", "503"}, {"content-type", "text/html"}}, false) +
                data(s, "<html>", true);
       },
       Unavailable, Origin::Server, 0},
      {"http 404 without a body", [](auto s) { return headers(s, {{":status", "404"}}, true); },
       Unimplemented, Origin::Server, 0},
      {"http 401", [](auto s) { return headers(s, {{":status", "401"}}, true); }, Unauthenticated,
       Origin::Server, 0},
      {"other content",
       [](auto s) {
         return headers(s, {{":status", "200"}, {"content-type", "text/html"}}, false) +
                data(s, "<html>", true);
       },
       Unknown, Origin::Client, 0},
      {"refused", [&](auto s) { return rst(s, 7); }, Unavailable, Origin::Connect, 0},
      {"cancelled", [&](auto s) { return headers(s, kAnswer, false) + rst(s, 8); }, Cancelled,
       Origin::Connection, 0},
      {"calm", [&](auto s) { return rst(s, 11); }, ResourceExhausted, Origin::Connection, 0},
      {"insecure", [&](auto s) { return rst(s, 12); }, PermissionDenied, Origin::Connection, 0},
      {"internal", [&](auto s) { return rst(s, 2); }, Internal, Origin::Connection, 0},
      {"too many fields",
       [&](auto s) {
         std::string block = testing::header_block(kAnswer);
         for (int i = 0; i < 300; ++i) {
           block += testing::header_block({{"x-" + std::to_string(i), "v"}});
         }
         return frame(testing::kHeaders, testing::kEndHeaders, s, block);
       },
       ResourceExhausted, Origin::Client, 0},
  };
  open();
  std::uint32_t stream = 1;
  for (const Case& scenario : cases) {
    SCOPED_TRACE(scenario.name);
    Recorder recorder;
    start_and_see(recorder, stream);
    run([&] { peers.back()->send(scenario.answer(stream)); });
    ASSERT_TRUE(until([&] { return recorder.ends > 0; }));
    EXPECT_EQ(recorder.status.code, scenario.code) << recorder.status.message;
    EXPECT_EQ(recorder.status.origin, scenario.origin);
    EXPECT_EQ(recorder.count, scenario.messages);
    stream += 2;
  }
  EXPECT_EQ(peers.size(), 1u);
}

TEST_F(ScriptedServer, MessagesCutAnywhereArriveWhole) {
  open();
  std::string bytes;
  for (int i = 0; i < 12; ++i) {
    bytes += grpc_message(std::string(static_cast<std::size_t>(i * i), static_cast<char>('a' + i)));
  }
  std::uint32_t stream = 1;
  for (std::size_t step = 1; step < 40; ++step, stream += 2) {
    Recorder recorder;
    start_and_see(recorder, stream);
    std::string answer = headers(stream, kAnswer, false);
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      answer += data(stream, bytes.substr(at, step));
    }
    run([&] { peers[0]->send(answer + headers(stream, {{"grpc-status", "0"}}, true)); });
    ASSERT_TRUE(until([&] { return recorder.ends > 0; }));
    EXPECT_TRUE(recorder.status.ok()) << recorder.status.message;
    ASSERT_EQ(recorder.messages.size(), 12u);
    for (std::size_t i = 0; i < 12; ++i) {
      EXPECT_EQ(recorder.messages[i], std::string(i * i, static_cast<char>('a' + i)));
    }
  }
}

TEST_F(ScriptedServer, GoawaySparesStreamsBelowItsLastId) {
  open();
  Recorder first;
  Recorder second;
  start_and_see(first, 1);
  start_and_see(second, 3);
  run([&] { peers[0]->send(frame(testing::kGoaway, 0, 0, big_endian(1, 4) + big_endian(0, 4))); });
  ASSERT_TRUE(until([&] { return second.ends == 1; }));
  EXPECT_EQ(second.status.code, StatusCode::Unavailable);
  EXPECT_EQ(second.status.origin, Status::Origin::Connect);
  EXPECT_EQ(first.ends, 0);
  Recorder third;
  start(third);
  ASSERT_TRUE(until([&] { return peers.size() == 2 && peers[1]->ended(1); }));
  run([&] {
    peers[0]->send(headers(1, kAnswer, false) + data(1, grpc_message("late")) +
                   headers(1, {{"grpc-status", "0"}}, true));
  });
  ASSERT_TRUE(until([&] { return first.ends == 1; }));
  EXPECT_TRUE(first.status.ok());
  EXPECT_EQ(first.messages, std::vector<std::string>{"late"});
  EXPECT_TRUE(until([&] { return peers[0]->eof; }));  // closed once its last stream has ended
  EXPECT_EQ(channel->connections(), 1u);
}

TEST_F(ScriptedServer, AConnectionThatIsGoingAwayTakesNobodysPlace) {
  ChannelOptions options;
  options.max_connections = 1;
  options.min_backoff = options.max_backoff = seconds(60);
  open(options);
  Recorder first;
  start_and_see(first, 1);
  const auto go_away = [&] {
    peers.back()->send(frame(testing::kGoaway, 0, 0, big_endian(1, 4) + big_endian(0, 4)));
  };
  run(go_away);
  // The GOAWAY was read once a PING behind it is answered.
  run([&] { peers[0]->send(frame(testing::kPing, 0, 0, "12345678")); });
  ASSERT_TRUE(until([&] { return peers[0]->first(testing::kPing) != nullptr; }));
  Recorder second;
  start(second);
  ASSERT_TRUE(until([&] { return peers.size() == 2 && peers[1]->ended(1); }));
  EXPECT_EQ(channel->connections(), 2u);
  run(go_away);
  run([&] { peers[1]->send(frame(testing::kPing, 0, 0, "12345678")); });
  ASSERT_TRUE(until([&] { return peers[1]->first(testing::kPing) != nullptr; }));
  // Nobody to go on with: calls fail fast though two connections are still open.
  dialer->refuse = true;
  Recorder third;
  Recorder fourth;
  start(third);
  ASSERT_TRUE(until([&] { return third.ends == 1; }));
  start(fourth);
  ASSERT_TRUE(until([&] { return fourth.ends == 1; }));
  EXPECT_EQ(fourth.status.origin, Status::Origin::Connect);
  EXPECT_EQ(first.ends + second.ends, 0);
}

TEST_F(ScriptedServer, ABrokenConnectionTellsWhetherTheRequestHadLeft) {
  open();
  Recorder seen;
  start_and_see(seen, 1);
  Recorder unseen;
  run([&] {
    peers[0]->close();
    calls.push_back(channel->start("/e.E/Generate", {}, "x", unseen));
  });
  ASSERT_TRUE(until([&] { return seen.ends == 1 && unseen.ends == 1; }));
  EXPECT_EQ(seen.status.code, StatusCode::Unavailable);
  EXPECT_EQ(seen.status.origin, Status::Origin::Connection);
  EXPECT_EQ(unseen.status.code, StatusCode::Unavailable);
  EXPECT_EQ(unseen.status.origin, Status::Origin::Connect);
  Recorder again;
  start(again);
  ASSERT_TRUE(until([&] { return peers.size() == 2 && peers[1]->ended(1); }));
  EXPECT_EQ(again.ends, 0);
}

// A connection of one finished call that is then idle for the time that makes it quiet.
class QuietConnection : public ScriptedServer {
 protected:
  void be_quiet() {
    ChannelOptions options;
    options.quiet_after = milliseconds(20);
    options.quiet_ping_timeout = milliseconds(30);
    open(options);
    Recorder first;
    start_and_see(first, 1);
    answer(0, 1);
    ASSERT_TRUE(until([&] { return first.ends == 1; }));
    const TimePoint quiet_at = Clock::now() + milliseconds(25);
    ASSERT_TRUE(until([&] { return Clock::now() >= quiet_at; }));
  }
  void answer(std::size_t peer, std::uint32_t stream) {
    run([&] {
      peers[peer]->send(headers(stream, kAnswer, false) + data(stream, grpc_message("m")) +
                        headers(stream, {{"grpc-status", "0"}}, true));
    });
  }
};

TEST_F(QuietConnection, ACallThatMeetsItDeadIsBegunOnAnother) {
  be_quiet();
  Recorder recorder;
  start(recorder, "again");
  ASSERT_TRUE(until([&] { return peers[0]->ended(3); }));
  run([&] { peers[0]->close(); });
  ASSERT_TRUE(until([&] { return peers.size() == 2 && peers[1]->ended(1); }));
  EXPECT_EQ(peers[1]->body(1), grpc_message("again"));
  EXPECT_EQ(peers[1]->first(testing::kHeaders, 1)->field(":path"), "/e.E/Generate");
  answer(1, 1);
  ASSERT_TRUE(until([&] { return recorder.ends == 1; }));
  EXPECT_TRUE(recorder.status.ok());
  EXPECT_EQ(recorder.messages, std::vector<std::string>{"m"});
}

TEST_F(QuietConnection, ASilentOneIsFoundByAPingThatTheCallBrings) {
  be_quiet();
  Recorder recorder;
  start(recorder);
  ASSERT_TRUE(until([&] { return peers.size() == 2 && peers[1]->ended(1); }));
  EXPECT_EQ(peers[0]->all(testing::kPing).size(), 1U);
  answer(1, 1);
  ASSERT_TRUE(until([&] { return recorder.ends == 1; }));
  EXPECT_TRUE(recorder.status.ok());
}

TEST_F(QuietConnection, ACallIsBegunOnceOnAFreshOne) {
  be_quiet();
  Recorder recorder;
  start(recorder);
  ASSERT_TRUE(until([&] { return peers.size() == 2 && peers[1]->ended(1); }));
  run([&] { peers[1]->close(); });
  ASSERT_TRUE(until([&] { return recorder.ends == 1; }));
  EXPECT_EQ(recorder.status.origin, Status::Origin::Connection);
  EXPECT_EQ(dialer->attempts, 2);
}

TEST_F(QuietConnection, NothingIsSentTwiceOnceThePeerHasShownLife) {
  be_quiet();
  Recorder recorder;
  start(recorder);
  ASSERT_TRUE(until([&] { return peers[0]->ended(3); }));
  run([&] {
    peers[0]->ack_pings = true;
    peers[0]->send(frame(testing::kPing, 0, 0, std::string(8, 'x')));
  });
  ASSERT_TRUE(until([&] { return !peers[0]->all(testing::kPing).empty(); }));
  run([&] { peers[0]->close(); });
  ASSERT_TRUE(until([&] { return recorder.ends == 1; }));
  EXPECT_EQ(recorder.status.origin, Status::Origin::Connection);
  EXPECT_EQ(peers.size(), 1U);
}

TEST_F(QuietConnection, GivenUpWhileItWaitsForAnotherItSaysNothing) {
  be_quiet();
  Recorder recorder;
  start(recorder);
  ASSERT_TRUE(until([&] { return peers[0]->ended(3); }));
  run([&] {
    peers[0]->close();
    calls.pop_back();
  });
  Recorder next;
  start(next);
  ASSERT_TRUE(until([&] { return peers.size() == 2 && peers[1]->ended(1); }));
  answer(1, 1);
  ASSERT_TRUE(until([&] { return next.ends == 1; }));
  EXPECT_EQ(recorder.ends, 0);
  EXPECT_EQ(channel->calls(), 0U);
}

TEST_F(ScriptedServer, WhatArrivedBeforeTheBreakIsDelivered) {
  open();
  Recorder recorder;
  start_and_see(recorder, 1);
  run([&] {
    peers[0]->send(headers(1, kAnswer, false) + data(1, grpc_message("one") + grpc_message("two")));
    peers[0]->close();
  });
  ASSERT_TRUE(until([&] { return recorder.ends == 1; }));
  EXPECT_EQ(recorder.messages, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(recorder.status.origin, Status::Origin::Connection);
}

TEST_F(ScriptedServer, APeerThatDoesNotAnswerPingsIsDead) {
  ChannelOptions options;
  options.ping_interval = milliseconds(30);
  options.ping_timeout = milliseconds(30);
  open(options);
  Recorder recorder;
  start_and_see(recorder, 1);
  ASSERT_TRUE(until([&] { return recorder.ends == 1; }));
  EXPECT_EQ(recorder.status.code, StatusCode::Unavailable);
  EXPECT_EQ(recorder.status.origin, Status::Origin::Connection);
  EXPECT_NE(recorder.status.message.find("ping"), std::string::npos);
  EXPECT_EQ(channel->connections(), 0u);
}

TEST_F(ScriptedServer, ASilentPeerThatAnswersPingsStaysAndIsNotPestered) {
  ChannelOptions options;
  options.ping_interval = milliseconds(20);
  options.ping_timeout = milliseconds(500);
  open(options);
  Recorder recorder;
  start(recorder);
  ASSERT_TRUE(until([&] { return !peers.empty(); }));
  peers[0]->ack_pings = true;
  ASSERT_TRUE(until([&] { return peers[0]->all(testing::kPing).size() >= 3; }));
  // A fourth ping without data would be taken for abuse by servers of grpc-core.
  Recorder clock;
  start(clock, "x", Clock::now() + milliseconds(200));
  ASSERT_TRUE(until([&] { return clock.ends == 1; }));
  EXPECT_EQ(peers[0]->all(testing::kPing).size(), 3u);
  EXPECT_EQ(recorder.ends, 0);
  // Data renews its patience.
  run([&] { peers[0]->send(headers(1, kAnswer, false) + data(1, grpc_message("m"))); });
  Recorder more;
  start(more, "x", Clock::now() + milliseconds(700));
  ASSERT_TRUE(until([&] { return peers[0]->all(testing::kPing).size() > 3 || more.ends == 1; }));
  EXPECT_EQ(recorder.ends, 0);
}

TEST_F(ScriptedServer, AServerWithoutSettingsIsNoConnection) {
  ChannelOptions options;
  options.connect_timeout = milliseconds(50);
  open(options, false);
  Recorder recorder;
  start(recorder);
  ASSERT_TRUE(until([&] { return recorder.ends == 1; }));
  EXPECT_EQ(recorder.status.code, StatusCode::Unavailable);
  EXPECT_EQ(recorder.status.origin, Status::Origin::Connect);
  EXPECT_EQ(channel->connections(), 0u);
  EXPECT_TRUE(until([&] { return peers[0]->eof; }));
}

TEST_F(ScriptedServer, AServerThatResetsAtOnceBacksTheChannelOff) {
  open({}, false);
  Recorder recorder;
  start(recorder);
  ASSERT_TRUE(until([&] { return peers.size() == 1; }));
  run([&] { peers[0]->close(); });
  ASSERT_TRUE(until([&] { return recorder.ends == 1; }));
  EXPECT_EQ(recorder.status.origin, Status::Origin::Connect);
  Recorder during;
  start(during);
  ASSERT_TRUE(until([&] { return during.ends == 1; }));
  EXPECT_EQ(during.status.origin, Status::Origin::Connect);
  EXPECT_EQ(dialer->attempts, 1);
}

TEST_F(ScriptedServer, GarbageInsteadOfHttp2EndsTheConnection) {
  settings = "SSH-2.0-OpenSSH_9.2\r\n";
  open();
  Recorder recorder;
  start(recorder);
  ASSERT_TRUE(until([&] { return recorder.ends == 1; }));
  EXPECT_EQ(recorder.status.code, StatusCode::Unavailable);
  EXPECT_EQ(recorder.status.origin, Status::Origin::Connect);
}

TEST_F(ScriptedServer, CallsThatCannotBeginWaitUpToABound) {
  settings = frame(testing::kSettings, 0, 0, big_endian(3, 2) + big_endian(1, 4));  // one stream
  ChannelOptions options;
  options.max_connections = 1;
  options.max_waiting = 2;
  open(options);
  std::array<Recorder, 4> recorders;
  start_and_see(recorders[0], 1);
  start(recorders[1]);
  start(recorders[2]);
  start(recorders[3]);
  ASSERT_TRUE(until([&] { return recorders[3].ends == 1; }));
  EXPECT_EQ(recorders[3].status.code, StatusCode::ResourceExhausted);
  EXPECT_EQ(recorders[3].status.origin, Status::Origin::Connect);
  EXPECT_EQ(channel->calls(), 3u);
  run([&] { peers[0]->send(headers(1, {{":status", "200"}, {"grpc-status", "0"}}, true)); });
  ASSERT_TRUE(until([&] { return recorders[0].ends == 1 && peers[0]->ended(3); }));
  run([&] { calls.erase(calls.begin() + 1); });  // cancelled: its place goes to the last one
  ASSERT_TRUE(until([&] { return peers[0]->ended(5); }));
  EXPECT_EQ(peers[0]->first(testing::kRstStream, 3)->number(), 8u);
  EXPECT_EQ(recorders[1].ends, 0);
  EXPECT_EQ(peers.size(), 1u);
}

TEST_F(ScriptedServer, APausedCallKeepsItsWindowAndNothingElse) {
  ChannelOptions options;
  options.stream_window_bytes = 1000;
  open(options);
  Recorder recorder;
  start_and_see(recorder, 1);
  run([&] {
    calls[0]->pause();
    peers[0]->send(headers(1, kAnswer, false) + data(1, grpc_message(std::string(995, 'x'))) +
                   frame(testing::kPing, 0, 0, "12345678"));
  });
  ASSERT_TRUE(until([&] { return peers[0]->first(testing::kPing) != nullptr; }));
  EXPECT_EQ(peers[0]->first(testing::kWindowUpdate, 1), nullptr);
  run([&] { calls[0]->resume(); });
  ASSERT_TRUE(until([&] {
    return recorder.count == 1 && peers[0]->first(testing::kWindowUpdate, 1) != nullptr;
  }));
  EXPECT_EQ(peers[0]->first(testing::kWindowUpdate, 1)->number(), 1000u);
}

TEST(GrpcChannel, StreamLimitOpensAnotherConnectionUpToTheBound) {
  ChannelOptions options;
  options.max_connections = 3;
  http::ServerLimits limits;
  limits.max_streams = 4;
  GrpcPair pair(0, options, limits);
  std::vector<Event*> waiting;
  pair.service.add("/t.T/Wait", with(
                                    [](ServerCall& call, std::vector<Event*>& waiting) -> Task<> {
                                      Event go;
                                      waiting.push_back(&go);
                                      co_await go.wait();
                                      call.write("done");
                                    },
                                    waiting));
  std::vector<std::unique_ptr<Recorder>> recorders;
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 15; ++i) {
    recorders.push_back(std::make_unique<Recorder>());
    calls.push_back(pair.start("/t.T/Wait", "x", *recorders.back()));
  }
  ASSERT_TRUE(pair.until([&] { return waiting.size() == 12; }));
  EXPECT_EQ(pair.channel->connections(), 3u);
  EXPECT_EQ(pair.server->in_flight(), 12u);
  pair.run([&] {
    for (std::size_t i = 0; i < 5; ++i) {
      waiting[i]->set();
    }
  });
  ASSERT_TRUE(pair.until([&] { return waiting.size() == 15; }));
  pair.run([&] {
    for (std::size_t i = 5; i < 15; ++i) {
      waiting[i]->set();
    }
  });
  ASSERT_TRUE(pair.until(
      [&] { return std::ranges::all_of(recorders, [](const auto& r) { return r->ends == 1; }); }));
  for (const auto& recorder : recorders) {
    EXPECT_TRUE(recorder->status.ok()) << recorder->status.message;
  }
  EXPECT_EQ(pair.dialer->attempts, 3);
  pair.run([&] { calls.clear(); });
}

TEST(GrpcChannel, RefusedConnectionsFailFastThenRecover) {
  ChannelOptions options;
  options.min_backoff = milliseconds(30);
  options.max_backoff = milliseconds(60);
  GrpcPair pair(0, options);
  pair.service.add("/t.T/Echo", [](ServerCall& call) -> Task<> {
    call.write(call.request());
    co_return;
  });
  pair.dialer->refuse = true;
  Recorder first;
  auto a = pair.start("/t.T/Echo", "x", first);
  ASSERT_TRUE(pair.until([&] { return first.ends == 1; }));
  EXPECT_EQ(first.status.code, StatusCode::Unavailable);
  EXPECT_EQ(first.status.origin, Status::Origin::Connect);
  EXPECT_EQ(first.status.message, "refused by the test");
  Recorder second;
  auto b = pair.start("/t.T/Echo", "x", second);
  ASSERT_TRUE(pair.until([&] { return second.ends == 1; }));
  EXPECT_EQ(second.status.origin, Status::Origin::Connect);
  EXPECT_EQ(pair.dialer->attempts, 1);
  pair.dialer->refuse = false;
  bool recovered = false;
  const TimePoint give_up = Clock::now() + seconds(5);
  std::vector<std::unique_ptr<Recorder>> recorders;
  std::vector<std::unique_ptr<Call>> calls;
  while (!recovered && Clock::now() < give_up) {
    recorders.push_back(std::make_unique<Recorder>());
    calls.push_back(pair.start("/t.T/Echo", "x", *recorders.back()));
    ASSERT_TRUE(pair.until([&] { return recorders.back()->ends == 1; }));
    recovered = recorders.back()->status.ok();
  }
  EXPECT_TRUE(recovered);
  EXPECT_EQ(pair.dialer->attempts, 2);
  pair.run([&] { a.reset(), b.reset(), calls.clear(); });
}

TEST(GrpcChannel, RetryInsideOnEndDoesNotSpin) {
  GrpcPair pair;
  pair.dialer->refuse = true;
  int tries = 0;
  std::vector<std::unique_ptr<Recorder>> recorders;
  std::vector<std::unique_ptr<Call>> calls;
  std::function<void()> again = [&] {
    if (++tries < 50) {
      recorders.push_back(std::make_unique<Recorder>());
      recorders.back()->end_hook = again;
      calls.push_back(pair.channel->start("/t.T/Echo", {}, "x", *recorders.back()));
    }
  };
  pair.run([&] { again(); });
  ASSERT_TRUE(pair.until([&] { return tries == 50 && pair.channel->calls() == 0; }));
  EXPECT_EQ(pair.dialer->attempts, 1);
  pair.run([&] { calls.clear(); });
}

TEST(GrpcChannel, AddressesAreTriedInOrder) {
  struct Picky final : Dialer {
    Task<Result<std::unique_ptr<Stream>>> connect(Address address, TimePoint deadline) override {
      ports.push_back(address.port());
      if (address.port() != 3) {
        co_return fail(ErrorCode::EngineUnreachable, "not this one");
      }
      co_return co_await next->connect(address, deadline);
    }
    std::vector<int> ports;
    Dialer* next = nullptr;
  };
  GrpcPair pair;
  pair.service.add("/t.T/Echo", [](ServerCall& call) -> Task<> {
    call.write(call.request());
    co_return;
  });
  Picky dialer;
  dialer.next = pair.dialer.get();
  Recorder recorder;
  std::unique_ptr<Call> call;
  pair.run([&] {
    std::vector<Address> addresses;
    for (const std::uint16_t port : {1, 2, 3, 4}) {
      addresses.push_back(*Address::parse("127.0.0.1", port));
    }
    pair.channel = std::make_unique<Channel>(dialer, "t", addresses);
    call = pair.channel->start("/t.T/Echo", {}, "x", recorder);
  });
  ASSERT_TRUE(pair.until([&] { return recorder.ends == 1; }));
  EXPECT_TRUE(recorder.status.ok());
  EXPECT_EQ(dialer.ports, (std::vector{1, 2, 3}));
  pair.run([&] { call.reset(); });
}

TEST(GrpcChannel, NewAddressesEndTheBackOff) {
  ChannelOptions options;
  options.min_backoff = options.max_backoff = seconds(60);
  GrpcPair pair(0, options);
  pair.service.add("/t.T/Echo", [](ServerCall& call) -> Task<> {
    call.write(call.request());
    co_return;
  });
  pair.dialer->refuse = true;
  Recorder first;
  Recorder second;
  auto a = pair.start("/t.T/Echo", "x", first);
  ASSERT_TRUE(pair.until([&] { return first.ends == 1; }));
  pair.dialer->refuse = false;
  pair.run([&] { pair.channel->set_addresses({*Address::parse("127.0.0.1", 2)}); });
  auto b = pair.start("/t.T/Echo", "x", second);
  ASSERT_TRUE(pair.until([&] { return second.ends == 1; }));
  EXPECT_TRUE(second.status.ok());
  pair.run([&] { a.reset(), b.reset(); });
}

TEST(GrpcChannel, ADrainingServerFinishesWhatItBegan) {
  GrpcPair pair;
  Event* release = nullptr;
  pair.service.add("/t.T/Wait", with(
                                    [](ServerCall& call, Event*& release) -> Task<> {
                                      Event go;
                                      release = &go;
                                      co_await go.wait();
                                      call.write("done");
                                    },
                                    release));
  Recorder recorder;
  auto call = pair.start("/t.T/Wait", "x", recorder);
  ASSERT_TRUE(pair.until([&] { return release != nullptr; }));
  pair.run([&] { pair.server->drain(); });
  pair.run([&] { release->set(); });
  ASSERT_TRUE(pair.until([&] { return recorder.ends == 1; }));
  EXPECT_TRUE(recorder.status.ok());
  EXPECT_TRUE(pair.until([&] { return pair.server->connections() == 0; }));
  EXPECT_EQ(pair.channel->connections(), 0u);
  pair.run([&] { call.reset(); });
}

}  // namespace
}  // namespace fairlead::net::grpc
