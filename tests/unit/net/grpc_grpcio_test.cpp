#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "net/child.hpp"
#include "net/event.hpp"
#include "net/grpc_testing.hpp"
#include "net/handlers.hpp"

// The channel and the server against grpcio, the implementation that engines and clients use.

namespace fairlead::net::grpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Child;
using testing::Recorder;
using testing::run_until;
using testing::with;

std::string script(std::string_view name) {
  return std::string(FAIRLEAD_SOURCE_DIR) + "/tests/unit/net/" + std::string(name);
}

// A channel to a grpcio server in a child process.
class GrpcioServer : public ::testing::Test {
 protected:
  void open(std::vector<std::string> server_options = {}, ChannelOptions options = {}) {
    std::vector<std::string> arguments = {FAIRLEAD_PYTHON, script("grpcio_server.py")};
    arguments.insert(arguments.end(), server_options.begin(), server_options.end());
    child = std::make_unique<Child>(arguments);
    const std::string line = child->read_line();
    std::uint16_t port = 0;
    std::from_chars(line.data(), line.data() + line.size(), port);
    ASSERT_NE(port, 0) << "the server did not start: " << line;
    run([&] {
      channel = std::make_unique<Channel>(dialer, "127.0.0.1",
                                          std::vector{*Address::parse("127.0.0.1", port)}, options);
    });
  }
  void TearDown() override {
    run([&] {
      calls.clear();
      channel.reset();
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
  // A server in Python on a loaded machine needs its time.
  bool until(const std::function<bool()>& done) {
    return run_until(reactor, done) || run_until(reactor, done) || run_until(reactor, done);
  }
  Call& start(std::string_view method, std::string_view request, Recorder& recorder,
              const Metadata& metadata = {}, Duration timeout = seconds(30)) {
    run([&] {
      calls.push_back(channel->start("/t.T/" + std::string(method), metadata, request, recorder,
                                     reactor.now() + timeout));
    });
    return *calls.back();
  }
  std::string unary(std::string_view method, std::string_view request,
                    const Metadata& metadata = {}) {
    Recorder recorder;
    start(method, request, recorder, metadata);
    EXPECT_TRUE(until([&] { return recorder.ends == 1; }));
    EXPECT_TRUE(recorder.status.ok()) << recorder.status.message;
    return recorder.messages.empty() ? std::string() : recorder.messages[0];
  }

  Reactor reactor;
  TcpDialer dialer;
  std::unique_ptr<Child> child;
  std::unique_ptr<Channel> channel;
  std::vector<std::unique_ptr<Call>> calls;
};

TEST_F(GrpcioServer, UnaryAndStreamsAndStatuses) {
  open();
  EXPECT_EQ(unary("Echo", "hello"), "hello");
  EXPECT_EQ(unary("Echo", ""), "");
  std::string big(20 * 1024 * 1024, '\0');
  for (std::size_t i = 0; i < big.size(); ++i) {
    big[i] = static_cast<char>(i * 2654435761u >> 13);
  }
  EXPECT_TRUE(unary("Echo", big) == big);
  EXPECT_EQ(unary("Metadata", "x-id,x-raw-bin,user-agent,x-none",
                  {{"x-id", "7"}, {"x-raw-bin", std::string("\0\xff", 2)}}),
            "7|00ff|fairlead|missing");

  Recorder many;
  start("Count", "500,100", many);
  ASSERT_TRUE(until([&] { return many.ends == 1; }));
  EXPECT_TRUE(many.status.ok()) << many.status.message;
  ASSERT_EQ(many.messages.size(), 500u);
  EXPECT_EQ(many.messages[499], "499:" + std::string(100, 'x'));

  Recorder none;
  start("Nothing", "x", none);
  Recorder fail;
  start("Fail", "x", fail);
  Recorder late;
  start("FailLate", "x", late);
  Recorder unknown;
  start("Unknown", "x", unknown);
  ASSERT_TRUE(until([&] { return none.ends && fail.ends && late.ends && unknown.ends; }));
  EXPECT_TRUE(none.status.ok());
  EXPECT_EQ(none.count, 0u);
  EXPECT_EQ(fail.status.code, StatusCode::FailedPrecondition);
  EXPECT_EQ(fail.status.message, "naïve 100% — \n失敗");
  EXPECT_EQ(late.messages, std::vector<std::string>{"one"});
  EXPECT_EQ(late.status.code, StatusCode::DataLoss);
  EXPECT_EQ(late.status.message, "späť");
  EXPECT_EQ(unknown.status.code, StatusCode::Unimplemented);
  for (const Recorder* recorder : {&fail, &late, &unknown}) {
    EXPECT_EQ(recorder->status.origin, Status::Origin::Server);
  }
  EXPECT_EQ(channel->connections(), 1u);
}

TEST_F(GrpcioServer, CancelAndDeadlineReachTheServer) {
  open();
  Recorder cancelled;
  start("Wait", "x", cancelled);
  ASSERT_TRUE(until([&] { return cancelled.count == 1; }));
  run([&] { calls.clear(); });
  EXPECT_EQ(unary("WasCancelled", ""), "yes");
  EXPECT_EQ(cancelled.ends, 0);
  Recorder late;
  start("Wait", "x", late, {}, milliseconds(150));
  ASSERT_TRUE(until([&] { return late.ends == 1; }));
  EXPECT_EQ(late.status.code, StatusCode::DeadlineExceeded);
  EXPECT_EQ(unary("WasCancelled", ""), "yes");
  const double remaining = std::stod(unary("Remaining", ""));
  EXPECT_GT(remaining, 10);
  EXPECT_LE(remaining, 30.1);
}

TEST_F(GrpcioServer, AKilledServerEndsItsCallsAndComesBack) {
  open();
  Recorder recorder;
  start("Die", "x", recorder);
  ASSERT_TRUE(until([&] { return recorder.ends == 1; }));
  EXPECT_EQ(recorder.status.code, StatusCode::Unavailable);
  EXPECT_EQ(recorder.status.origin, Status::Origin::Connection);
  EXPECT_EQ(recorder.messages.size(), 10u);
  Recorder after;
  start("Echo", "x", after);
  ASSERT_TRUE(until([&] { return after.ends == 1; }));
  EXPECT_EQ(after.status.code, StatusCode::Unavailable);
  EXPECT_EQ(after.status.origin, Status::Origin::Connect);
}

TEST_F(GrpcioServer, AStoppedServerIsFoundByItsSilence) {
  ChannelOptions options;
  options.ping_interval = milliseconds(100);
  options.ping_timeout = milliseconds(300);
  open({}, options);
  Recorder recorder;
  start("Wait", "x", recorder);
  ASSERT_TRUE(until([&] { return recorder.count == 1; }));
  child->signal(SIGSTOP);
  ASSERT_TRUE(until([&] { return recorder.ends == 1; }));
  child->signal(SIGCONT);
  EXPECT_EQ(recorder.status.code, StatusCode::Unavailable);
  EXPECT_EQ(recorder.status.origin, Status::Origin::Connection);
}

TEST_F(GrpcioServer, ServersWithAStreamLimitGetMoreConnections) {
  open({"grpc.max_concurrent_streams=10"});
  std::vector<std::unique_ptr<Recorder>> recorders;
  for (int i = 0; i < 35; ++i) {
    recorders.push_back(std::make_unique<Recorder>());
    start("Slow", "5", *recorders.back());
  }
  ASSERT_TRUE(until([&] { return channel->connections() == 4; }));
  ASSERT_TRUE(until([&] { return channel->calls() == 0; }));
  for (const auto& recorder : recorders) {
    EXPECT_TRUE(recorder->status.ok()) << recorder->status.message;
    EXPECT_EQ(recorder->count, 5u);
  }
}

TEST_F(GrpcioServer, GoawayInMidStreamLosesNothing) {
  open({"grpc.max_connection_age_ms=200", "grpc.max_connection_age_grace_ms=20000"});
  // New calls all the while: some meet the GOAWAY.
  std::vector<std::unique_ptr<Recorder>> recorders;
  const auto start_one = [&](std::string_view count) {
    recorders.push_back(std::make_unique<Recorder>());
    start("Slow", count, *recorders.back());
  };
  start_one("60");
  while (recorders.front()->ends == 0) {
    const std::size_t seen = recorders.front()->count;
    start_one("3");
    ASSERT_TRUE(until([&] { return recorders.front()->count > seen || recorders.front()->ends; }));
  }
  ASSERT_TRUE(until([&] { return channel->calls() == 0; }));
  EXPECT_EQ(recorders.front()->count, 60u);
  for (const auto& recorder : recorders) {
    // A stream above the GOAWAY's last id may be sent again, which is the caller's business.
    EXPECT_TRUE(recorder->status.ok() || recorder->status.origin == Status::Origin::Connect)
        << recorder->status.message;
  }
}

TEST_F(GrpcioServer, OneStuckReaderAmongSixtyFourStreams) {
  open();
  Recorder stuck;
  Call& call = start("Count", "2000,4000", stuck);
  stuck.keep = false;
  run([&] { call.pause(); });
  std::vector<std::unique_ptr<Recorder>> recorders;
  for (int i = 0; i < 63; ++i) {
    recorders.push_back(std::make_unique<Recorder>());
    recorders.back()->keep = false;
    start("Count", "200,4000", *recorders.back());
  }
  ASSERT_TRUE(until([&] { return channel->calls() == 1; }));
  for (const auto& recorder : recorders) {
    EXPECT_TRUE(recorder->status.ok()) << recorder->status.message;
    EXPECT_EQ(recorder->count, 200u);
  }
  EXPECT_EQ(stuck.ends, 0);
  EXPECT_LE(stuck.bytes, 256u * 1024);
  run([&] { call.resume(); });
  ASSERT_TRUE(until([&] { return stuck.ends == 1; }));
  EXPECT_EQ(stuck.count, 2000u);
  EXPECT_EQ(channel->connections(), 1u);
}

struct Gone {
  explicit Gone(std::atomic<int>& c) : count(c) {}
  Gone(const Gone&) = delete;
  Gone& operator=(const Gone&) = delete;
  ~Gone() { ++count; }
  std::atomic<int>& count;
};

Task<> count(ServerCall& call) {
  const std::string_view request = call.request();
  const std::size_t comma = request.find(',');
  int total = 0;
  int size = 0;
  std::from_chars(request.data(), request.data() + comma, total);
  std::from_chars(request.data() + comma + 1, request.data() + request.size(), size);
  Event drained;
  call.exchange().set_on_drain([&] { drained.set(); });
  for (int i = 0; i < total; ++i) {
    call.write(std::to_string(i) + ":" + std::string(static_cast<std::size_t>(size), 'x'));
    while (call.exchange().unsent() > 300 * 1024) {
      drained.reset();
      co_await drained.wait();
    }
  }
}

void add_methods(Service& service, std::atomic<int>& gone) {
  service.add("/t.T/Echo", [](ServerCall& call) -> Task<> {
    call.write(call.request());
    co_return;
  });
  service.add("/t.T/Count", count);
  service.add("/t.T/Fail", [](ServerCall& call) -> Task<> {
    call.finish({StatusCode::FailedPrecondition, "naïve 100% — \n失敗"});
    co_return;
  });
  service.add("/t.T/FailLate", [](ServerCall& call) -> Task<> {
    call.write("one");
    co_await Sleep(milliseconds(5));
    call.finish({StatusCode::DataLoss, "späť"});
  });
  service.add("/t.T/Metadata", [](ServerCall& call) -> Task<> {
    call.write(std::string(call.metadata("x-id").value_or("")) +
               std::string(call.metadata("x-raw-bin").value_or("")));
    call.finish({}, {{"x-count", "1"}, {"x-data-bin", "\x01\xfe"}});
    co_return;
  });
  service.add("/t.T/Wait", with(
                               [](ServerCall& call, std::atomic<int>& gone) -> Task<> {
                                 const Gone guard(gone);
                                 call.write("started");
                                 Event never;
                                 co_await never.wait();
                               },
                               gone));
  service.add("/t.T/Gone", with(
                               [](ServerCall& call, std::atomic<int>& gone) -> Task<> {
                                 call.write(std::to_string(gone.load()));
                                 co_return;
                               },
                               gone));
}

TEST(GrpcioClient, EveryScenarioAgainstOurServer) {
  Reactor reactor;
  Service service;
  std::atomic<int> gone{0};
  add_methods(service, gone);
  const http::Handler grpc = service.handler();
  const http::Handler handler = with(
      [](http::Exchange& exchange, const http::Handler& grpc) -> Task<> {
        if (exchange.request().path == "/http/echo") {
          exchange.respond(200, {}, exchange.request().body);
          co_return;
        }
        co_await grpc(exchange);
      },
      grpc);
  std::unique_ptr<http::Server> server;
  std::unique_ptr<Listener> listener;
  std::atomic<std::uint16_t> port{0};
  std::thread loop([&] {
    reactor.post([&] {
      server = std::make_unique<http::Server>(
          handler, http::ServerLimits{},
          [](int, std::string_view text) { return std::string(text); });
      auto opened = Listener::open(reactor, *Address::parse("127.0.0.1", 0),
                                   [&](int fd) { server->accept(fd); });
      listener = std::move(*opened);
      port = listener->address().port();
      port.notify_all();
    });
    reactor.run();
  });
  port.wait(0);
  Child child({FAIRLEAD_PYTHON, script("grpcio_client.py"), std::to_string(port.load())});
  const std::string output = child.read_all();
  EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(output.ends_with("done\n")) << output;
  std::size_t in_flight = 1;
  reactor.post([&] {
    in_flight = server->in_flight();
    listener.reset();
    server.reset();
    reactor.stop();
  });
  loop.join();
  EXPECT_EQ(in_flight, 0u);
}

}  // namespace
}  // namespace fairlead::net::grpc
