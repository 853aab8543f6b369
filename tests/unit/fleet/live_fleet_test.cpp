#include "fleet/live_fleet.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fleet/fake_engines.hpp"
#include "fleet/flag_cards.hpp"
#include "net/testing.hpp"

namespace fairlead::fleet {
namespace {

using testing::FakeClient;
using testing::FakeEngine;
using testing::FakeResolver;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

engine::EngineInfo info_of(std::string instance = "life-1", const std::string& model = "m") {
  engine::EngineInfo info;
  info.model_id = "/models/" + model;
  info.served_model_name = model;
  info.instance_id = std::move(instance);
  info.dialect = "vllm.Inference";
  info.max_model_len = 1024;
  info.kv_block_size = 16;
  return info;
}

class LiveFleetTest : public net::testing::ReactorTest {
 public:
  ~LiveFleetTest() override {
    in_turn([this] { fleet.reset(); });
  }

 protected:
  /// Engines are named by their endpoint; intervals are short, so that nothing waits long.
  void start(const std::vector<std::string>& urls, const std::vector<std::string>& prefill = {},
             const std::function<void(LiveFleetOptions&)>& adjust = {}) {
    start_with(flag_cards(named(urls), named(prefill)), adjust);
  }
  static std::vector<NamedEngine> named(const std::vector<std::string>& urls) {
    std::vector<NamedEngine> out;
    for (const std::string& url : urls) {
      out.push_back({.endpoint = *parse_endpoint(url)});
    }
    return out;
  }
  void start_with(std::vector<Card> cards,
                  const std::function<void(LiveFleetOptions&)>& adjust = {}) {
    LiveFleetOptions options;
    options.succession_after = 10ms;
    options.retry_interval = 10ms;
    options.health_interval = 10ms;
    options.attempt_timeout = 5s;
    options.health_timeout = 5s;
    options.checks_per_probe = 2;
    if (adjust) {
      adjust(options);
    }
    in_turn([&] {
      fleet = std::make_unique<LiveFleet>(
          std::move(options),
          [this](const engine::ClientOptions& client) {
            FakeEngine& fake = engines[client.authority];
            fake.addresses = client.addresses;
            return std::make_unique<FakeClient>(fake);
          },
          resolver,
          [this](std::shared_ptr<const Fleet> snapshot) {
            EXPECT_GT(snapshot->generation, newest ? newest->generation : 0);
            newest = std::move(snapshot);
            ++snapshots;
          });
      fleet->set_cards("flags", std::move(cards));
      fleet->start();
    });
  }
  void set_cards(std::vector<Card> cards, std::string_view source = "flags") {
    in_turn([&] { fleet->set_cards(source, std::move(cards)); });
  }

  std::shared_ptr<const Model> model(std::string_view name = "m") const {
    return newest ? newest->find(name) : nullptr;
  }
  std::size_t healthy(std::string_view name = "m") const {
    const auto found = model(name);
    const WorkerSet* set = found ? found->serving_set() : nullptr;
    return set ? set->healthy() : 0;
  }
  std::shared_ptr<const Worker> worker(std::string_view url) const {
    return newest ? newest->worker(worker_id(url)) : nullptr;
  }

