#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "mock/mock_engine.hpp"
#include "net/grpc.hpp"
#include "net/testing.hpp"
#include "vllm/control.pb.h"
#include "vllm/inference.pb.h"

namespace fairlead::mock {
namespace {

using net::grpc::Status;
using net::grpc::StatusCode;
using net::testing::run_until;

// One stream and everything it received.
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

::vllm::GenerateRequest request_of(std::string id, std::size_t prompt, std::uint32_t max_new) {
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

class Engine : public ::testing::Test {
 protected:
  ~Engine() override {
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
      channel_ = std::make_unique<net::grpc::Channel>(dialer_, addresses_->grpc.to_string(),
                                                      std::vector{addresses_->grpc});
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

TEST_F(Engine, StreamsTheFormulaOneTokenPerMessage) {
  start(instant());
  const auto stream = run(request_of("req-1", 10, 5));
  EXPECT_TRUE(stream->status->ok());
  EXPECT_EQ(stream->ids, (std::vector<TokenId>{2110, 19376, 28263, 4772, 16215}));
  EXPECT_EQ(stream->messages, 6U);
  ASSERT_TRUE(stream->prompt_info && stream->finish);
  EXPECT_EQ(stream->prompt_info->num_prompt_tokens(), 10U);
  EXPECT_EQ(stream->finish->finish_reason(), ::vllm::FinishInfo::LENGTH);
  EXPECT_EQ(stream->finish->num_output_tokens(), 5U);
  EXPECT_TRUE(stream->finish->has_num_cached_tokens());
  expect_idle();
}

TEST_F(Engine, TimedStepsGiveTheSameTokens) {
  MockOptions options;
  options.speedup_ratio = 50;
  start(options);
  EXPECT_EQ(run(request_of("req-1", 10, 5))->ids,
            (std::vector<TokenId>{2110, 19376, 28263, 4772, 16215}));
}

TEST_F(Engine, IntervalSpacesTokens) {
  MockOptions options;
  options.token_interval_ms = 20;
  start(options);
  const auto begin = net::Clock::now();
  run(request_of("req-1", 10, 6));
  EXPECT_GE(net::Clock::now() - begin, std::chrono::milliseconds(99));
}

TEST_F(Engine, ZeroNewTokensMeansTheRestOfTheContext) {
  MockOptions options = instant();
  options.max_model_len = 100;
  start(options);
  EXPECT_EQ(run(request_of("a", 60, 0))->ids.size(), 40U);
  EXPECT_EQ(run(request_of("b", 60, 5000))->ids.size(), 40U) << "clipped";
}

TEST_F(Engine, CancelledStreamsLeaveNothing) {
  MockOptions options;
  options.token_interval_ms = 1;
  options.scheduler.max_running = 3;
  start(options);
  std::mt19937 random(3);
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 60; ++i) {
    streams.push_back(open(request_of(std::to_string(i), 1 + random() % 300, 1000)));
    reactor_.run_turn(std::chrono::milliseconds(random() % 3));
    if (random() % 2 == 0) {
      auto& victim = streams[random() % streams.size()];
      if (victim->call) {
        cancel(victim);
      }
    }
  }
  EXPECT_TRUE(run_until(
      reactor_, [&] { return engine_->counts().running == 3 && engine_->counts().waiting > 0; }));
  for (auto& stream : streams) {
    if (stream->call) {
      cancel(stream);
    }
  }
  expect_idle();
  EXPECT_GT(engine_->counts().requests_total, 30U);
  EXPECT_EQ(engine_->counts().aborted_total, engine_->counts().requests_total);
}

TEST_F(Engine, AbortEndsEveryRequestOfTheIdWithOneMoreMessage) {
  MockOptions options;
  options.token_interval_ms = 5;
  options.scheduler.max_running = 1;
  start(options);
  const auto running = open(request_of("twin", 10, 1000));
  ASSERT_TRUE(run_until(reactor_, [&] { return running->ids.size() >= 2; }));
  const auto queued = open(request_of("twin", 10, 1000));
  ASSERT_TRUE(run_until(reactor_, [&] { return engine_->counts().waiting == 1; }));
  abort("unknown");
  abort("twin");
  ASSERT_TRUE(run_until(reactor_, [&] { return running->status && queued->status; }));
  for (const Stream* stream : {running.get(), queued.get()}) {
    EXPECT_TRUE(stream->status->ok());
    ASSERT_TRUE(stream->prompt_info && stream->finish);
    EXPECT_EQ(stream->finish->finish_reason(), ::vllm::FinishInfo::ABORTED);
    EXPECT_EQ(stream->finish->num_output_tokens(), stream->ids.size());
  }
  EXPECT_TRUE(queued->ids.empty());
  expect_idle();
}

TEST_F(Engine, SlowReaderPausesOnlyItself) {
  start(instant());
  const auto slow = open(request_of("slow", 10, 30000));
  on_reactor([&] { slow->call->pause(); });
  // Others finish while the paused stream waits for its window.
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(run(request_of(std::to_string(i), 10, 2000))->ids.size(), 2000U);
  }
  EXPECT_EQ(engine_->counts().running, 1U);
  EXPECT_FALSE(slow->status);
  on_reactor([&] { slow->call->resume(); });
  EXPECT_TRUE(run_until(reactor_, [&] { return slow->status.has_value(); }));
  EXPECT_EQ(slow->ids.size(), 30000U);
  expect_idle();
}

TEST_F(Engine, StopStringCutsTheText) {
  start(instant());
  auto request = request_of("req-1", 10, 5);
  request.mutable_response()->set_output_text(true);
  request.mutable_stopping()->add_stop_strings("n:28263>");
  const auto stream = run(request);
  EXPECT_EQ(stream->text, "<token:2110><token:19376><toke");
  ASSERT_TRUE(stream->finish);
  EXPECT_EQ(stream->finish->finish_reason(), ::vllm::FinishInfo::STOP);
  EXPECT_EQ(stream->finish->stop_string(), "n:28263>");
  EXPECT_EQ(stream->finish->num_output_tokens(), 3U);
  expect_idle();
}

TEST_F(Engine, StallAfterFallsSilentUntilCancelled) {
  MockOptions options = instant();
  options.faults = {*parse_fault("stall-after:3")};
  start(options);
  auto stream = open(request_of("a", 10, 10));
  ASSERT_TRUE(run_until(reactor_, [&] { return stream->ids.size() == 3; }));
  reactor_.run_turn(std::chrono::milliseconds(20));
  EXPECT_EQ(stream->ids.size(), 3U);
  EXPECT_FALSE(stream->status);
  EXPECT_EQ(engine_->counts().running, 1U);
  cancel(stream);
  expect_idle();
}

TEST_F(Engine, StallOpenAnswersNothing) {
  MockOptions options = instant();
  options.faults = {*parse_fault("stall-open")};
  start(options);
  auto stream = open(request_of("a", 10, 10));
  ASSERT_TRUE(run_until(reactor_, [&] { return engine_->counts().waiting == 1; }));
  EXPECT_EQ(stream->messages, 0U);
  cancel(stream);
  expect_idle();
}

TEST_F(Engine, ErrorAfterEndsWithTheStatus) {
  MockOptions options = instant();
  options.faults = {*parse_fault("error-after:2:UNAVAILABLE")};
  start(options);
  const auto stream = run(request_of("a", 10, 10));
  EXPECT_EQ(stream->status->code, StatusCode::Unavailable);
  EXPECT_EQ(stream->ids.size(), 2U);
  EXPECT_FALSE(stream->finish);
  on_reactor([&] { EXPECT_TRUE(engine_->set_faults({*parse_fault("error-after:0:13")})); });
  const auto refused = run(request_of("b", 10, 10));
  EXPECT_EQ(refused->status->code, StatusCode::Internal);
  EXPECT_EQ(refused->messages, 0U);
  expect_idle();
}

TEST_F(Engine, ResetAfterBreaksTheStreamBehindItsTokens) {
  MockOptions options = instant();
  options.faults = {*parse_fault("reset-after:2")};
  start(options);
  const auto stream = run(request_of("a", 10, 10));
  EXPECT_FALSE(stream->status->ok());
  EXPECT_EQ(stream->status->origin, Status::Origin::Connection);
  EXPECT_EQ(stream->ids.size(), 2U);
  expect_idle();
}

TEST_F(Engine, EndAfterEndsWithoutAFinish) {
  MockOptions options = instant();
  options.faults = {*parse_fault("end-after:2")};
  start(options);
  const auto stream = run(request_of("a", 10, 10));
  EXPECT_TRUE(stream->status->ok());
  EXPECT_EQ(stream->ids.size(), 2U);
  EXPECT_FALSE(stream->finish);
  expect_idle();
}

TEST_F(Engine, RefuseClosesAndListensAgainAtTheSamePort) {
  MockOptions options;
  options.token_interval_ms = 5;
  start(options);
  const auto stream = open(request_of("a", 10, 1000));
  ASSERT_TRUE(run_until(reactor_, [&] { return !stream->ids.empty(); }));
  on_reactor([&] { EXPECT_TRUE(engine_->set_faults({*parse_fault("refuse")})); });
  ASSERT_TRUE(run_until(reactor_, [&] { return stream->status.has_value(); }));
  EXPECT_EQ(stream->status->code, StatusCode::Unavailable);
  EXPECT_EQ(run(request_of("b", 10, 2))->status->code, StatusCode::Unavailable);
  on_reactor([&] { EXPECT_TRUE(engine_->set_faults({})); });
  EXPECT_TRUE(run_until(reactor_, [&] { return run(request_of("c", 10, 2))->status->ok(); }));
  expect_idle();
}

TEST_F(Engine, RanksAreChosenByMetadata) {
  MockOptions options = instant();
  options.data_parallel_size = 2;
  start(options);
  EXPECT_TRUE(run(request_of("a", 10, 1), {{"x-data-parallel-rank", "1"}})->status->ok());
  const auto out_of_range = run(request_of("b", 10, 1), {{"x-data-parallel-rank", "2"}});
  EXPECT_EQ(out_of_range->status->message,
            "engine-core error: data parallel rank 2 is not connected to this frontend; connected "
            "ranks: [0, 1]");
  const auto text = run(request_of("c", 10, 1), {{"x-data-parallel-rank", "-1"}});
  EXPECT_EQ(text->status->message,
            "x-data-parallel-rank metadata must be an unsigned 32-bit integer");
}

TEST_F(Engine, LimitOfConcurrentRequestsIsExhaustion) {
  MockOptions options;
  options.token_interval_ms = 1000;
  options.max_concurrent_requests = 1;
  start(options);
  auto stream = open(request_of("a", 10, 10));
  ASSERT_TRUE(run_until(reactor_, [&] { return engine_->counts().running == 1; }));
  EXPECT_EQ(run(request_of("b", 10, 1))->status->code, StatusCode::ResourceExhausted);
  cancel(stream);
  expect_idle();
}

TEST_F(Engine, PrefixCacheIsCountedAndResetOnlyWhenIdle) {
  MockOptions options;
  options.token_interval_ms = 5;
  start(options);
  EXPECT_EQ(run(request_of("a", 200, 1))->finish->num_cached_tokens(), 0U);
  EXPECT_EQ(run(request_of("b", 200, 1))->finish->num_cached_tokens(), 192U);
  auto salted = request_of("c", 200, 1);
  salted.mutable_kv()->set_cache_salt("tenant");
  EXPECT_EQ(run(salted)->finish->num_cached_tokens(), 0U);
  auto bypass = request_of("d", 200, 1);
  bypass.mutable_kv()->set_bypass_prefix_cache(true);
  EXPECT_EQ(run(bypass)->finish->num_cached_tokens(), 0U);
  auto stream = open(request_of("e", 200, 1000));
  ASSERT_TRUE(run_until(reactor_, [&] { return !stream->ids.empty(); }));
  on_reactor([&] { EXPECT_FALSE(engine_->reset_prefix_cache()); });
  cancel(stream);
  expect_idle();
  on_reactor([&] { EXPECT_TRUE(engine_->reset_prefix_cache()); });
  EXPECT_EQ(run(request_of("f", 200, 1))->finish->num_cached_tokens(), 0U);
}

TEST_F(Engine, StopWithRunningStreamsEndsThemAtOnce) {
  MockOptions options;
  options.token_interval_ms = 5;
  start(options);
  const auto stream = open(request_of("a", 10, 1000));
  ASSERT_TRUE(run_until(reactor_, [&] { return !stream->ids.empty(); }));
  on_reactor([&] { engine_->stop(); });
  ASSERT_TRUE(run_until(reactor_, [&] { return stream->status.has_value(); }));
  EXPECT_EQ(stream->status->code, StatusCode::Unavailable);
}

}  // namespace
}  // namespace fairlead::mock
