#include "fleet/fleet_builder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "fleet/members.hpp"

namespace fairlead::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Members;
using namespace std::chrono_literals;

constexpr net::Duration kGrace = 30s;

class FleetBuilding : public ::testing::Test {
 protected:
  std::shared_ptr<const Fleet> build(std::int64_t unix_seconds = 0) {
    built = builder.build(members.all, now, unix_seconds);
    return built.fleet;
  }
  void down(Member& member) {
    member.up = false;
    member.down_since = now;
    ++member.incarnation;
  }

  Members members;
  FleetBuilder builder{"", kGrace};
  BuiltFleet built;
  net::TimePoint now{1h};
};

TEST_F(FleetBuilding, UnknownValuesAgreeWithAnyAndAreLearned) {
  members.add().info->model_id.clear();
  members.add();
  members.add().info->model_id = "other";
  members.all[0]->info->kv_block_size = 0;
  const auto fleet = build(7);
  ASSERT_EQ(fleet->models.size(), 1U);
  EXPECT_EQ(fleet->models[0]->model_id, "id");
  EXPECT_EQ(fleet->models[0]->kv_block_size, 16U);
  EXPECT_EQ(fleet->models[0]->created, 7);
  EXPECT_EQ(fleet->models[0]->worker_sets[0]->workers.size(), 2U);
  EXPECT_EQ(members.all[2]->exclusion, "model id `other` instead of `id`");
}

TEST_F(FleetBuilding, ModelIdAndBlockSizeMustAgreeInAGroup) {
  members.add();
  members.add().info->model_id = "n";
  members.add().info->kv_block_size = 32;
  members.add().info->max_model_len = 5;  // limits may differ
  build();
  EXPECT_EQ(members.all[0]->exclusion, "");
  EXPECT_EQ(members.all[1]->exclusion, "model id `n` instead of `id`");
  EXPECT_EQ(members.all[2]->exclusion, "KV block size 32 instead of 16");
  EXPECT_EQ(members.all[3]->exclusion, "");
  EXPECT_EQ(built.errors.size(), 2U);
}

TEST_F(FleetBuilding, TheContextIsThatOfTheHealthyWorkers) {
  members.add().info->max_model_len = 1000;
  members.add().info->max_model_len = 500;
  members.add().info->max_model_len = 0;
  EXPECT_EQ(build()->models[0]->context_length, 500U);
  down(*members.all[1]);
  EXPECT_EQ(build()->models[0]->context_length, 1000U);
  down(*members.all[0]);
  down(*members.all[2]);
  EXPECT_EQ(build()->models[0]->context_length, 500U);
}

TEST_F(FleetBuilding, SnapshotsAreNumberedAndOldOnesStayAsTheyWere) {
  members.add();
  const auto first = build(1);
  down(*members.all[0]);
  const auto second = build(2);
  EXPECT_GT(second->generation, first->generation);
  EXPECT_TRUE(first->worker(members.all[0]->id)->healthy);
  EXPECT_FALSE(second->worker(members.all[0]->id)->healthy);
  EXPECT_EQ(second->models[0]->created, 1);
  EXPECT_EQ(first->models[0]->serving_set()->id, second->models[0]->serving_set()->id);
}

TEST_F(FleetBuilding, SlotsStayWhileAWorkerLivesAndAreThenGivenAway) {
  Member& a = members.add();
  members.add();
  Member& c = members.add();
  const WorkerId b = members.all[1]->id;
  const auto set = [&] { return build()->models[0]->worker_sets[0]; };
  EXPECT_EQ(set()->in_slot(1)->id, b);
  down(a);
  EXPECT_EQ(set()->in_slot(0)->id, a.id) << "a worker that is down keeps its slot";
  members.remove(*members.all[1]);
  EXPECT_EQ(set()->in_slot(1), nullptr);
  EXPECT_EQ(set()->in_slot(2)->id, c.id);
  EXPECT_EQ(set()->slot_count, 3U);
  Member& d = members.add();
  Member& e = members.add();
  const auto last = set();
  EXPECT_EQ(last->in_slot(1)->id, d.id);
  EXPECT_EQ(last->in_slot(3)->id, e.id);
  EXPECT_EQ(last->slot_count, 4U);
}

TEST_F(FleetBuilding, EnginesOfSeveralNamesMakeSeveralModels) {
  members.add();
  members.add().info->served_model_name = "n";
  members.add().card.role = Role::Prefill;
  const auto fleet = build();
  ASSERT_EQ(fleet->models.size(), 2U);
  EXPECT_EQ(fleet->models[0]->worker_sets.size(), 2U);
  EXPECT_EQ(fleet->find("n")->worker_sets.size(), 1U);
  EXPECT_NE(fleet->find("n")->worker_sets[0]->id, fleet->models[0]->worker_sets[0]->id);
  EXPECT_THAT(built.errors, IsEmpty());
}

TEST_F(FleetBuilding, ACardsNameWinsOverTheFlagsAndTheEngines) {
  Members::change_card(members.add(), [](Card& card) {
    card.display_name = "public";
    card.aliases = {"short"};
  });
  members.all[0]->info->aliases = {"engine-alias"};
  members.add();
  FleetBuilder named("by-flag", kGrace);
  const auto fleet = named.build(members.all, now, 0).fleet;
  ASSERT_EQ(fleet->models.size(), 2U);
  EXPECT_THAT(fleet->find("public")->aliases, ElementsAre("short"));
  EXPECT_THAT(fleet->find("by-flag")->aliases, IsEmpty());
}