  std::map<std::string, FakeEngine> engines;
  FakeResolver resolver;
  std::shared_ptr<const Fleet> newest;
  int snapshots = 0;
  std::unique_ptr<LiveFleet> fleet;
};

constexpr const char* kA = "http://127.0.0.1:7001";
constexpr const char* kB = "http://127.0.0.1:7002";
constexpr const char* kP = "http://127.0.0.1:7003";
constexpr const char* kAKey = "127.0.0.1:7001";
constexpr const char* kBKey = "127.0.0.1:7002";
constexpr const char* kPKey = "127.0.0.1:7003";

TEST_F(LiveFleetTest, EnginesThatAreUpAreServed) {
  engines[kAKey].info = info_of();
  engines[kBKey].info = info_of("life-2");
  engines[kBKey].info->max_model_len = 512;
  engines[kAKey].info->aliases = {"alias"};
  engines[kAKey].info->kv_event_sources = {{.endpoint = "tcp://*:5557",
                                            .replay_endpoint = "tcp://*:5558",
                                            .topic = {},
                                            .data_parallel_rank = 0,
                                            .buffer_steps = 0}};
  start({kA, kB});
  ASSERT_TRUE(wait([&] { return healthy() == 2; }));
  const auto found = model();
  EXPECT_EQ(found->context_length, 512U);
  EXPECT_EQ(found->kv_block_size, 16U);
  EXPECT_EQ(found->model_id, "/models/m");
  EXPECT_GT(found->created, 1'000'000'000);
  EXPECT_TRUE(found->ready());
  EXPECT_EQ(newest->find("alias"), found);
  EXPECT_EQ(newest->find("other"), nullptr);
  const WorkerSet* set = found->set(Role::Aggregated);
  ASSERT_NE(set, nullptr);
  EXPECT_EQ(set->slot_count, 2U);
  ASSERT_EQ(set->workers.size(), 2U);
  const auto a = worker(kA);
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->id, worker_id(kA));
  EXPECT_EQ(a->slot, 0U);
  EXPECT_EQ(a->role, Role::Aggregated);
  EXPECT_EQ(a->addresses, std::vector{*net::Address::parse("127.0.0.1", 7001)});
  EXPECT_EQ(a->info.kv_event_sources[0].endpoint, "tcp://127.0.0.1:5557");
  EXPECT_EQ(a->info.kv_event_sources[0].replay_endpoint, "tcp://127.0.0.1:5558");
  EXPECT_EQ(set->in_slot(1)->endpoint.url, kB);
  EXPECT_EQ(set->in_slot(2), nullptr);
  const engine::ClientOptions client = a->client_options();
  EXPECT_EQ(client.authority, kAKey);
  EXPECT_EQ(client.dialect, "vllm.Inference");
  EXPECT_EQ(client.model, "m");
  EXPECT_TRUE(fleet->first_round_done());
  EXPECT_EQ(fleet->snapshot(), newest);
}

TEST_F(LiveFleetTest, ParsersOfEnginesAreReportedOnly) {
  engines[kAKey].info = info_of();
  engines[kAKey].info->tool_call_parser = "qwen3_xml";
  engines[kAKey].info->reasoning_parser = "none";
  ::testing::internal::CaptureStderr();
  start({kA});
  ASSERT_TRUE(wait([&] { return healthy() == 1; }));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("probed vLLM engine for direct routing endpoint=http://127.0.0.1:7001 "
                             "mode=Aggregated model=/models/m kv_event_sources=0 "
                             "vllm_tool_call_parser=\"qwen3_xml\" vllm_reasoning_parser=\"none\""));
  EXPECT_THAT(log, HasSubstr("serving directly dialed engines decode_engines=1 prefill_engines=0"));
}

TEST_F(LiveFleetTest, ThePrefillListDecidesRoles) {
  engines[kAKey].info = info_of();
  engines[kPKey].info = info_of();
  ::testing::internal::CaptureStderr();
  start({kA}, {kP});
  ASSERT_TRUE(wait([&] { return worker(kA) && worker(kP); }));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("endpoint=http://127.0.0.1:7001 mode=Aggregated"));
  EXPECT_THAT(log, HasSubstr("endpoint=http://127.0.0.1:7003 mode=Prefill"));
  EXPECT_THAT(log, HasSubstr("decode_engines=1 prefill_engines=1"));
  EXPECT_EQ(worker(kA)->role, Role::Decode);
  EXPECT_EQ(worker(kP)->role, Role::Prefill);
  EXPECT_EQ(model()->serving_set(), model()->set(Role::Decode));
  EXPECT_EQ(model()->set(Role::Aggregated), nullptr);
  EXPECT_NE(model()->set(Role::Prefill)->id, model()->set(Role::Decode)->id);
}

