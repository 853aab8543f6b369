// Which connection a request of the HTTP/1 client takes: a new one, a parked one, the next to be
// had.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/event.hpp"
#include "net/http1_client_testing.hpp"
#include "net/http_client.hpp"
#include "net/http_testing.hpp"

namespace fairlead::net::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::address;
using testing::BytePeer;
using testing::count_of;
using testing::in_turn;
using Bench = testing::ClientBench;
using ::testing::StartsWith;

constexpr std::string_view kOk = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

TEST(Http1ClientConnections, ReusesConnections) {
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

TEST(Http1ClientConnections, DoesNotReuseWhatMayNotBeReused) {
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

TEST(Http1ClientConnections, DropsParkedConnectionsThatTheServerEndsOrFills) {
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

TEST(Http1ClientConnections, ClosesParkedConnectionsInTime) {
  ClientLimits limits;
  limits.idle_timeout = milliseconds(30);
  Bench bench(limits);
  Bench::Answer answer;
  bench.start(answer, {});
  bench.answer_with(kOk);
  ASSERT_TRUE(bench.until([&] { return answer.has_value(); }));
  EXPECT_TRUE(bench.until([&] { return bench.peer().ended; }));
}

TEST(Http1ClientConnections, SendsAgainOnceWhenAReusedConnectionWasStale) {
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

TEST(Http1ClientConnections, DoesNotSendAgainOnceTheAnswerHasBegun) {
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

TEST(Http1ClientConnections, TriesAddressesInOrder) {
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

TEST(Http1ClientConnections, NewAddressesLeaveIdleConnectionsBehind) {
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

TEST(Http1ClientConnections, ConnectingIsBoundedWithoutADeadline) {
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
