#include "serving/dispatch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net/task_group.hpp"
#include "serving/fake_engines.hpp"
#include "serving/generation.hpp"
#include "serving/testing.hpp"

// The dispatch-time check of discovery spec §5.6, requirements CD-1 to CD-5. A snapshot that
// arrives between the choice of a worker and the sending of the request is played by the client
// factory, which runs between the two.

namespace fairlead::serving {
namespace {

using routing::RouterMode;
using testing::Engines;
using testing::FakeClient;
using ::testing::HasSubstr;
using testing::ids_of;
using ::testing::IsEmpty;
using testing::Recorder;
using enum engine::Capability;

constexpr RouterMode kModes[] = {RouterMode::RoundRobin, RouterMode::Random,
                                 RouterMode::PowerOfTwo, RouterMode::LeastLoaded,
                                 RouterMode::Kv,         RouterMode::Direct};

/// Two workers and what they can do.
struct Workers {
  engine::CapabilitySet first;
  engine::CapabilitySet second;
  std::vector<std::string> adapters;  // of both
};

constexpr engine::CapabilitySet kUpgraded{VllmXargs};
constexpr engine::CapabilitySet kOlder{};

std::shared_ptr<const fleet::Fleet> fleet_of(const Workers& workers) {
  auto set = std::make_shared<fleet::WorkerSet>();
  set->id = 1;
  set->slot_count = 2;
  for (std::size_t slot = 0; slot < 2; ++slot) {
    auto worker = std::make_shared<fleet::Worker>();
    worker->id = slot + 1;
    worker->slot = slot;
    worker->healthy = true;
    worker->capabilities = slot == 0 ? workers.first : workers.second;
    worker->adapters = workers.adapters;
    worker->endpoint.authority = "engine" + std::to_string(slot + 1);
    set->workers.push_back(std::move(worker));
  }
  auto base = std::make_shared<fleet::Model>();
  base->name = "m";
  base->worker_sets.push_back(set);
  auto fleet = std::make_shared<fleet::Fleet>();
  fleet->models.push_back(base);
  for (const char* name : {"sql", "gone"}) {
    auto adapter = std::make_shared<fleet::Model>(*base);
    adapter->name = name;
    adapter->base_name = "m";
    adapter->lora_name = name;
    fleet->models.push_back(std::move(adapter));
  }
  return fleet;
}

/// One frontend with its router; a test may need several.
class Frontend {
 public:
  Frontend(RouterMode mode, bool enforce)
      : router_(mode, 1),
        pool_({.threads = 1, .queue_jobs = 4}),
        registry_("fairlead_frontend", 1),
        service_(
            reactor_,
            [this](const engine::ClientOptions& options) {
              ++clients;
              if (auto job = std::exchange(before_sending, nullptr)) {
                job();
              }
              return std::make_unique<FakeClient>(engines, options.authority);
            },
            router_, pool_, registry_, options(enforce),
            [this](std::uint64_t worker, std::uint64_t, fleet::Outcome) {
              blamed.push_back(worker);
            }) {
    auto assets = std::make_shared<ModelContext>();
    assets->tokenizer = testing::byte_tokenizer();
    assets->eos_token_ids = {256};
    assets_ = std::move(assets);
  }
  ~Frontend() {
    in_turn([this] { tasks_.cancel(); });
  }
  Frontend(const Frontend&) = delete;
  Frontend& operator=(const Frontend&) = delete;

  void serve(const Workers& workers) { service_.set_fleet(fleet_of(workers)); }
  /// Serves this from the moment at which the next client is made.
  void serve_before_sending(const Workers& workers) {
    before_sending = [this, workers] { serve(workers); };
  }

  /// Sends a request; with `xargs` it cannot do without them.
  void send(bool xargs, std::optional<std::uint64_t> worker = {}, const std::string& model = "m") {
    GenerationSpec spec;
    spec.model = service_.fleet()->find(model);
    spec.assets = assets_;
    spec.request.stop.max_tokens = 10;
    spec.request.extra_args_required = xargs;
    spec.request.lora_name = spec.model->lora_name;
    spec.prompts = {ids_of("prompt")};
    spec.request_id = "r";
    spec.worker_id = worker;
    outcome.reset();
    in_turn([&] { tasks_.spawn(run(std::move(spec))); });
  }
  void in_turn(std::function<void()> job) {
    reactor_.post(std::move(job));
    reactor_.run_turn(std::chrono::milliseconds(0));
    reactor_.run_turn(std::chrono::milliseconds(0));
  }
  void fail_stream(std::size_t i, ErrorCode code) {
    in_turn([&] { engines.streams[i].sink->on_error({code, "gone", {}}); });
  }
  std::optional<ErrorCode> refusal() const {
    return outcome && !*outcome ? std::optional(outcome->error().code) : std::nullopt;
  }
  /// Requests that are booked or counted as running.
  std::int64_t booked() {
    return router_.in_flight(1) + router_.in_flight(2) + service_.metrics("m").inflight.get() +
           service_.metrics("m").queued.get();
  }
  Service& service() { return service_; }