TEST_F(LiveFleetTest, OthersAreDecodeEvenWhileThePrefillEngineIsDown) {
  engines[kAKey].info = info_of();
  start({kA}, {kP});
  ASSERT_TRUE(wait([&] { return healthy() == 1; }));
  EXPECT_EQ(worker(kA)->role, Role::Decode);
  EXPECT_EQ(model()->set(Role::Prefill), nullptr);
  EXPECT_FALSE(model()->ready()) << "Decode needs Prefill";
}

TEST_F(LiveFleetTest, AnEngineThatTellsItsRoleDecidesAndMayComeBackWithAnother) {
  engines[kAKey].info = info_of();
  engines[kAKey].info->role = engine::Leg::Decode;
  engines[kBKey].info = info_of("life-2");
  engines[kBKey].info->role = engine::Leg::Prefill;
  engines[kBKey].info->bootstrap_port = 8998;
  ::testing::internal::CaptureStderr();
  start({kA, kB});
  ASSERT_TRUE(wait([&] { return worker(kA) && worker(kB) && model()->ready(); }));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("endpoint=http://127.0.0.1:7001 mode=Decode"));
  EXPECT_THAT(log, HasSubstr("endpoint=http://127.0.0.1:7002 mode=Prefill"));
  EXPECT_THAT(log, HasSubstr("decode_engines=1 prefill_engines=1"));
  EXPECT_EQ(worker(kA)->role, Role::Decode);
  EXPECT_EQ(worker(kB)->role, Role::Prefill);
  EXPECT_EQ(worker(kB)->info.bootstrap_host, "127.0.0.1") << "that of the endpoint";
  const std::uint64_t incarnation = worker(kB)->incarnation;
  engines[kBKey].info->role = engine::Leg::Decode;  // the same process id, by chance
  ASSERT_TRUE(wait([&] { return worker(kB)->role == Role::Decode; }));
  EXPECT_NE(worker(kB)->incarnation, incarnation);
  EXPECT_FALSE(model()->ready()) << "nobody prefills";
  EXPECT_EQ(model()->set(Role::Prefill), nullptr);
}

TEST_F(LiveFleetTest, ReadinessFollowsThePrefillEngineAtOnce) {
  engines[kAKey].info = info_of();
  engines[kPKey].info = info_of();
  start({kA}, {kP});
  ASSERT_TRUE(wait([&] { return model() && model()->ready(); }));
  in_turn([&] {
    fleet->report(worker(kP)->id, worker(kP)->incarnation, Outcome::Down);
    EXPECT_FALSE(model()->ready());
  });
  ASSERT_TRUE(wait([&] { return model()->ready(); }));
}

TEST_F(LiveFleetTest, WithTheFallbackDecodeIsReadyAlone) {
  engines[kAKey].info = info_of();
  start({kA}, {kP}, [](LiveFleetOptions& options) { options.decode_alone = true; });
  ASSERT_TRUE(wait([&] { return healthy() == 1; }));
  EXPECT_TRUE(model()->ready());
  EXPECT_EQ(worker(kA)->role, Role::Decode);
}

TEST_F(LiveFleetTest, EnginesThatAreDownAtStartJoinLater) {
  engines[kAKey].info = info_of();
  start({kA, kB});
  ASSERT_TRUE(wait([&] { return healthy() == 1 && engines[kBKey].probes > 2; }));
  EXPECT_EQ(worker(kB), nullptr);
  engines[kBKey].info = info_of("life-2");
  ASSERT_TRUE(wait([&] { return healthy() == 2; }));
  EXPECT_EQ(worker(kB)->slot, 1U);
}

TEST_F(LiveFleetTest, NothingIsServedBeforeAnyEngineAnswers) {
  start({kA});
  ASSERT_TRUE(wait([&] { return engines[kAKey].probes > 2; }));
  EXPECT_EQ(model(), nullptr);
  EXPECT_TRUE(fleet->snapshot()->models.empty());
  engines[kAKey].info = info_of();
  ASSERT_TRUE(wait([&] { return healthy() == 1; }));
}

TEST_F(LiveFleetTest, AHangingEngineDelaysNoOther) {
  engines[kAKey].hangs = true;
  engines[kBKey].info = info_of();
  start({kA, kB});
  ASSERT_TRUE(wait([&] { return healthy() == 1; }));
  EXPECT_FALSE(fleet->first_round_done());
  EXPECT_EQ(engines[kAKey].probes, 1);
}

