#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/client.hpp"
#include "fleet/resolver.hpp"
#include "net/event.hpp"

namespace fairlead::fleet::testing {

/// One pretended engine; tests change it while it is watched.
struct FakeEngine {
  std::optional<engine::EngineInfo> info;  ///< Absent: nothing listens.
  bool hangs = false;                      ///< Takes connections and never answers.
  std::optional<Error> health_error;       ///< Answers probes, but is not well.
  int probes = 0;
  int checks = 0;
  std::vector<net::Address> addresses;  ///< Last ones given to its client.
  bool tells_load = false;              ///< Its wire can tell how full its caches are.
  std::optional<std::vector<engine::KvUsage>> usage;  ///< What it says of that; absent: fails.
  int usage_asked = 0;

  // What becomes of generations; by default they end with one token.
  std::optional<Error> refuses;            ///< They cannot be opened.
  std::optional<Error> fails;              ///< They fail.
  bool silent = false;                     ///< Nothing ever comes of them.
  bool unfinished = false;                 ///< Tokens come, the end does not.
  std::vector<engine::TokenId> answer{7};  ///< Their tokens.
  engine::FinishReason reason = engine::FinishReason::Length;
  std::vector<engine::GenerateRequest> generations;  ///< What was asked for.
  int streams = 0;                                   ///< Generations that run.
};

/// A generation of a pretended engine, which answers in a later turn.
class FakeStream final : public engine::EngineStream {
 public:
  FakeStream(FakeEngine& fake, engine::TokenSink& sink)
      : fake_(fake), timer_([this, &sink] { answer(sink); }) {
    ++fake_.streams;
    if (!fake_.silent) {
      timer_.arm(std::chrono::milliseconds(1));
    }
  }
  ~FakeStream() override { --fake_.streams; }
  void pause() override {}
  void resume() override {}

 private:
  void answer(engine::TokenSink& sink) {
    if (fake_.fails) {
      sink.on_error(*fake_.fails);
      return;
    }
    engine::Finish finish;
    finish.reason = fake_.reason;
    finish.output_tokens = static_cast<std::uint32_t>(fake_.answer.size());
    sink.on_tokens(
        {.ids = fake_.answer, .logprobs = {}, .finish = fake_.unfinished ? nullptr : &finish});
  }

  FakeEngine& fake_;
  net::Timer timer_;
};

/// A client of a pretended engine.
class FakeClient final : public engine::EngineClient {
 public:
  explicit FakeClient(FakeEngine& fake) : fake_(fake) {}

  net::Task<Result<engine::EngineInfo>> probe(net::TimePoint deadline) override {
    ++fake_.probes;
    const Result<> alive = co_await answer(deadline);
    if (!alive) {
      co_return std::unexpected(alive.error());
    }
    if (fake_.health_error) {
      co_return std::unexpected(*fake_.health_error);
    }
    co_return *fake_.info;
  }
  net::Task<Result<>> check_health(net::TimePoint deadline) override {
    ++fake_.checks;
    const Result<> alive = co_await answer(deadline);
    if (alive && fake_.health_error) {
      co_return std::unexpected(*fake_.health_error);
    }
    co_return alive;
  }
  bool reports_kv_usage() const override { return fake_.tells_load; }
  net::Task<Result<std::vector<engine::KvUsage>>> kv_usage(net::TimePoint deadline) override {
    ++fake_.usage_asked;
    const Result<> alive = co_await answer(deadline);
    if (!alive) {
      co_return std::unexpected(alive.error());
    }
    if (!fake_.usage) {
      co_return fail(ErrorCode::EngineUnreachable, "no metrics");
    }
    co_return *fake_.usage;
  }
  Result<std::unique_ptr<engine::EngineStream>> open(const engine::GenerateRequest& request,
                                                     engine::TokenSink& sink) override {
    fake_.generations.push_back(request);
    if (fake_.refuses) {
      return std::unexpected(*fake_.refuses);
    }
    return std::make_unique<FakeStream>(fake_, sink);
  }
  void set_addresses(std::vector<net::Address> addresses) override {
    fake_.addresses = std::move(addresses);
  }

 private:
  /// Answers in a later turn, as a network does.
  net::Task<Result<>> answer(net::TimePoint deadline) {
    if (fake_.hangs) {
      net::Event never;
      co_await never.wait_until(deadline);
      co_return fail(ErrorCode::EngineConnectTimeout, "Check: deadline exceeded");
    }
    co_await net::Sleep(std::chrono::milliseconds(1));
    if (!fake_.info) {
      co_return fail(ErrorCode::EngineUnreachable, "connection refused");
    }
    co_return Result<>();
  }

  FakeEngine& fake_;
};

/// A resolver whose answers tests decide: a name without an entry is looked up for ever.
class FakeResolver final : public Resolver {
 public:
  using Answer = Result<std::vector<net::Address>>;

  net::Task<Answer> resolve(std::string host, std::uint16_t) override {
    ++asked[host];
    while (!answers.contains(host)) {
      co_await net::Sleep(std::chrono::milliseconds(1));
    }
    co_return answers.at(host);
  }

  std::map<std::string, Answer> answers;
  std::map<std::string, int> asked;
};

}  // namespace fairlead::fleet::testing
