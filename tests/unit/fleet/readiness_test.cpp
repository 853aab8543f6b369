#include "fleet/readiness.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

namespace fairlead::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using enum Role;

Readiness of(std::vector<ReadinessUnit> units) { return readiness(units); }

TEST(Readiness, NothingIsNotReady) {
  EXPECT_FALSE(of({}).ready);
  EXPECT_FALSE(of({{Aggregated, 0, {}}}).ready);
  EXPECT_THAT(of({{Aggregated, 0, {}}}).missing, ElementsAre(Aggregated));
}

TEST(Readiness, AWorkerWithoutNeedsServes) {
  const Readiness alone = of({{Decode, 2, {}}});
  EXPECT_TRUE(alone.ready);
  EXPECT_THAT(alone.present, ElementsAre(Decode));
  EXPECT_THAT(alone.missing, IsEmpty());
}

TEST(Readiness, NeedsOfTheLiveMustBeMet) {
  EXPECT_FALSE(of({{Decode, 1, {{Prefill}}}}).ready);
  EXPECT_THAT(of({{Decode, 1, {{Prefill}}}}).missing, ElementsAre(Prefill));
  EXPECT_TRUE(of({{Decode, 1, {{Prefill}}}, {Prefill, 1, {{Decode}}}}).ready);
  const Readiness dead_peer = of({{Decode, 1, {{Prefill}}}, {Prefill, 0, {{Decode}}}});
  EXPECT_FALSE(dead_peer.ready);
  EXPECT_THAT(dead_peer.missing, ElementsAre(Prefill));
}

TEST(Readiness, AnyOfTheAlternativesIsEnough) {
  EXPECT_TRUE(of({{Decode, 1, {{Prefill}, {Aggregated}}}, {Aggregated, 1, {}}}).ready);
  const Readiness none = of({{Decode, 1, {{Prefill}, {Prefill, Aggregated}}}});
  EXPECT_THAT(none.missing, ElementsAre(Aggregated, Prefill)) << "roles of every alternative";
}

TEST(Readiness, ARegisteredRoleThatIsDeadIsMissed) {
  EXPECT_THAT(of({{Aggregated, 1, {}}, {Prefill, 0, {}}}).missing, ElementsAre(Prefill));
}

TEST(Readiness, ADeadSetThatIsDispensableIsMissedByThoseThatNeedItOnly) {
  EXPECT_TRUE(of({{Decode, 1, {}}, {Prefill, 0, {}, true}}).ready);
  EXPECT_THAT(of({{Decode, 1, {}}, {Prefill, 0, {}, true}}).missing, IsEmpty());
  EXPECT_THAT(of({{Decode, 1, {{Prefill}}}, {Prefill, 0, {}, true}}).missing, ElementsAre(Prefill));
  EXPECT_THAT(of({{Decode, 0, {}}, {Prefill, 1, {{Decode}}, true}}).missing, ElementsAre(Decode));
}

TEST(Readiness, TwoSetsOfOneRoleAreAmbiguousAndServe) {
  const Readiness two = of({{Decode, 1, {}}, {Prefill, 1, {}}, {Prefill, 1, {}}});
  EXPECT_TRUE(two.ready);
  EXPECT_THAT(two.ambiguous, ElementsAre(Prefill));
  EXPECT_THAT(of({{Aggregated, 1, {}}, {Aggregated, 1, {}}}).ambiguous, IsEmpty());
}

TEST(Readiness, TheShortFormAgrees) {
  std::mt19937 random(7);
  int ready = 0;
  for (int round = 0; round < 2000; ++round) {
    Model model;
    for (unsigned i = random() % 4; i > 0; --i) {
      auto set = std::make_shared<WorkerSet>();
      set->name_space = random() % 4 == 0 ? "other" : "";
      set->role = static_cast<Role>(random() % 3);
      set->dispensable = random() % 4 == 0;
      for (unsigned peers = random() % 3; peers > 0; --peers) {
        set->needs.emplace_back();
        for (unsigned roles = random() % 3; roles > 0; --roles) {
          set->needs.back().push_back(static_cast<Role>(random() % 3));
        }
      }
      for (unsigned workers = random() % 3; workers > 0; --workers) {
        auto worker = std::make_shared<Worker>();
        worker->healthy = random() % 3 != 0;
        set->workers.push_back(worker);
      }
      model.worker_sets.push_back(set);
    }
    const Readiness full = namespace_readiness(model, "");
    EXPECT_EQ(full.ready, namespace_ready(model, ""));
    ready += full.ready ? 1 : 0;
  }
  EXPECT_GT(ready, 100);
}

}  // namespace
}  // namespace fairlead::fleet