TEST_F(LiveFleetTest, ANameThatDoesNotResolveDelaysNoOther) {
  engines[kBKey].info = info_of();
  start({"http://nowhere:7001", kB});
  ASSERT_TRUE(wait([&] { return healthy() == 1; }));
  EXPECT_EQ(resolver.asked["nowhere"], 1);
  // It fails at last, later resolves, and joins.
  resolver.answers.emplace("nowhere", fail(ErrorCode::EngineUnreachable, "no such host"));
  ASSERT_TRUE(wait([&] { return resolver.asked["nowhere"] > 2; }));
  EXPECT_TRUE(fleet->first_round_done());
  engines["nowhere:7001"].info = info_of("life-2");
  resolver.answers.at("nowhere") = std::vector{*net::Address::parse("10.0.0.1", 7001)};
  ASSERT_TRUE(wait([&] { return healthy() == 2; }));
  EXPECT_EQ(worker("http://nowhere:7001")->addresses[0].to_string(), "10.0.0.1:7001");
}

TEST_F(LiveFleetTest, NamesAreLookedUpAgainAndNewAddressesArePublished) {
  engines["engine:7001"].info = info_of();
  resolver.answers.emplace("engine", std::vector{*net::Address::parse("10.0.0.1", 7001)});
  start({"engine:7001"}, {}, [](LiveFleetOptions& options) { options.resolve_interval = 10ms; });
  ASSERT_TRUE(wait([&] { return healthy() == 1 && resolver.asked["engine"] > 2; }));
  const std::uint64_t incarnation = worker("http://engine:7001")->incarnation;
  // A failing look-up keeps what is known.
  resolver.answers.at("engine") = fail(ErrorCode::EngineUnreachable, "server failure");
  const int asked = resolver.asked["engine"];
  ASSERT_TRUE(wait([&] { return resolver.asked["engine"] > asked + 1; }));
  EXPECT_EQ(healthy(), 1U);
  resolver.answers.at("engine") = std::vector{*net::Address::parse("10.0.0.2", 7001)};
  ASSERT_TRUE(wait(
      [&] { return worker("http://engine:7001")->addresses[0].to_string() == "10.0.0.2:7001"; }));
  EXPECT_EQ(engines["engine:7001"].addresses[0].to_string(), "10.0.0.2:7001");
  EXPECT_EQ(worker("http://engine:7001")->incarnation, incarnation);
}

TEST_F(LiveFleetTest, AFailureLooksTheNameUpAtOnce) {
  engines["engine:7001"].info = info_of();
  resolver.answers.emplace("engine", std::vector{*net::Address::parse("10.0.0.1", 7001)});
  start({"engine:7001"}, {}, [](LiveFleetOptions& options) { options.resolve_interval = 1h; });
  ASSERT_TRUE(wait([&] { return healthy() == 1; }));
  EXPECT_EQ(resolver.asked["engine"], 1);
  engines["engine:7001"].info.reset();
  ASSERT_TRUE(wait([&] { return resolver.asked["engine"] > 1; }));
}

TEST_F(LiveFleetTest, AReportedWorkerLeavesAtOnceAndComesBack) {
  engines[kAKey].info = info_of();
  engines[kBKey].info = info_of("life-2");
  start({kA, kB});
  ASSERT_TRUE(wait([&] { return healthy() == 2; }));
  const std::uint64_t incarnation = worker(kA)->incarnation;
  in_turn([&] {
    fleet->report(worker_id(kA), incarnation, Outcome::Down);
    EXPECT_EQ(healthy(), 1U);
    ASSERT_NE(worker(kA), nullptr) << "unhealthy workers stay listed";
    EXPECT_FALSE(worker(kA)->healthy);
    EXPECT_EQ(worker(kA)->slot, 0U);
  });
  ASSERT_TRUE(wait([&] { return healthy() == 2; }));
  EXPECT_GT(worker(kA)->incarnation, incarnation);
  // What still fails of the former life says nothing about this one.
  const int before = snapshots;
  in_turn([&] { fleet->report(worker_id(kA), incarnation, Outcome::Down); });
  EXPECT_EQ(snapshots, before);
  EXPECT_EQ(healthy(), 2U);
}

