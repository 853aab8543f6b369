#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net/grpc.hpp"
#include "net/http_server.hpp"
#include "net/testing.hpp"

namespace fairlead::net::testing {

/// Connects to a server in this process through a pipe; refuses while `refuse` is set.
class PipeDialer final : public Dialer {
 public:
  /// Reads of both ends are cut at `max_read` bytes.
  explicit PipeDialer(std::function<void(std::unique_ptr<Stream>)> accept, std::size_t max_read = 0)
      : accept_(std::move(accept)), max_read_(max_read) {}

  Task<Result<std::unique_ptr<Stream>>> connect(Address, TimePoint) override {
    ++attempts;
    if (refuse) {
      co_return fail(ErrorCode::EngineUnreachable, "refused by the test");
    }
    auto [near, far] = make_pipe(max_read_, 256 * 1024);
    accept_(std::move(far));
    co_return std::move(near);
  }

  int attempts = 0;
  bool refuse = false;

 private:
  std::function<void(std::unique_ptr<Stream>)> accept_;
  std::size_t max_read_;
};

/// Records what a call receives.
struct Recorder final : grpc::CallObserver {
  void on_message(std::string_view message) override {
    ++count;
    bytes += message.size();
    if (keep) {
      messages.emplace_back(message);
    }
    if (hook) {
      hook();
    }
  }
  void on_end(const grpc::Status& ended) override {
    ++ends;
    status = ended;
    if (end_hook) {
      end_hook();
    }
  }

  std::vector<std::string> messages;
  std::size_t count = 0;
  std::size_t bytes = 0;
  bool keep = true;
  int ends = 0;
  grpc::Status status;
  std::function<void()> hook;
  std::function<void()> end_hook;
};

/// A reactor with a gRPC service and a channel to it.
class GrpcPair {
 public:
  explicit GrpcPair(std::size_t max_read = 0, grpc::ChannelOptions options = {},
                    http::ServerLimits limits = {})
      : options_(options), limits_(std::move(limits)) {
    run([&] {
      server = std::make_unique<http::Server>(
          service.handler(), limits_, [](int, std::string_view text) { return std::string(text); });
      dialer = std::make_unique<PipeDialer>(
          [this](std::unique_ptr<Stream> stream) { server->accept(std::move(stream)); }, max_read);
      channel = std::make_unique<grpc::Channel>(
          *dialer, "test:1", std::vector{*Address::parse("127.0.0.1", 1)}, options_);
    });
  }
  ~GrpcPair() {
    run([&] {
      channel.reset();
      server.reset();
    });
  }

  /// Runs `job` inside a turn of the reactor.
  void run(const std::function<void()>& job) {
    bool ran = false;
    reactor.post([&] {
      job();
      ran = true;
    });
    EXPECT_TRUE(run_until(reactor, [&] { return ran; }));
  }

  /// Runs turns until `done`.
  bool until(const std::function<bool()>& done) { return run_until(reactor, done); }

  /// Starts a call from inside the reactor.
  std::unique_ptr<grpc::Call> start(std::string_view path, std::string_view request,
                                    Recorder& recorder, const grpc::Metadata& metadata = {},
                                    std::optional<Duration> timeout = std::nullopt) {
    std::unique_ptr<grpc::Call> call;
    run([&] {
      std::optional<TimePoint> deadline;
      if (timeout) {
        deadline = reactor.now() + *timeout;
      }
      call = channel->start(path, metadata, request, recorder, deadline);
      EXPECT_EQ(recorder.ends, 0) << "events must not begin inside start";
    });
    return call;
  }

  /// Destroys a call inside the reactor.
  void drop(std::unique_ptr<grpc::Call>& call) {
    run([&] { call.reset(); });
  }

  Reactor reactor;
  grpc::Service service;
  std::unique_ptr<http::Server> server;
  std::unique_ptr<PipeDialer> dialer;
  std::unique_ptr<grpc::Channel> channel;

 private:
  grpc::ChannelOptions options_;
  http::ServerLimits limits_;
};

}  // namespace fairlead::net::testing
