#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "fleet/fake_engines.hpp"
#include "fleet/flag_cards.hpp"
#include "fleet/live_fleet.hpp"
#include "net/testing.hpp"

namespace fairlead::fleet {
namespace {

using testing::FakeClient;
using testing::FakeEngine;
using testing::FakeResolver;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr const char* kA = "http://127.0.0.1:7001";
constexpr const char* kB = "http://127.0.0.1:7002";
constexpr const char* kAKey = "127.0.0.1:7001";
constexpr const char* kBKey = "127.0.0.1:7002";

/// Two engines that answer everything; tests say how requests end.
class CircuitFleetTest : public net::testing::ReactorTest {
 public:
  ~CircuitFleetTest() override {
    in_turn([this] { fleet.reset(); });
  }

 protected:
  CircuitFleetTest() {
    options.retry_interval = 10ms;
    options.health_interval = 10ms;
    options.checks_per_probe = 2;
    options.circuit.failures = 3;
    options.circuit.open = 1h;
    options.circuit.longest_open = 4h;
    for (const char* key : {kAKey, kBKey}) {
      engine::EngineInfo& info = engines[key].info.emplace();
      info.model_id = "/models/m";
      info.served_model_name = "m";
      info.instance_id = key;
    }
  }
  void start() {
    in_turn([&] {
      fleet = std::make_unique<LiveFleet>(
          options,
          [this](const engine::ClientOptions& client) {
            return std::make_unique<FakeClient>(engines[client.authority]);
          },
          resolver,
          [this](std::shared_ptr<const Fleet> snapshot) { newest = std::move(snapshot); });
      const std::vector<NamedEngine> named{{.endpoint = *parse_endpoint(kA)},
                                           {.endpoint = *parse_endpoint(kB)}};
      fleet->set_cards("flags", flag_cards(named, {}));
      fleet->start();
    });
    ASSERT_TRUE(wait([&] { return healthy(kA) && healthy(kB); }));
  }
  std::shared_ptr<const Worker> worker(const char* url) const {
    return newest ? newest->worker(worker_id(url)) : nullptr;
  }
  bool healthy(const char* url) const { return worker(url) && worker(url)->healthy; }
  Circuit circuit(const char* url) const { return worker(url)->circuit; }
  void report(const char* url, Outcome outcome, int times = 1) {
    in_turn([&] {
      for (int i = 0; i < times; ++i) {
        fleet->report(worker(url)->id, worker(url)->incarnation, outcome);
      }
    });
  }

  LiveFleetOptions options;
  std::map<std::string, FakeEngine> engines;
  FakeResolver resolver;
  std::shared_ptr<const Fleet> newest;
  std::unique_ptr<LiveFleet> fleet;
};

TEST_F(CircuitFleetTest, AnEngineThatAnswersChecksAndFailsRequestsLeavesRouting) {
  start();
  const std::uint64_t incarnation = worker(kA)->incarnation;
  report(kA, Outcome::Failed, 2);
  EXPECT_TRUE(healthy(kA));
  worker(kA)->activity->served();
  report(kA, Outcome::Failed, 2);
  EXPECT_TRUE(healthy(kA)) << "not in a row";
  ::testing::internal::CaptureStderr();
  report(kA, Outcome::Failed);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("worker's circuit opened"));
  EXPECT_FALSE(healthy(kA));
  EXPECT_EQ(circuit(kA), Circuit::Open);
  EXPECT_NE(worker(kA)->incarnation, incarnation);
  const int probes = engines[kAKey].probes;
  ASSERT_TRUE(wait([&] { return engines[kAKey].probes > probes + 2; }));
  EXPECT_FALSE(healthy(kA)) << "probes do not bring it back";
  EXPECT_TRUE(healthy(kB));
}

TEST_F(CircuitFleetTest, TheLastOneStays) {
  start();
  report(kA, Outcome::Failed, 3);
  ASSERT_FALSE(healthy(kA));
  report(kB, Outcome::Failed, 10);
  EXPECT_TRUE(healthy(kB));
  EXPECT_EQ(circuit(kB), Circuit::Closed);
}

TEST_F(CircuitFleetTest, TrialsDecide) {
  options.circuit.open = 20ms;
  start();
  report(kA, Outcome::Failed, 3);
  ASSERT_TRUE(wait([&] { return circuit(kA) == Circuit::HalfOpen; }));
  EXPECT_TRUE(healthy(kA)) << "for a trial";
  report(kA, Outcome::Failed);
  EXPECT_EQ(circuit(kA), Circuit::Open);
  ASSERT_TRUE(wait([&] { return circuit(kA) == Circuit::HalfOpen; }));
  report(kA, Outcome::Served);
  EXPECT_EQ(circuit(kA), Circuit::Closed);
  EXPECT_TRUE(healthy(kA));
}

TEST_F(CircuitFleetTest, EnginesThatSeemGoneCountToo) {
  start();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(wait([&] { return healthy(kA); }));
    report(kA, Outcome::Down);
    EXPECT_FALSE(healthy(kA));
  }
  EXPECT_EQ(circuit(kA), Circuit::Open);
}

TEST_F(CircuitFleetTest, AnotherProcessIsGivenAChance) {
  start();
  report(kA, Outcome::Failed, 3);
  ASSERT_FALSE(healthy(kA));
  engines[kAKey].info->instance_id = "another";
  ASSERT_TRUE(wait([&] { return healthy(kA); }));
  EXPECT_EQ(circuit(kA), Circuit::Closed);
}

TEST_F(CircuitFleetTest, WhereThereAreCanariesOneIsTheTrial) {
  options.circuit.open = 20ms;
  options.canary.enabled = true;
  options.canary.wait = 1h;
  start();
  engines[kAKey].fails = Error{ErrorCode::EngineUnknown, "broken", {}};
  report(kA, Outcome::Failed, 3);
  const std::size_t before = engines[kAKey].generations.size();
  ASSERT_TRUE(wait([&] { return engines[kAKey].generations.size() >= before + 2; }));
  EXPECT_FALSE(healthy(kA)) << "no request is risked";
  engines[kAKey].fails.reset();
  ASSERT_TRUE(wait([&] { return healthy(kA); }));
  EXPECT_EQ(circuit(kA), Circuit::Closed);
}

}  // namespace
}  // namespace fairlead::fleet
