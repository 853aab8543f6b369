#include "net/reactor.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "net/event.hpp"
#include "net/socket.hpp"
#include "net/task_group.hpp"
#include "net/testing.hpp"

namespace fairlead::net {
namespace {

using std::chrono::milliseconds;
using testing::run_task;
using testing::run_until;

TEST(Reactor, RunsPostsFromOtherThreadsInOrder) {
  Reactor reactor;
  std::vector<int> seen;
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i) {
      reactor.post([&seen, i] { seen.push_back(i); });
    }
  });
  EXPECT_TRUE(run_until(reactor, [&] { return seen.size() == 1000; }));
  other.join();
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
  }
}

TEST(Reactor, StopsFromAnotherThread) {
  Reactor reactor;
  std::thread loop([&] { reactor.run(); });
  reactor.post([&] { reactor.stop(); });
  loop.join();
}

TEST(Timer, FiresInOrderAndNeverEarly) {
  Reactor reactor;
  std::vector<int> fired;
  const auto start = Clock::now();
  std::vector<std::unique_ptr<Timer>> timers;
  bool early = false;
  for (const int delay : {50, 20, 30, 0, 11}) {
    timers.push_back(std::make_unique<Timer>([&, delay] {
      early = early || Clock::now() < start + milliseconds(delay);
      fired.push_back(delay);
    }));
  }
  Timer cancelled([&] { fired.push_back(-1); });
  reactor.post([&] {
    int i = 0;
    for (const int delay : {50, 20, 30, 0, 11}) {
      timers[static_cast<std::size_t>(i++)]->arm_at(start + milliseconds(delay));
    }
    cancelled.arm(milliseconds(5));
    cancelled.cancel();
  });
  EXPECT_TRUE(run_until(reactor, [&] { return fired.size() == 5; }));
  EXPECT_FALSE(early);
  EXPECT_EQ(fired, (std::vector{0, 11, 20, 30, 50}));
}

TEST(TimerWheel, FarDeadlinesWaitTheirRounds) {
  Reactor reactor;
  const TimePoint start = Clock::now();
  TimerWheel wheel(start);
  int fired = 0;
  Timer timer([&] { ++fired; });
  wheel.insert(timer, start + std::chrono::seconds(25));
  wheel.advance(start + std::chrono::seconds(24));
  EXPECT_EQ(fired, 0);
  wheel.advance(start + std::chrono::seconds(26));
  EXPECT_EQ(fired, 1);
}

Task<int> add(int a, int b) { co_return a + b; }

TEST(Task, ReturnsValuesThroughNestedAwaits) {
  Reactor reactor;
  int result = 0;
  run_task(reactor, [](int& out) -> Task<> { out = co_await add(co_await add(1, 2), 4); }(result));
  EXPECT_EQ(result, 7);
}

Task<> wait_then_count(Event& event, int& count, std::unique_ptr<int> guard) {
  co_await event.wait();
  count += *guard;
}

TEST(Task, DestroyingASuspendedTaskFreesWhatItHolds) {
  Reactor reactor;
  Event event;
  int count = 0;
  {
    TaskGroup group;
    bool started = false;
    reactor.post([&] {
      group.spawn(wait_then_count(event, count, std::make_unique<int>(5)));
      started = true;
    });
    EXPECT_TRUE(run_until(reactor, [&] { return started; }));
    EXPECT_EQ(group.size(), 1u);
  }
  reactor.post([&] { event.set(); });
  reactor.run_turn(milliseconds(0));
  reactor.run_turn(milliseconds(0));
  EXPECT_EQ(count, 0);
}

TEST(Event, IsStickyAndTimesOut) {
  Reactor reactor;
  std::string log;
  run_task(reactor, [](std::string& out) -> Task<> {
    Event event;
    out += co_await event.wait_for(milliseconds(20)) ? "set " : "late ";
    event.set();
    out += co_await event.wait_for(milliseconds(20)) ? "set " : "late ";
    event.reset();
    out += co_await event.wait_for(milliseconds(10)) ? "set " : "late ";
    co_await Sleep(milliseconds(1));
  }(log));
  EXPECT_EQ(log, "late set late ");
}

Task<> count_turns(int& count) {
  for (;;) {
    ++count;
    co_await NextTurn();
  }
}

