#include "fleet/card_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace fairlead::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Card card(const std::string& instance, int port) {
  Card out;
  out.name_space = "n";
  out.instance_id = instance;
  out.endpoint = *parse_endpoint("10.0.0.1:" + std::to_string(port));
  return out;
}

Card adapter(const std::string& instance, const std::string& lora) {
  Card out;
  out.name_space = "n";
  out.instance_id = instance;
  out.lora_name = lora;
  out.model_suffix = lora;
  return out;
}

TEST(CardTable, SaysWhatChanged) {
  CardTable table;
  CardTable::Change change = table.set("s", {card("a", 1), card("b", 2)});
  EXPECT_THAT(change.joined, SizeIs(2));
  EXPECT_TRUE(table.set("s", {card("b", 2), card("a", 1)}).empty()) << "order is no content";
  Card other = card("b", 2);
  other.denied = {engine::Capability::VllmXargs};
  change = table.set("s", {other, card("c", 3)});
  EXPECT_THAT(change.gone, ElementsAre("n/backend/generate/a"));
  ASSERT_THAT(change.changed, SizeIs(1));
  EXPECT_EQ(change.changed[0].instance_id, "b");
  ASSERT_THAT(change.joined, SizeIs(1));
  EXPECT_EQ(change.joined[0].instance_id, "c");
}

TEST(CardTable, EveryFieldIsContent) {
  const std::vector<std::function<void(Card&)>> changes = {
      [](Card& c) { c.display_name = "x"; },
      [](Card& c) { c.aliases = {"x"}; },
      [](Card& c) { c.source_path = "x"; },
      [](Card& c) { c.role = Role::Prefill; },
      [](Card& c) { c.needs = {{Role::Decode}}; },
      [](Card& c) { c.context_length = 1; },
      [](Card& c) { c.kv_block_size = 1; },
      [](Card& c) { c.default_sampling = json::Value(json::Object()); },
      [](Card& c) { c.denied = {engine::Capability::Lora}; },
      [](Card& c) { c.max_gpu_lora_count = 1; },
      [](Card& c) { c.taints = {"x"}; },
      [](Card& c) { c.total_kv_blocks = 1; },
      [](Card& c) { c.max_batched_tokens = 1; },
      [](Card& c) { c.files = {{.name = "tokenizer", .checksum = "1"}}; },
  };
  for (const auto& change : changes) {
    CardTable table;
    table.set("s", {card("a", 1)});
    Card other = card("a", 1);
    change(other);
    EXPECT_FALSE(same_content(card("a", 1), other));
    EXPECT_THAT(table.set("s", {other}).changed, SizeIs(1));
  }
}

TEST(CardTable, AnotherEngineUnderTheKeyIsAnotherWorker) {
  CardTable table;
  table.set("s", {card("a", 1)});
  const CardTable::Change moved = table.set("s", {card("a", 2)});
  EXPECT_THAT(moved.gone, ElementsAre("n/backend/generate/a"));
  EXPECT_THAT(moved.joined, SizeIs(1));
  Card http = card("a", 2);
  http.backend = engine::Backend::VllmHttp;
  EXPECT_THAT(table.set("s", {http}).joined, SizeIs(1)) << "another wire needs another client";
}

TEST(CardTable, AnEngineBelongsToTheFirstCardThatNamesIt) {
  CardTable table;
  table.set("z", {card("a", 1)});
  CardTable::Change change = table.set("b", {card("b", 1), card("c", 2)});
  ASSERT_THAT(change.joined, SizeIs(1));
  EXPECT_EQ(change.joined[0].instance_id, "c");
  ASSERT_THAT(change.refused, SizeIs(1));
  EXPECT_THAT(change.refused[0], HasSubstr("card n/backend/generate/a has its engine"));
  EXPECT_THAT(table.set("b", {card("b", 1), card("c", 2)}).refused, IsEmpty()) << "said once";
  change = table.set("z", {});
  EXPECT_THAT(change.gone, SizeIs(1));
  ASSERT_THAT(change.joined, SizeIs(1));
  EXPECT_EQ(change.joined[0].instance_id, "b");
  // Two workers may swap places.
  change = table.set("b", {card("b", 2), card("c", 1)});
  EXPECT_THAT(change.gone, SizeIs(2));
  EXPECT_THAT(change.joined, SizeIs(2));
}

TEST(CardTable, AKeyBelongsToOneSource) {
  CardTable table;
  table.set("z", {card("a", 1)});
  CardTable::Change change = table.set("b", {card("a", 2), card("d", 4), card("d", 5)});
  EXPECT_THAT(change.joined, SizeIs(1));
  EXPECT_THAT(change.refused, SizeIs(2));
  EXPECT_THAT(change.gone, IsEmpty());
  change = table.set("z", {});
  EXPECT_THAT(change.gone, SizeIs(1));
  EXPECT_THAT(change.joined, SizeIs(1));
}

TEST(CardTable, ACardWithoutEngineIsRefused) {
  CardTable table;
  Card nowhere = card("a", 1);
  nowhere.endpoint = {};
  EXPECT_THAT(table.set("s", {nowhere}).refused, SizeIs(1));
}

TEST(CardTable, AdaptersBelongToTheirBasesSource) {
  CardTable table;
  CardTable::Change change =
      table.set("s", {adapter("a", "y"), card("a", 1), adapter("a", "x"), adapter("ab", "z")});
  EXPECT_TRUE(change.adapters);
  const std::vector<Card> found = table.adapters_of("n/backend/generate/a");
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_EQ(found[0].lora_name, "x");
  EXPECT_EQ(found[1].lora_name, "y");
  EXPECT_THAT(table.adapters_of("n/backend/generate/ab"), IsEmpty()) << "its base is not there";
  change = table.set("s", {card("a", 1), adapter("a", "x")});
  EXPECT_TRUE(change.adapters);
  EXPECT_THAT(change.changed, IsEmpty()) << "the worker itself is left alone";
  EXPECT_TRUE(table.set("t", {adapter("a", "w")}).adapters);
  EXPECT_THAT(table.adapters_of("n/backend/generate/a"), SizeIs(1));
}

}  // namespace
}  // namespace fairlead::fleet
