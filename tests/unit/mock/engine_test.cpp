#include <chrono>
#include <random>

#include "mock/engine_fixture.hpp"

namespace fairlead::mock {
namespace {

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

}  // namespace
}  // namespace fairlead::mock