TEST_F(LiveFleetTest, ReportsAboutStrangersAreIgnored) {
  engines[kAKey].info = info_of();
  start({kA});
  ASSERT_TRUE(wait([&] { return healthy() == 1; }));
  in_turn([&] { fleet->report(42, 0, Outcome::Down); });
  EXPECT_EQ(healthy(), 1U);
}

TEST_F(LiveFleetTest, AWorkerThatKeepsFailingWaitsLonger) {
  engines[kAKey].info = info_of();
  start({kA});
  ASSERT_TRUE(wait([&] { return healthy() == 1; }));
  const auto fail_once = [&] {
    in_turn([&] { fleet->report(worker_id(kA), worker(kA)->incarnation, Outcome::Down); });
    const auto left = net::Clock::now();
    EXPECT_TRUE(wait([&] { return healthy() == 1; }));
    return net::Clock::now() - left;
  };
  fail_once();
  EXPECT_GE(fail_once(), 250ms);
  EXPECT_GE(fail_once(), 500ms);
}

TEST_F(LiveFleetTest, AnEngineThatDiesLeavesWithoutAnyRequest) {
  engines[kAKey].info = info_of();
  engines[kBKey].info = info_of("life-2");
  start({kA, kB});
  ASSERT_TRUE(wait([&] { return healthy() == 2; }));
  engines[kAKey].info.reset();
  ASSERT_TRUE(wait([&] { return healthy() == 1; }));
  EXPECT_FALSE(worker(kA)->healthy);
  engines[kAKey].info = info_of("life-3");
  ASSERT_TRUE(wait([&] { return healthy() == 2; }));
  EXPECT_EQ(worker(kA)->info.instance_id, "life-3");
}

TEST_F(LiveFleetTest, AnEngineThatIsNotServingLeaves) {
  engines[kAKey].info = info_of();
  start({kA});
  ASSERT_TRUE(wait([&] { return healthy() == 1; }));
  engines[kAKey].health_error = Error{ErrorCode::EngineUnreachable, "not serving", {}};
  ASSERT_TRUE(wait([&] { return healthy() == 0; }));
  EXPECT_NE(model(), nullptr) << "the model stays known";
  EXPECT_FALSE(model()->ready());
  engines[kAKey].health_error.reset();
  ASSERT_TRUE(wait([&] { return healthy() == 1; }));
}

TEST_F(LiveFleetTest, OneLateCheckIsForgivenManyAreNot) {
  engines[kAKey].info = info_of();
  start({kA}, {}, [](LiveFleetOptions& options) { options.health_timeout = 10ms; });
  ASSERT_TRUE(wait([&] { return healthy() == 1; }));
  FakeEngine& fake = engines[kAKey];
  const int before = snapshots;
  const int asked = fake.probes + fake.checks;
  fake.hangs = true;
  ASSERT_TRUE(wait([&] { return fake.probes + fake.checks > asked; }));
  fake.hangs = false;
  ASSERT_TRUE(wait([&] { return fake.probes + fake.checks > asked + 5; }));
  EXPECT_EQ(snapshots, before);
  fake.hangs = true;
  ASSERT_TRUE(wait([&] { return healthy() == 0; }));
}

TEST_F(LiveFleetTest, ARestartWithOtherLimitsIsNoticed) {
  engines[kAKey].info = info_of();
  start({kA});
  ASSERT_TRUE(wait([&] { return healthy() == 1; }));
  const std::uint64_t incarnation = worker(kA)->incarnation;
  const std::int64_t created = model()->created;
  const std::uint64_t set_id = model()->serving_set()->id;
  engines[kAKey].info = info_of("life-2");
  engines[kAKey].info->max_model_len = 4096;
  ASSERT_TRUE(wait([&] { return model()->context_length == 4096; }));
  EXPECT_GT(worker(kA)->incarnation, incarnation);
  EXPECT_EQ(model()->created, created);
  EXPECT_EQ(model()->serving_set()->id, set_id);
}

