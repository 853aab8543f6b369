#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mock/mock_engine.hpp"
#include "net/grpc.hpp"
#include "net/testing.hpp"
#include "vllm/control.pb.h"
#include "vllm/inference.pb.h"

namespace fairlead::mock {

using net::grpc::Status;
using net::grpc::StatusCode;
using net::testing::run_until;

/// One stream and everything it received.
struct Stream : net::grpc::CallObserver {
  void on_message(std::string_view message) override {
    ++messages;
    ::vllm::GenerateResponse response;
    ASSERT_TRUE(response.ParseFromArray(message.data(), static_cast<int>(message.size())));
    if (response.has_prompt_info()) {
      prompt_info = response.prompt_info();
    }
    if (response.has_outputs()) {
      for (const auto id : response.outputs().token_ids()) {
        ids.push_back(id);
      }
      text += response.outputs().text();
      if (response.outputs().has_finish_info()) {
        finish = response.outputs().finish_info();
      }
    }
  }
  void on_end(const Status& ended) override { status = ended; }

  std::unique_ptr<net::grpc::Call> call;
  std::size_t messages = 0;
  std::optional<::vllm::PromptInfo> prompt_info;
  std::vector<TokenId> ids;
  std::string text;
  std::optional<::vllm::FinishInfo> finish;
  std::optional<Status> status;
};

/// A request whose prompt counts up from 1000 and that reports ids only.
inline ::vllm::GenerateRequest request_of(std::string id, std::size_t prompt,
                                          std::uint32_t max_new) {
  ::vllm::GenerateRequest request;
  request.set_request_id(std::move(id));
  for (std::size_t i = 0; i < prompt; ++i) {
    request.mutable_token_ids()->add_ids(static_cast<std::uint32_t>(1000 + i));
  }
  request.mutable_stopping()->set_max_new_tokens(max_new);
  request.mutable_response()->set_output_token_ids(true);
  request.mutable_response()->set_output_text(false);
  return request;
}

/// A started engine and a channel to it in one reactor.
class Engine : public ::testing::Test {
 protected:
  void TearDown() override {
    channel_.reset();
    engine_.reset();
    reactor_.run_turn(net::Duration(0));
  }

  void start(MockOptions options = {}) {
    options.listen_port = 0;
    auto made = MockEngine::create(reactor_, std::move(options));
    ASSERT_TRUE(made) << made.error().message;
    engine_ = std::move(*made);
    net::testing::run_task(reactor_, bind());
    ASSERT_TRUE(addresses_);
    on_reactor([&] {
      channel_ = std::make_unique<net::grpc::Channel>(dialer_, addresses_->engine.to_string(),
                                                      std::vector{addresses_->engine});
    });
  }

  static MockOptions instant() {
    MockOptions options;
    options.speedup_ratio = 0;
    return options;
  }

  net::Task<> bind() {
    auto addresses = co_await engine_->start();
    EXPECT_TRUE(addresses);
    if (addresses) {
      addresses_ = *addresses;
    }
  }

  template <class F>
  void on_reactor(F job) {
    bool done = false;
    reactor_.post([&] {
      job();
      done = true;
    });
    ASSERT_TRUE(run_until(reactor_, [&] { return done; }));
  }

  std::unique_ptr<Stream> open(const ::vllm::GenerateRequest& request,
                               net::grpc::Metadata metadata = {}) {
    auto stream = std::make_unique<Stream>();
    on_reactor([&] {
      stream->call = channel_->start("/vllm.Inference/GenerateStream", metadata,
                                     request.SerializeAsString(), *stream);
    });
    return stream;
  }

  std::unique_ptr<Stream> run(const ::vllm::GenerateRequest& request,
                              net::grpc::Metadata metadata = {}) {
    auto stream = open(request, std::move(metadata));
    EXPECT_TRUE(run_until(reactor_, [&] { return stream->status.has_value(); }));
    return stream;
  }

  void abort(const std::string& id) {
    ::vllm::AbortRequest request;
    request.add_request_ids(id);
    auto answer = std::make_unique<AnyAnswer>();
    on_reactor([&] {
      answer->call =
          channel_->start("/vllm.Control/Abort", {}, request.SerializeAsString(), *answer);
    });
    ASSERT_TRUE(run_until(reactor_, [&] { return answer->ended; }));
    on_reactor([&] { answer.reset(); });
  }

  void expect_idle() {
    EXPECT_TRUE(run_until(reactor_, [&] {
      const MockCounts counts = engine_->counts();
      return counts.running + counts.waiting + counts.kv_blocks_used == 0;
    }));
  }

  void cancel(std::unique_ptr<Stream>& stream) {
    on_reactor([&] { stream->call.reset(); });
  }

  struct AnyAnswer : net::grpc::CallObserver {
    void on_message(std::string_view) override {}
    void on_end(const Status&) override { ended = true; }
    std::unique_ptr<net::grpc::Call> call;
    bool ended = false;
  };

  net::Reactor reactor_{"test"};
  net::TcpDialer dialer_;
  std::unique_ptr<MockEngine> engine_;
  std::optional<MockAddresses> addresses_;
  std::unique_ptr<net::grpc::Channel> channel_;
};

}  // namespace fairlead::mock
