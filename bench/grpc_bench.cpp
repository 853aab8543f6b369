// links: fl_net
#include <benchmark/benchmark.h>
#include <pthread.h>
#include <time.h>

#include <atomic>
#include <coroutine>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "net/event.hpp"
#include "net/grpc.hpp"
#include "net/http_server.hpp"
#include "net/socket.hpp"

// CPU time per streamed message on one connection: 64 streams, 40-byte messages, one message per
// stream and tick of the server, so that a read brings many of them.

namespace fairlead::net {
namespace {

constexpr int kStreams = 64;
constexpr int kMessages = 2000;
constexpr std::size_t kMessageBytes = 40;

double thread_cpu_ns(pthread_t thread) {
  timespec now{};
  clockid_t clock{};
  pthread_getcpuclockid(thread, &clock);
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

struct Counter final : grpc::CallObserver {
  void on_message(std::string_view message) override { bytes += message.size(); }
  void on_end(const grpc::Status& status) override {
    ended = true;
    ok = status.ok();
  }
  std::size_t bytes = 0;
  bool ended = false;
  bool ok = false;
};

// A server in a thread of its own, so that the client's CPU time can be told apart.
class ServerThread {
 public:
  explicit ServerThread(int per_turn) {
    service_.add("/b.B/Stream",
                 [per_turn](grpc::ServerCall& call) { return stream(call, per_turn); });
    thread_ = std::thread([this] {
      reactor_.post([this] {
        server_ = std::make_unique<http::Server>(
            service_.handler(), http::ServerLimits{},
            [](int, std::string_view text) { return std::string(text); });
        listener_ = *Listener::open(reactor_, *Address::parse("127.0.0.1", 0),
                                    [this](int fd) { server_->accept(fd); });
        ready_.store(listener_->address().port());
        ready_.notify_all();
      });
      reactor_.run();
    });
    ready_.wait(0);
  }
  ~ServerThread() {
    reactor_.post([this] {
      listener_.reset();
      server_.reset();
      reactor_.stop();
    });
    thread_.join();
  }
  double cpu_ns() { return thread_cpu_ns(thread_.native_handle()); }
  Address address() const { return *Address::parse("127.0.0.1", ready_.load()); }

 private:
  static Task<> stream(grpc::ServerCall& call, int per_turn) {
    const std::string message(kMessageBytes, 'm');
    Event drained;
    call.exchange().set_on_drain([&] { drained.set(); });
    for (int i = 0; i < kMessages; ++i) {
      call.write(message);
      if (i % per_turn == per_turn - 1) {
        co_await Yield();
        while (call.exchange().unsent() > 256 * 1024) {
          drained.reset();
          co_await drained.wait();
        }
      }
    }
    call.finish({});
  }
  // Goes on in the next turn, after this turn's output has left.
  struct Yield {
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> handle) {
      node.handle = handle;
      Reactor::current()->post([this] { Reactor::current()->make_ready(node); });
    }
    void await_resume() const {}
    ReadyNode node;
  };

  Reactor reactor_;
  grpc::Service service_;
  std::unique_ptr<http::Server> server_;
  std::unique_ptr<Listener> listener_;
  std::atomic<std::uint16_t> ready_{0};
  std::thread thread_;
};

void BM_StreamedMessages(benchmark::State& state) {
  ServerThread server(static_cast<int>(state.range(0)));
  Reactor reactor;
  TcpDialer dialer;
  std::unique_ptr<grpc::Channel> channel;
  double messages = 0;
  const double begin = thread_cpu_ns(pthread_self());
  const double server_begin = server.cpu_ns();
  for (auto _ : state) {
    std::vector<std::unique_ptr<Counter>> counters;
    std::vector<std::unique_ptr<grpc::Call>> calls;
    reactor.post([&] {
      if (!channel) {
        channel = std::make_unique<grpc::Channel>(dialer, "bench", std::vector{server.address()});
      }
      for (int i = 0; i < kStreams; ++i) {
        counters.push_back(std::make_unique<Counter>());
        calls.push_back(channel->start("/b.B/Stream", {}, "go", *counters.back()));
      }
    });
    do {
      reactor.run_turn(std::chrono::seconds(1));
    } while (channel->calls() > 0 || calls.empty());
    for (const auto& counter : counters) {
      if (!counter->ok || counter->bytes != kMessages * kMessageBytes) {
        state.SkipWithError("a stream ended early");
      }
    }
    messages += double{kStreams} * kMessages;
    reactor.post([&] { calls.clear(); });
    reactor.run_turn(std::chrono::seconds(0));
  }
  state.counters["client_ns_per_message"] = (thread_cpu_ns(pthread_self()) - begin) / messages;
  state.counters["server_ns_per_message"] = (server.cpu_ns() - server_begin) / messages;
  reactor.post([&] { channel.reset(); });
  reactor.run_turn(std::chrono::seconds(0));
}
BENCHMARK(BM_StreamedMessages)->ArgName("per_turn")->Arg(1)->Arg(4)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fairlead::net