TEST_F(LiveFleetTest, NothingNewPublishesNothing) {
  engines[kAKey].info = info_of();
  start({kA});
  ASSERT_TRUE(wait([&] { return healthy() == 1; }));
  const int before = snapshots;
  const int probes = engines[kAKey].probes;
  ASSERT_TRUE(wait([&] { return engines[kAKey].probes > probes + 3; }));
  EXPECT_EQ(snapshots, before);
}

TEST_F(LiveFleetTest, AnEngineThatDiffersIsNamedAndLeftOut) {
  engines[kAKey].info = info_of();
  start({kA, kB});
  ASSERT_TRUE(wait([&] { return healthy() == 1; }));
  ::testing::internal::CaptureStderr();
  engines[kBKey].info = info_of("life-2");
  engines[kBKey].info->model_id = "/models/other";
  ASSERT_TRUE(wait([&] { return engines[kBKey].checks > 2; }));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(worker(kB), nullptr);
  EXPECT_EQ(healthy(), 1U);
  EXPECT_THAT(log, HasSubstr("engine left out"));
  EXPECT_THAT(log, HasSubstr("endpoint=http://127.0.0.1:7002"));
  EXPECT_THAT(log, HasSubstr("model id `/models/other` instead of `/models/m`"));
  // Once it agrees it joins.
  engines[kBKey].info = info_of("life-3");
  ASSERT_TRUE(wait([&] { return healthy() == 2; }));
}

TEST_F(LiveFleetTest, AFleetMayMoveToAnotherModelAsAWhole) {
  engines[kAKey].info = info_of();
  engines[kBKey].info = info_of();
  start({kA, kB});
  ASSERT_TRUE(wait([&] { return healthy() == 2; }));
  const std::uint64_t set_id = model()->serving_set()->id;
  engines[kAKey].info = info_of("life-2", "next");
  ASSERT_TRUE(wait([&] { return healthy() == 1; }));
  EXPECT_EQ(healthy("next"), 1U) << "the first to move makes a model of its own";
  engines[kBKey].info = info_of("life-2", "next");
  ASSERT_TRUE(wait([&] { return healthy("next") == 2; }));
  EXPECT_EQ(model("m"), nullptr);
  EXPECT_NE(model("next")->serving_set()->id, set_id);
}

TEST_F(LiveFleetTest, TheOperatorsModelNameReplacesTheEngines) {
  engines[kAKey].info = info_of();
  engines[kAKey].info->aliases = {"alias"};
  engines[kBKey].info = info_of();
  engines[kBKey].info->served_model_name = "another-name";
  start({kA, kB}, {}, [](LiveFleetOptions& options) { options.model_name = "public"; });
  ASSERT_TRUE(wait([&] { return healthy("public") == 2; }));
  EXPECT_EQ(newest->find("m"), nullptr);
  EXPECT_EQ(newest->find("alias"), nullptr);
  EXPECT_EQ(worker(kB)->client_options().model, "another-name");
}

TEST_F(LiveFleetTest, EnginesWithoutANameNeedTheOperators) {
  engines[kAKey].info = engine::EngineInfo{};
  ::testing::internal::CaptureStderr();
  start({kA});
  ASSERT_TRUE(wait([&] { return engines[kAKey].checks > 1; }));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("--model-name"));
  EXPECT_TRUE(newest->models.empty());
}

TEST_F(LiveFleetTest, EnginesWithoutANameServeUnderTheOperators) {
  engines[kAKey].info = engine::EngineInfo{};
  engines[kBKey].info = info_of();
  start({kA, kB}, {}, [](LiveFleetOptions& options) { options.model_name = "public"; });
  ASSERT_TRUE(wait([&] { return healthy("public") == 2; }));
  EXPECT_EQ(model("public")->model_id, "/models/m");
  EXPECT_EQ(model("public")->context_length, 1024U);
  EXPECT_EQ(worker(kA)->client_options().model, "");
}