TEST_F(FleetBuilding, NamespacesHaveSetsOfTheirOwn) {
  Members::change_card(members.add(), [](Card& card) { card.name_space = "blue"; });
  Members::change_card(members.add(), [](Card& card) { card.name_space = "green"; });
  const auto model = build()->models.at(0);
  ASSERT_EQ(model->worker_sets.size(), 2U);
  EXPECT_EQ(model->worker_sets[0]->name_space, "blue");
  EXPECT_EQ(model->worker_sets[1]->name_space, "green");
}

TEST_F(FleetBuilding, TheFirstCohortServesAndTheOtherIsNamedOnce) {
  Member& first = members.add();
  first.info->max_model_len = 1000;
  const auto other = [](Card& card) {
    card.context_length = 100;
    card.aliases = {"short"};
  };
  Members::change_card(members.add(), other);
  Members::change_card(members.add(), other);
  const auto fleet = build();
  ASSERT_EQ(built.errors.size(), 1U);
  EXPECT_THAT(built.errors[0], HasSubstr("role=Aggregated incumbent=" + first.checksum +
                                         " rejected=" + members.all[1]->checksum +
                                         " instance=" + members.all[1]->key));
  EXPECT_EQ(fleet->models[0]->worker_sets[0]->workers.size(), 1U);
  EXPECT_EQ(fleet->models[0]->context_length, 1000U) << "lengths of the rejected do not count";
  EXPECT_THAT(fleet->models[0]->aliases, IsEmpty()) << "nor do their aliases";
  build();
  EXPECT_THAT(built.errors, IsEmpty());
}

TEST_F(FleetBuilding, ACohortWhoseCardsAreGoneIsSucceededUnderAFreshId) {
  Member& first = members.add();
  Members::change_card(members.add(), [](Card& card) { card.context_length = 100; });
  Members::change_card(members.add(), [](Card& card) { card.context_length = 50; });
  const std::uint64_t id = build()->models[0]->worker_sets[0]->id;
  members.remove(first);
  const auto fleet = build();
  const WorkerSet& set = *fleet->models[0]->worker_sets[0];
  EXPECT_NE(set.id, id);
  ASSERT_EQ(set.workers.size(), 1U);
  EXPECT_EQ(set.workers[0]->id, members.all[0]->id);
  EXPECT_EQ(set.workers[0]->slot, 0U);
  EXPECT_EQ(fleet->models[0]->context_length, 100U);
  ASSERT_EQ(built.errors.size(), 1U) << "who is rejected is said again when the incumbent changes";
  EXPECT_THAT(built.errors[0], HasSubstr("incumbent=" + members.all[0]->checksum));
}

TEST_F(FleetBuilding, ACohortThatIsDownForLongIsSucceeded) {
  Member& first = members.add();
  Members::change_card(members.add(), [](Card& card) { card.context_length = 100; });
  const std::uint64_t id = build()->models[0]->worker_sets[0]->id;
  down(first);
  const auto waiting = build();
  EXPECT_EQ(waiting->models[0]->worker_sets[0]->id, id);
  EXPECT_EQ(waiting->models[0]->worker_sets[0]->healthy(), 0U);
  EXPECT_EQ(built.again_at, now + kGrace);
  now += kGrace;
  const auto fleet = build();
  EXPECT_NE(fleet->models[0]->worker_sets[0]->id, id);
  EXPECT_EQ(fleet->models[0]->worker_sets[0]->workers[0]->id, members.all[1]->id);
  first.up = true;
  EXPECT_EQ(build()->models[0]->worker_sets[0]->workers.size(), 1U) << "the former one waits now";
  EXPECT_EQ(first.exclusion, "its card differs");
}

TEST_F(FleetBuilding, ANameThatIsHeldIsRefused) {
  members.add().info->aliases = {"n", "x"};
  build();
  members.add().info->served_model_name = "n";
  Member& third = members.add();
  third.info->served_model_name = "o";
  third.info->aliases = {"m", "x", "y"};
  const auto fleet = build();
  ASSERT_EQ(fleet->models.size(), 2U);
  EXPECT_EQ(fleet->find("n")->name, "m") << "an alias held by a live model is no free name";
  EXPECT_EQ(members.all[1]->exclusion, "the name `n` is held by the model `m`");
  EXPECT_THAT(fleet->find("o")->aliases, ElementsAre("y"));
  EXPECT_EQ(built.errors.size(), 3U);
  build();
  EXPECT_THAT(built.errors, IsEmpty()) << "said once";
  members.remove(*members.all[0]);
  const auto later = build();
  EXPECT_EQ(later->find("n")->name, "n") << "free once its holder is gone";
  EXPECT_EQ(later->find("x")->name, "o");
}

TEST_F(FleetBuilding, TheRecordIsWhatTheProbeFoundLessWhatTheCardDenies) {
  using enum engine::Capability;
  Member& member = members.add();
  member.info->capabilities = {VllmXargs, PromptLogprobs};
  Members::change_card(member, [](Card& card) { card.denied = {VllmXargs}; });
  EXPECT_EQ(build()->worker(member.id)->capabilities, engine::CapabilitySet({PromptLogprobs}));
}

TEST(FleetNames, NamesWinOverAliases) {
  auto a = std::make_shared<Model>();
  a->name = "a";
  a->aliases = {"b", "c"};
  auto b = std::make_shared<Model>();
  b->name = "b";
  Fleet fleet;
  fleet.models = {a, b};
  EXPECT_EQ(fleet.find("b"), b);
  EXPECT_EQ(fleet.find("c"), a);
  EXPECT_EQ(fleet.find(""), nullptr);
}

}  // namespace
}  // namespace fairlead::fleet
