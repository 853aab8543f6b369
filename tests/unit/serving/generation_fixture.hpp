#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net/testing.hpp"
#include "serving/fake_engines.hpp"
#include "serving/generation.hpp"
#include "serving/testing.hpp"

namespace fairlead::serving::testing {

/// A generation on two fake engines (or on what `set_model` says), fed by the test.
class GenerationFixture : public ::testing::Test {
 protected:
  explicit GenerationFixture(ServiceOptions options = default_options())
      : router_(routing::RouterMode::RoundRobin, 1),
        pool_({.threads = 1, .queue_jobs = 4}),
        registry_("fairlead_frontend", 1),
        service_(
            reactor_,
            [this](const engine::ClientOptions& options) {
              return std::make_unique<FakeClient>(engines_, options.authority);
            },
            router_, pool_, registry_, std::move(options),
            [this](std::uint64_t worker, std::uint64_t, fleet::Outcome outcome) {
              outcomes_.push_back(outcome);
              if (outcome == fleet::Outcome::Down) {
                reported_.push_back(worker);
              }
            }) {
    set_model({make_set(1, fleet::Role::Aggregated, engine::Backend::Vllm, 1, 2)});
    auto assets = std::make_shared<ModelContext>();
    assets->tokenizer = byte_tokenizer();
    assets->eos_token_ids = {256};
    assets_ = std::move(assets);
  }

  static ServiceOptions default_options() {
    ServiceOptions options;
    options.stream_timeout = std::chrono::milliseconds(1);
    options.retry_pause = net::Duration(0);
    return options;
  }

  /// Workers `first_id`... of a set; `engineID` is their authority.
  static std::shared_ptr<fleet::WorkerSet> make_set(std::uint64_t id, fleet::Role role,
                                                    engine::Backend backend, std::uint64_t first_id,
                                                    std::size_t count) {
    auto set = std::make_shared<fleet::WorkerSet>();
    set->id = id;
    set->role = role;
    set->slot_count = count;
    for (std::size_t slot = 0; slot < count; ++slot) {
      auto worker = std::make_shared<fleet::Worker>();
      worker->id = first_id + slot;
      worker->slot = slot;
      worker->role = role;
      worker->backend = backend;
      worker->healthy = true;
      worker->endpoint.authority = "engine" + std::to_string(worker->id);
      worker->endpoint.host = "host" + std::to_string(worker->id);
      worker->info.bootstrap_port = 8998;
      worker->capabilities = {engine::Capability::PromptLogprobs};
      set->workers.push_back(std::move(worker));
    }
    return set;
  }

  void set_model(std::vector<std::shared_ptr<const fleet::WorkerSet>> sets) {
    auto model = std::make_shared<fleet::Model>();
    model->name = "m";
    model->worker_sets = std::move(sets);
    model_ = model;
    auto fleet = std::make_shared<fleet::Fleet>();
    fleet->models.push_back(std::move(model));
    service_.set_fleet(std::move(fleet));
  }

  GenerationSpec spec(std::string_view prompt) {
    GenerationSpec spec;
    spec.model = model_;
    spec.assets = assets_;
    spec.request.stop.max_tokens = 10;
    spec.prompts = {ids_of(prompt)};
    spec.request_id = "r";
    return spec;
  }

  // Starts the generation; the outcome lands in `outcome_`.
  void start(GenerationSpec spec) {
    reactor_.post([this, spec = std::move(spec)]() mutable {
      tasks_.emplace();
      tasks_->spawn(run(std::move(spec)));
    });
    turn();
  }

  net::Task<> run(GenerationSpec spec) {
    observe::RequestScope scope(service_.metrics("m"), observe::Endpoint::Completions,
                                observe::RequestType::Stream, service_.seconds());
    Generation generation(service_, std::move(spec), encoder_, scope);
    outcome_ = co_await generation.run();
    scope.finish(outcome_->has_value() ? nullptr : &outcome_->error(), service_.seconds());
  }

  // Runs `job` inside a turn, then the turn that follows from it.
  void in_turn(std::function<void()> job) {
    reactor_.post(std::move(job));
    turn();
  }
  void turn() {
    reactor_.run_turn(std::chrono::milliseconds(0));
    reactor_.run_turn(std::chrono::milliseconds(0));
  }

  void expect_nothing_left() {
    for (const auto& set : model_->worker_sets) {
      for (const auto& worker : set->workers) {
        EXPECT_EQ(router_.in_flight(worker->id), 0u);
      }
    }
    EXPECT_EQ(service_.metrics("m").inflight.get(), 0);
    EXPECT_EQ(service_.metrics("m").queued.get(), 0);
    for (const auto& stream : engines_.streams) {
      EXPECT_EQ(stream.sink, nullptr);
    }
  }

  net::Reactor reactor_;
  Engines engines_;
  routing::Router router_;
  CpuPool pool_;
  observe::Registry registry_;
  std::vector<std::uint64_t> reported_;  // as down
  std::vector<fleet::Outcome> outcomes_;
  Service service_;
  std::shared_ptr<const fleet::Model> model_;
  std::shared_ptr<const ModelContext> assets_;
  Recorder encoder_;
  std::optional<Result<Usage>> outcome_;
  std::optional<net::TaskGroup> tasks_;
};

inline engine::Finish finished(std::uint32_t tokens) {
  engine::Finish finish;
  finish.reason = engine::FinishReason::Length;
  finish.output_tokens = tokens;
  finish.cached_prompt_tokens = 1;
  return finish;
}

}  // namespace fairlead::serving::testing