TEST_F(LiveFleetTest, WorkersWhoseCardStaysAreLeftAlone) {
  engines[kAKey].info = info_of();
  engines[kBKey].info = info_of("life-2");
  start({kA});
  ASSERT_TRUE(wait([&] { return healthy() == 1; }));
  const std::uint64_t incarnation = worker(kA)->incarnation;
  const int before = snapshots;
  set_cards(flag_cards(named({kA}), {}));
  EXPECT_EQ(snapshots, before) << "nothing new publishes nothing";
  set_cards(flag_cards(named({kB, kA}), {}));
  ASSERT_TRUE(wait([&] { return healthy() == 2; }));
  EXPECT_EQ(worker(kA)->incarnation, incarnation);
  EXPECT_EQ(worker(kA)->slot, 0U);
  EXPECT_EQ(worker(kB)->slot, 1U);
}

TEST_F(LiveFleetTest, WorkersWhoseCardIsGoneAreWithdrawnAndMayReturn) {
  engines[kAKey].info = info_of();
  engines[kBKey].info = info_of("life-2");
  start({kA, kB});
  ASSERT_TRUE(wait([&] { return healthy() == 2; }));
  const std::uint64_t incarnation = worker(kA)->incarnation;
  set_cards(flag_cards(named({kB}), {}));
  EXPECT_EQ(worker(kA), nullptr) << "at once";
  EXPECT_EQ(healthy(), 1U);
  const int probes = engines[kAKey].probes;
  set_cards(flag_cards(named({kA, kB}), {}));
  ASSERT_TRUE(wait([&] { return healthy() == 2; }));
  EXPECT_GT(engines[kAKey].probes, probes) << "probed anew";
  EXPECT_GT(worker(kA)->incarnation, incarnation);
}

TEST_F(LiveFleetTest, AnEngineThatNeverAnsweredCanBeWithdrawn) {
  engines[kAKey].hangs = true;
  engines[kBKey].info = info_of();
  start({kA, "http://nowhere:7001", kB});
  ASSERT_TRUE(wait([&] { return healthy() == 1; }));
  EXPECT_FALSE(fleet->first_round_done());
  set_cards(flag_cards(named({kB}), {}));
  EXPECT_TRUE(fleet->first_round_done());
}

TEST_F(LiveFleetTest, CM8_ACardThatDeniesMoreUnderTheSameKeyChangesTheRecordAtOnce) {
  engines[kAKey].info = info_of();
  engines[kAKey].info->capabilities = {engine::Capability::VllmXargs};
  start({kA});
  ASSERT_TRUE(wait([&] { return healthy() == 1; }));
  EXPECT_TRUE(worker(kA)->capabilities.has(engine::Capability::VllmXargs));
  const std::uint64_t incarnation = worker(kA)->incarnation;
  std::vector<Card> cards = flag_cards(named({kA}), {});
  const std::string checksum = cards[0].checksum();
  cards[0].denied = {engine::Capability::VllmXargs};
  EXPECT_EQ(cards[0].checksum(), checksum);
  set_cards(cards);
  EXPECT_FALSE(worker(kA)->capabilities.has(engine::Capability::VllmXargs));
  EXPECT_GT(worker(kA)->incarnation, incarnation);
  EXPECT_EQ(healthy(), 1U) << "the engine itself is as well as before";
  const int probes = engines[kAKey].probes;
  ASSERT_TRUE(wait([&] { return engines[kAKey].probes > probes; })) << "and is asked again";
}

TEST_F(LiveFleetTest, OtherTaintsAreNoNewLife) {
  engines[kAKey].info = info_of();
  engines[kBKey].info = info_of("life-2");
  start({kA, kB});
  ASSERT_TRUE(wait([&] { return healthy() == 2; }));
  const std::uint64_t incarnation = worker(kA)->incarnation;
  std::vector<Card> cards = flag_cards(named({kA, kB}), {});
  cards[0].taints = {"gpu"};
  set_cards(cards);
  EXPECT_TRUE(worker(kA)->has_taint("gpu"));
  EXPECT_FALSE(worker(kB)->has_taint("gpu"));
  EXPECT_EQ(worker(kA)->incarnation, incarnation);
  EXPECT_EQ(worker(kA)->slot, 0U);
  cards[0].taints.clear();
  set_cards(cards);
  EXPECT_FALSE(worker(kA)->has_taint("gpu"));
  EXPECT_EQ(worker(kA)->incarnation, incarnation);
}