  Engines engines;
  int clients = 0;
  std::function<void()> before_sending;
  std::vector<std::uint64_t> blamed;
  std::optional<Result<Usage>> outcome;

 private:
  static ServiceOptions options(bool enforce) {
    ServiceOptions options;
    options.retry_pause = net::Duration(0);
    options.enforce_capabilities = enforce;
    return options;
  }
  net::Task<> run(GenerationSpec spec) {
    Recorder encoder;
    observe::RequestScope scope(service_.metrics("m"), observe::Endpoint::Completions,
                                observe::RequestType::Stream, service_.seconds());
    Generation generation(service_, std::move(spec), encoder, scope);
    outcome = co_await generation.run();
    scope.finish(outcome->has_value() ? nullptr : &outcome->error(), service_.seconds());
  }

  net::Reactor reactor_;
  routing::Router router_;
  CpuPool pool_;
  observe::Registry registry_;
  Service service_;
  std::shared_ptr<const ModelContext> assets_;
  net::TaskGroup tasks_;
};

/// The worker a request of this mode has to name.
std::optional<std::uint64_t> pin(RouterMode mode) {
  return mode == RouterMode::Direct ? std::optional<std::uint64_t>(1) : std::nullopt;
}

TEST(Dispatch, BuiltinDispatchRequiresWorkerCapability) {
  for (const RouterMode mode : kModes) {
    for (const bool enforce : {true, false}) {
      Frontend frontend(mode, enforce);
      frontend.serve({kUpgraded, kUpgraded, {}});
      frontend.serve_before_sending({kOlder, kOlder, {}});
      frontend.send(true, pin(mode));
      if (!enforce) {
        ASSERT_EQ(frontend.engines.streams.size(), 1U) << "an older worker got it";
        EXPECT_TRUE(frontend.engines.streams[0].request.extra_args_required);
        continue;
      }
      EXPECT_EQ(frontend.refusal(), ErrorCode::CapabilityUnavailable);
      EXPECT_THAT(frontend.engines.streams, IsEmpty());
      frontend.send(false, pin(mode));
      EXPECT_EQ(frontend.engines.streams.size(), 1U) << "the ordinary request is delivered";
    }
  }
}

TEST(Dispatch, KvDispatchRequiresWorkerCapability) {
  for (const bool enforce : {true, false}) {
    Frontend frontend(RouterMode::Kv, enforce);
    frontend.serve({kUpgraded, kUpgraded, {}});
    frontend.serve_before_sending({kOlder, kOlder, {}});
    frontend.send(true);
    if (!enforce) {
      ASSERT_EQ(frontend.engines.streams.size(), 1U) << "an older worker got it";
      continue;
    }
    EXPECT_EQ(frontend.refusal(), ErrorCode::CapabilityUnavailable);
    EXPECT_THAT(frontend.engines.streams, IsEmpty()) << "neither there nor at the other worker";
    EXPECT_THAT(frontend.blamed, IsEmpty());
    EXPECT_EQ(frontend.booked(), 0);
    frontend.send(false);
    EXPECT_EQ(frontend.engines.streams.size(), 1U) << "the ordinary request is delivered";
  }
}

TEST(Dispatch, CD1_TheFinalWorkersRecordDecides) {
  Frontend frontend(RouterMode::Direct, true);
  frontend.serve({kUpgraded, kUpgraded, {}});
  frontend.serve_before_sending({kUpgraded, kOlder, {}});
  frontend.send(true, 1);
  EXPECT_EQ(frontend.engines.streams.size(), 1U) << "it still has it, whatever the other one has";
  frontend.serve({kUpgraded, kUpgraded, {}});
  frontend.serve_before_sending({kUpgraded, kOlder, {}});
  frontend.send(true, 2);
  EXPECT_EQ(frontend.refusal(), ErrorCode::CapabilityUnavailable);
}

TEST(Dispatch, CD2_TheRetryAtAnotherWorkerIsChecked) {
  for (const bool enforce : {true, false}) {
    for (const RouterMode mode : {RouterMode::RoundRobin, RouterMode::Random,
                                  RouterMode::PowerOfTwo, RouterMode::LeastLoaded}) {
      Frontend frontend(mode, enforce);
      frontend.serve({kUpgraded, kUpgraded, {}});
      frontend.send(true);
      ASSERT_EQ(frontend.engines.streams.size(), 1U);
      const std::uint64_t first = frontend.engines.streams[0].authority == "engine1" ? 1 : 2;
      frontend.serve_before_sending({kOlder, kOlder, {}});
      frontend.fail_stream(0, ErrorCode::EngineUnreachable);
      EXPECT_EQ(frontend.blamed, std::vector{first}) << "only the one that failed";
      if (enforce) {
        EXPECT_EQ(frontend.refusal(), ErrorCode::CapabilityUnavailable);
        EXPECT_EQ(frontend.engines.streams.size(), 1U);
      } else {
        EXPECT_EQ(frontend.engines.streams.size(), 2U);
      }
    }
  }
}

TEST(Dispatch, CD2_AMixedFleetRefusesTheRetryToo) {
  Frontend frontend(RouterMode::RoundRobin, true);
  frontend.serve({kUpgraded, kUpgraded, {}});
  frontend.send(true);
  const bool first = frontend.engines.streams[0].authority == "engine1";
  frontend.in_turn([&] {
    frontend.serve(first ? Workers{kUpgraded, kOlder, {}} : Workers{kOlder, kUpgraded, {}});
  });
  frontend.fail_stream(0, ErrorCode::EngineUnreachable);
  EXPECT_EQ(frontend.refusal(), ErrorCode::CapabilityUnavailable);
  EXPECT_EQ(frontend.engines.streams.size(), 1U);
}

TEST(Dispatch, CD2_AdaptersAreCheckedLikeCapabilities) {
  const engine::CapabilitySet both{VllmXargs, Lora};
  for (const bool enforce : {true, false}) {
    Frontend frontend(RouterMode::RoundRobin, enforce);
    frontend.serve({both, both, {"sql"}});
    frontend.serve_before_sending({{Lora}, {Lora}, {"sql"}});
    frontend.send(true, {}, "sql");
    EXPECT_EQ(frontend.engines.streams.size(), enforce ? 0U : 1U) << "lost the capability";
    frontend.serve({both, both, {"sql"}});
    frontend.serve_before_sending({both, both, {}});
    frontend.send(true, {}, "sql");
    EXPECT_EQ(frontend.engines.streams.size(), enforce ? 0U : 2U) << "lost the adapter";
    if (enforce) {
      EXPECT_EQ(frontend.refusal(), ErrorCode::CapabilityUnavailable);
      EXPECT_THAT(frontend.outcome->error().message, HasSubstr("lora"));
    }
    frontend.serve({both, both, {"sql"}});
    frontend.send(true, {}, "sql");
    ASSERT_FALSE(frontend.engines.streams.empty());
    EXPECT_EQ(frontend.engines.streams.back().request.lora_name, "sql");
    frontend.send(false, {}, "gone");
    EXPECT_EQ(frontend.refusal(), ErrorCode::NoWorkers) << "no worker has this one";
  }
}

TEST(Dispatch, CD3_ARefusalIsSentNowhereBlamesNobodyAndIsNotRetried) {
  Frontend frontend(RouterMode::RoundRobin, true);
  frontend.serve({kUpgraded, kUpgraded, {}});
  frontend.serve_before_sending({kOlder, kOlder, {}});
  frontend.send(true);
  ASSERT_TRUE(frontend.outcome && !*frontend.outcome);
  const Error& error = frontend.outcome->error();
  EXPECT_EQ(traits(error.code).http_status, 503);
  EXPECT_EQ(error.param, "vllm_xargs");
  EXPECT_THAT(error.client_message(), HasSubstr("vllm_xargs"));
  EXPECT_FALSE(traits(error.code).worker_down);
  EXPECT_FALSE(traits(error.code).migratable);
  EXPECT_EQ(frontend.clients, 1) << "no other worker was tried";
  EXPECT_THAT(frontend.engines.streams, IsEmpty());
  EXPECT_THAT(frontend.blamed, IsEmpty());
}

TEST(Dispatch, CD4_OrdinaryRequestsStillGoThere) {
  Frontend frontend(RouterMode::RoundRobin, true);
  frontend.serve({kUpgraded, kUpgraded, {}});
  frontend.serve_before_sending({kOlder, kOlder, {}});
  frontend.send(false);
  frontend.send(false);
  EXPECT_EQ(frontend.engines.streams.size(), 2U);
}

TEST(Dispatch, CD5_ARefusalGivesEveryBookingBack) {
  for (const RouterMode mode : kModes) {
    Frontend frontend(mode, true);
    frontend.serve({kUpgraded, kUpgraded, {}});
    frontend.serve_before_sending({kOlder, kOlder, {}});
    frontend.send(true, pin(mode));
    EXPECT_EQ(frontend.refusal(), ErrorCode::CapabilityUnavailable);
    EXPECT_EQ(frontend.booked(), 0);
  }
}

TEST(Dispatch, AWorkerThatLeftIsNotCalled) {
  Frontend frontend(RouterMode::RoundRobin, true);
  frontend.serve({kUpgraded, kUpgraded, {}});
  frontend.before_sending = [&] { frontend.service().set_fleet(std::make_shared<fleet::Fleet>()); };
  frontend.send(false);
  EXPECT_EQ(frontend.refusal(), ErrorCode::EngineUnreachable);
  EXPECT_THAT(frontend.engines.streams, IsEmpty());
}

}  // namespace
}  // namespace fairlead::serving
