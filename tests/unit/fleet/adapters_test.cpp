#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "fleet/fleet_builder.hpp"
#include "fleet/members.hpp"

namespace fairlead::fleet {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Members;
using namespace std::chrono_literals;

class Adapters : public ::testing::Test {
 protected:
  std::shared_ptr<const Fleet> build(std::int64_t unix_seconds = 0) {
    built = builder.build(members.all, net::TimePoint(1h), unix_seconds);
    return built.fleet;
  }
  static Card adapter(const Member& member, std::string lora) {
    Card card = member.card;
    card.lora_name = lora;
    card.model_suffix = std::move(lora);
    return card;
  }

  Members members;
  FleetBuilder builder{"", 30s};
  BuiltFleet built;
};

TEST_F(Adapters, WhatAnEngineReportsIsAModelThatSharesItsBasesSets) {
  Member& a = members.add();
  members.add();
  a.info->lora_adapters = {"sql"};
  a.info->lora_paths = {"/loras/sql"};
  a.info->max_model_len = 100;
  const auto fleet = build(5);
  ASSERT_EQ(fleet->models.size(), 2U);
  const Model& base = *fleet->models[0];
  const Model& sql = *fleet->models[1];
  EXPECT_EQ(sql.name, "sql");
  EXPECT_EQ(sql.lora_name, "sql");
  EXPECT_EQ(sql.base_name, "m");
  EXPECT_EQ(sql.files_name(), "m");
  EXPECT_EQ(sql.source_path, "/loras/sql");
  EXPECT_EQ(sql.context_length, 100U);
  EXPECT_EQ(sql.created, 5);
  EXPECT_THAT(sql.aliases, IsEmpty());
  EXPECT_EQ(sql.worker_sets, base.worker_sets) << "the very objects, and so the live records";
  EXPECT_TRUE(fleet->worker(a.id)->has_adapter("sql"));
  EXPECT_EQ(base.worker_sets[0]->healthy_with("sql"), 1U);
  EXPECT_TRUE(sql.ready());
  a.up = false;
  EXPECT_TRUE(build(6)->find("m")->ready());
  EXPECT_FALSE(build(6)->find("sql")->ready()) << "the only worker that has it is down";
  EXPECT_EQ(build(6)->find("sql")->created, 5);
}

TEST_F(Adapters, CardsGivePublicNames) {
  Member& a = members.add();
  Card card = adapter(a, "sql");
  card.display_name = "m-sql";
  card.source_path = "/loras/sql";
  card.aliases = {"s"};
  a.adapters = {card};
  a.info->lora_adapters = {"sql"};
  const auto fleet = build();
  ASSERT_EQ(fleet->models.size(), 2U);
  EXPECT_EQ(fleet->find("m-sql")->lora_name, "sql");
  EXPECT_EQ(fleet->find("s")->name, "m-sql");
  EXPECT_EQ(fleet->find("sql"), nullptr);
  EXPECT_TRUE(fleet->worker(a.id)->has_adapter("sql"));
}

TEST_F(Adapters, ALiveModelsNameIsRefusedOnce) {
  Member& a = members.add();
  a.info->aliases = {"alias"};
  Member& b = members.add();
  b.info->served_model_name = "n";
  b.info->lora_adapters = {"m", "alias", "n", "fine"};
  const auto fleet = build();
  EXPECT_EQ(fleet->models.size(), 3U);
  EXPECT_EQ(fleet->find("fine")->base_name, "n");
  ASSERT_EQ(built.errors.size(), 3U);
  EXPECT_THAT(built.errors[0], HasSubstr("adapter refused"));
  build();
  EXPECT_THAT(built.errors, IsEmpty());
}

TEST_F(Adapters, TheFirstBaseKeepsAnAdaptersName) {
  Member& a = members.add();
  a.info->served_model_name = "z";
  a.info->lora_adapters = {"sql"};
  build();
  Member& b = members.add();
  b.info->lora_adapters = {"sql"};
  EXPECT_EQ(build()->find("sql")->base_name, "z");
  EXPECT_EQ(built.errors.size(), 1U);
  members.remove(a);
  EXPECT_EQ(build()->find("sql")->base_name, "m");
}

TEST_F(Adapters, AModelCannotTakeALiveAdaptersName) {
  members.add().info->lora_adapters = {"sql"};
  build();
  members.add().info->served_model_name = "sql";
  EXPECT_EQ(build()->find("sql")->base_name, "m");
  EXPECT_THAT(members.all[1]->exclusion, HasSubstr("the name `sql` is held"));
}

TEST_F(Adapters, OnlyCommittedWorkersBringAdapters) {
  members.add();
  Member& rejected = members.add();
  rejected.info->lora_adapters = {"sql"};
  Members::change_card(rejected, [](Card& card) { card.context_length = 5; });
  EXPECT_EQ(build()->models.size(), 1U);
}

TEST_F(Adapters, AnAdapterThatIsUnloadedGoesAndMayReturn) {
  Member& a = members.add();
  a.info->lora_adapters = {"sql"};
  build();
  a.info->lora_adapters.clear();
  EXPECT_EQ(build()->find("sql"), nullptr);
  a.info->lora_adapters = {"sql"};
  EXPECT_NE(build()->find("sql"), nullptr);
}

}  // namespace
}  // namespace fairlead::fleet