TEST_F(LiveFleetTest, TheSecondCardOfAnEngineWaitsForTheFirst) {
  engines[kAKey].info = info_of();
  start({kA});
  ASSERT_TRUE(wait([&] { return healthy() == 1; }));
  std::vector<Card> cards = flag_cards(named({kA}), {});
  cards[0].instance_id = "other";
  cards[0].display_name = "other";
  ::testing::internal::CaptureStderr();
  set_cards(cards, "file");
  set_cards(cards, "file");
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("card ignored: card /backend/generate/"));
  EXPECT_EQ(log.find("card ignored"), log.rfind("card ignored")) << "said once";
  EXPECT_EQ(newest->find("other"), nullptr);
  set_cards({});
  ASSERT_TRUE(wait([&] { return healthy("other") == 1; }));
}

TEST_F(LiveFleetTest, EnginesOfSeveralKindsAreDialedByTheirCards) {
  engines[kAKey].info = info_of();
  engines[kBKey].info = info_of("life-2", "n");
  std::vector<Card> cards = flag_cards(named({kA, kB}), {});
  cards[1].backend = engine::Backend::VllmHttp;
  start_with(cards);
  ASSERT_TRUE(wait([&] { return healthy() == 1 && healthy("n") == 1; }));
  EXPECT_EQ(worker(kA)->client_options().backend, engine::Backend::Vllm);
  EXPECT_EQ(worker(kB)->client_options().backend, engine::Backend::VllmHttp);
}

TEST_F(LiveFleetTest, ACohortThatStaysDownIsSucceededThoughNothingElseHappens) {
  engines[kAKey].info = info_of();
  engines[kBKey].info = info_of("life-2");
  engines[kBKey].info->model_id = "/models/other";
  start({kA, kB});
  ASSERT_TRUE(wait([&] { return healthy() == 1 && engines[kBKey].checks > 0; }));
  ASSERT_TRUE(worker(kA));
  engines[kAKey].hangs = true;
  in_turn([&] { fleet->report(worker_id(kA), worker(kA)->incarnation, Outcome::Down); });
  ASSERT_TRUE(wait([&] { return worker(kB) != nullptr; }));
  EXPECT_EQ(worker(kA), nullptr);
  EXPECT_EQ(model()->model_id, "/models/other");
}

TEST_F(LiveFleetTest, TheStartupDeadlineNamesAbsentEnginesAndProbingGoesOn) {
  engines[kAKey].info = info_of();
  ::testing::internal::CaptureStderr();
  start({kA, kB}, {}, [](LiveFleetOptions& options) { options.startup_deadline = 50ms; });
  const auto deadline = net::Clock::now() + 100ms;
  ASSERT_TRUE(wait([&] { return net::Clock::now() > deadline && engines[kBKey].probes > 2; }));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("still trying endpoint=http://127.0.0.1:7002"));
  EXPECT_THAT(log, ::testing::Not(HasSubstr("still trying endpoint=http://127.0.0.1:7001")));
  engines[kBKey].info = info_of("life-2");
  ASSERT_TRUE(wait([&] { return healthy() == 2; }));
}

TEST_F(LiveFleetTest, ManyEnginesAreProbedAtOnce) {
  std::vector<std::string> urls;
  for (int port = 1; port <= 200; ++port) {
    urls.push_back("10.0.0.1:" + std::to_string(port + 1000));
    engines[urls.back()].info = info_of("life-" + std::to_string(port));
    engines[urls.back()].hangs = port % 2 == 0;
  }
  start(urls);
  ASSERT_TRUE(wait([&] { return healthy() == 100; }));
}

}  // namespace
}  // namespace fairlead::fleet
