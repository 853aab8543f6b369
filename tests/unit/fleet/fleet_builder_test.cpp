#include "fleet/fleet_builder.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace fairlead::fleet {
namespace {

/// Members that tests change between snapshots.
struct Members {
  std::vector<std::unique_ptr<Member>> owned;
  std::vector<Member*> all;

  Member& add(bool prefill = false) {
    auto member = std::make_unique<Member>();
    std::size_t slot = 0;
    for (const Member* other : all) {
      slot += other->prefill == prefill ? 1U : 0U;
    }
    member->endpoint = *parse_endpoint("10.0.0.1:" + std::to_string(all.size() + 1000));
    member->id = worker_id(member->endpoint.url);
    member->prefill = prefill;
    member->slot = slot;
    member->up = true;
    member->info.emplace();
    member->info->model_id = "id";
    member->info->served_model_name = "m";
    member->info->kv_block_size = 16;
    all.push_back(member.get());
    owned.push_back(std::move(member));
    return *owned.back();
  }
};

TEST(FleetBuilding, UnknownValuesAgreeWithAnyAndAreLearned) {
  Members members;
  members.add().info->model_id.clear();
  members.add();
  members.add().info->model_id = "other";
  members.all[0]->info->kv_block_size = 0;
  FleetBuilder builder("", 3, 0);
  const auto fleet = builder.build(members.all, 7);
  ASSERT_EQ(fleet->models.size(), 1U);
  EXPECT_EQ(fleet->models[0]->model_id, "id");
  EXPECT_EQ(fleet->models[0]->kv_block_size, 16U);
  EXPECT_EQ(fleet->models[0]->created, 7);
  EXPECT_EQ(fleet->models[0]->worker_sets[0]->workers.size(), 2U);
  EXPECT_EQ(members.all[2]->exclusion, "model id `other` instead of `id`");
}

TEST(FleetBuilding, ServedNameAndBlockSizeMustAgree) {
  Members members;
  members.add();
  members.add().info->served_model_name = "n";
  members.add().info->kv_block_size = 32;
  members.add().info->max_model_len = 5;  // limits may differ
  FleetBuilder builder("", 4, 0);
  builder.build(members.all, 0);
  EXPECT_EQ(members.all[0]->exclusion, "");
  EXPECT_EQ(members.all[1]->exclusion, "served name `n` instead of `m`");
  EXPECT_EQ(members.all[2]->exclusion, "KV block size 32 instead of 16");
  EXPECT_EQ(members.all[3]->exclusion, "");
}

TEST(FleetBuilding, TheContextIsThatOfTheHealthyWorkers) {
  Members members;
  members.add().info->max_model_len = 1000;
  members.add().info->max_model_len = 500;
  members.add().info->max_model_len = 0;
  FleetBuilder builder("", 3, 0);
  EXPECT_EQ(builder.build(members.all, 0)->models[0]->context_length, 500U);
  members.all[1]->up = false;
  EXPECT_EQ(builder.build(members.all, 0)->models[0]->context_length, 1000U);
  members.all[0]->up = false;
  members.all[2]->up = false;
  EXPECT_EQ(builder.build(members.all, 0)->models[0]->context_length, 500U);
}

TEST(FleetBuilding, SnapshotsAreNumberedAndOldOnesStayAsTheyWere) {
  Members members;
  members.add();
  FleetBuilder builder("", 1, 0);
  const auto first = builder.build(members.all, 1);
  members.all[0]->up = false;
  ++members.all[0]->incarnation;
  const auto second = builder.build(members.all, 2);
  EXPECT_GT(second->generation, first->generation);
  EXPECT_TRUE(first->worker(members.all[0]->id)->healthy);
  EXPECT_FALSE(second->worker(members.all[0]->id)->healthy);
  EXPECT_EQ(second->models[0]->created, 1);
  EXPECT_EQ(first->models[0]->serving_set()->id, second->models[0]->serving_set()->id);
}

TEST(FleetBuilding, SlotsFollowTheListsOfTheirRole) {
  Members members;
  members.add();
  members.add(true);
  members.add();
  members.add(true);
  members.all[0]->info.reset();
  members.all[0]->up = false;
  FleetBuilder builder("", 2, 2);
  const auto fleet = builder.build(members.all, 0);
  const WorkerSet* decode = fleet->models[0]->set(Role::Decode);
  const WorkerSet* prefill = fleet->models[0]->set(Role::Prefill);
  ASSERT_TRUE(decode && prefill);
  EXPECT_EQ(decode->in_slot(0), nullptr);
  EXPECT_EQ(decode->in_slot(1)->id, members.all[2]->id);
  EXPECT_EQ(prefill->in_slot(0)->id, members.all[1]->id);
  EXPECT_EQ(prefill->in_slot(1)->id, members.all[3]->id);
  EXPECT_EQ(decode->slot_count, 2U);
}

TEST(FleetBuilding, NamesWinOverAliases) {
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