TEST(NextTurn, GivesWayOnceATurnAndEndsWithItsOwner) {
  Reactor reactor;
  int count = 0;
  {
    TaskGroup group;
    reactor.post([&] { group.spawn(count_turns(count)); });
    reactor.run_turn(milliseconds(0));
    EXPECT_EQ(count, 1);
    // No event comes: what is left to do does not wait for one.
    for (int turn = 2; turn < 5; ++turn) {
      reactor.run_turn(std::chrono::hours(1));
      EXPECT_EQ(count, turn);
    }
  }
  reactor.run_turn(milliseconds(0));
  EXPECT_EQ(count, 4);
}

struct Collector final : StreamHandler {
  explicit Collector(Stream& s) : stream(s) {}
  void on_readable() override {
    std::array<char, 1024> buffer;
    while (true) {
      const IoResult result = stream.read(buffer);
      if (result.status != IoResult::Status::Ok) {
        eof = eof || result.status == IoResult::Status::Eof;
        return;
      }
      reads.push_back(result.bytes);
      text.append(buffer.data(), result.bytes);
    }
  }
  void on_writable() override { ++writable; }
  Stream& stream;
  std::string text;
  std::vector<std::size_t> reads;
  bool eof = false;
  int writable = 0;
};

TEST(Pipe, CutsReadsAndReportsTheEnd) {
  Reactor reactor;
  std::unique_ptr<Stream> a;
  std::unique_ptr<Stream> b;
  std::unique_ptr<Collector> collector;
  reactor.post([&] {
    std::tie(a, b) = make_pipe(3);
    collector = std::make_unique<Collector>(*b);
    b->set_handler(collector.get());
    std::string text = "hello world";
    const iovec piece{text.data(), text.size()};
    EXPECT_EQ(a->write({&piece, 1}).bytes, 11u);
    a.reset();
  });
  EXPECT_TRUE(run_until(reactor, [&] { return collector && collector->eof; }));
  EXPECT_EQ(collector->text, "hello world");
  EXPECT_EQ(collector->reads, (std::vector<std::size_t>{3, 3, 3, 2}));
  b.reset();
}

TEST(Socket, DialsListenerAndMovesBytes) {
  Reactor reactor;
  std::unique_ptr<Stream> server;
  auto listener = Listener::open(reactor, *Address::parse("127.0.0.1", 0),
                                 [&](int fd) { server = make_socket_stream(fd, {}); });
  ASSERT_TRUE(listener);
  const Address address = (*listener)->address();
  std::unique_ptr<Stream> client;
  run_task(reactor, [](Address to, std::unique_ptr<Stream>& out) -> Task<> {
    TcpDialer dialer;
    auto stream = co_await dialer.connect(to, Clock::now() + std::chrono::seconds(5));
    EXPECT_TRUE(stream);
    out = std::move(*stream);
  }(address, client));
  ASSERT_TRUE(run_until(reactor, [&] { return server != nullptr; }));
  EXPECT_EQ(client->peer(), address.to_string());
  Collector collector(*server);
  reactor.post([&] { server->set_handler(&collector); });
  std::string text = "over tcp";
  const iovec piece{text.data(), text.size()};
  EXPECT_EQ(client->write({&piece, 1}).bytes, text.size());
  client->shutdown_write();
  EXPECT_TRUE(run_until(reactor, [&] { return collector.eof; }));
  EXPECT_EQ(collector.text, "over tcp");
}

TEST(Socket, RefusedConnectionNamesTheAddress) {
  Reactor reactor;
  Address address;
  {
    auto listener = Listener::open(reactor, *Address::parse("127.0.0.1", 0), [](int) {});
    ASSERT_TRUE(listener);
    address = (*listener)->address();
    auto second = Listener::open(reactor, address, [](int) {});
    ASSERT_FALSE(second);
    EXPECT_NE(second.error().message.find("already in use"), std::string::npos);
  }
  std::string message;
  run_task(reactor, [](Address to, std::string& out) -> Task<> {
    TcpDialer dialer;
    const auto stream = co_await dialer.connect(to, Clock::now() + std::chrono::seconds(5));
    EXPECT_FALSE(stream);
    out = stream.error().message;
  }(address, message));
  EXPECT_NE(message.find(address.to_string()), std::string::npos);
}

TEST(Address, ParsesAndPrints) {
  EXPECT_EQ(Address::parse("127.0.0.1", 80)->to_string(), "127.0.0.1:80");
  EXPECT_EQ(Address::parse("[2001:db8::1]", 50051)->to_string(), "[2001:db8::1]:50051");
  EXPECT_FALSE(Address::parse("localhost", 1));
}

}  // namespace
}  // namespace fairlead::net
