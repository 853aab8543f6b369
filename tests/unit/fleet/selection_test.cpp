#include "fleet/selection.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "fleet/fleet_builder.hpp"
#include "fleet/members.hpp"

namespace fairlead::fleet {
namespace {

using ::testing::HasSubstr;
using testing::Members;
using enum engine::Capability;
using namespace std::chrono_literals;

/// What a request is answered with, as its client sees it.
enum class Outcome { Serve, Refuse400, Refuse503, NoWorker503 };

std::ostream& operator<<(std::ostream& out, Outcome outcome) {
  return out << std::array{"Serve", "400", "503", "NoWorker503"}.at(
             static_cast<std::size_t>(outcome));
}

/// Fleets built from members, as they come from discovery.
class Selection : public ::testing::Test {
 protected:
  Member& add(Role role, bool capable, const std::string& name_space = {}) {
    Member& member = members.add(role);
    Members::change_card(member, [&](Card& card) { card.name_space = name_space; });
    if (capable) {
      member.info->capabilities = {VllmXargs};
    }
    return member;
  }
  std::shared_ptr<const Model> model(std::string_view name = "m") {
    return builder.build(members.all, net::TimePoint(1h), 0).fleet->find(name);
  }
  Result<std::shared_ptr<const WorkerSet>> select(engine::CapabilitySet required, bool enforce,
                                                  std::uint64_t draw = 0) {
    return select_worker_set(*model(), {.required = required, .worker_id = {}, .enforce = enforce},
                             draw);
  }
  Outcome outcome(engine::CapabilitySet required, bool enforce = true) {
    const auto selected = select(required, enforce);
    if (selected) {
      return Outcome::Serve;
    }
    switch (selected.error().code) {
      case ErrorCode::CapabilityUnsupported: return Outcome::Refuse400;
      case ErrorCode::CapabilityUnavailable: return Outcome::Refuse503;
      case ErrorCode::NoWorkers: return Outcome::NoWorker503;
      default: ADD_FAILURE() << selected.error().message; return Outcome::Serve;
    }
  }
  Outcome with_xargs(bool enforce = true) { return outcome({VllmXargs}, enforce); }
  Outcome ordinary() { return outcome({}); }

  Members members;
  FleetBuilder builder{"", 30s};
};

// The four tests that discovery spec §5.8 names come with and without enforcement: what they check
// must happen for the reason they say. The other two are in serving/dispatch_test.cpp.

TEST_F(Selection, VllmXargsRequiresEveryWorkerSetMember) {
  for (const bool capable_first : {true, false}) {
    members = {};
    builder = FleetBuilder("", 30s);
    add(Role::Aggregated, capable_first);
    add(Role::Aggregated, !capable_first);
    EXPECT_EQ(with_xargs(), Outcome::Refuse503) << "mixed";
    EXPECT_EQ(with_xargs(false), Outcome::Serve) << "unenforced, an older worker may get it";
    EXPECT_EQ(ordinary(), Outcome::Serve);
    // The older one leaves, then joins again.
    const Member& older = *members.all[capable_first ? 1 : 0];
    members.remove(older);
    EXPECT_EQ(with_xargs(), Outcome::Serve);
    add(Role::Aggregated, false);
    EXPECT_EQ(with_xargs(), Outcome::Refuse503);
    // The upgraded one leaves: nobody has it.
    members.remove(*members.all[0]);
    EXPECT_EQ(with_xargs(), Outcome::Refuse400);
    EXPECT_EQ(with_xargs(false), Outcome::Serve);
    EXPECT_EQ(ordinary(), Outcome::Serve);
  }
}

TEST_F(Selection, VllmXargsRequiresCapablePrefillPeers) {
  add(Role::Decode, true);
  Member& older = add(Role::Prefill, false);
  EXPECT_EQ(with_xargs(), Outcome::Refuse503);
  EXPECT_EQ(with_xargs(false), Outcome::Serve) << "unenforced, the older prefill gets it";
  EXPECT_EQ(ordinary(), Outcome::Serve);
  older.info->capabilities = {VllmXargs};
  EXPECT_EQ(with_xargs(), Outcome::Serve);
  add(Role::Prefill, false);
  EXPECT_EQ(with_xargs(), Outcome::Refuse503) << "some prefill workers are not enough";
}

TEST_F(Selection, CS1_OneMemberThatLacksItIsEnoughEvenWhenItIsDown) {
  add(Role::Aggregated, true);
  Member& older = add(Role::Aggregated, false);
  older.up = false;
  EXPECT_EQ(with_xargs(), Outcome::Refuse503) << "it may be back before the request is sent";
  older.info->capabilities = {VllmXargs};
  EXPECT_EQ(with_xargs(), Outcome::Serve);
}

TEST_F(Selection, CS2_PrefillPeersOfTheNamespaceCountWhetherDecodeOrAggregatedServes) {
  for (const Role role : {Role::Decode, Role::Aggregated}) {
    members = {};
    add(role, true);
    add(Role::Prefill, false, "elsewhere");
    EXPECT_EQ(with_xargs(), Outcome::Serve) << "another namespace does not matter";
    add(Role::Prefill, false);
    EXPECT_EQ(with_xargs(), Outcome::Refuse503);
  }
}

TEST_F(Selection, CS3_SeveralQualifyingSetsShareByTheirHealthyWorkers) {
  add(Role::Aggregated, true, "one");
  for (int i = 0; i < 3; ++i) {
    add(Role::Aggregated, true, "three");
  }
  add(Role::Aggregated, true, "three").up = false;
  add(Role::Aggregated, false, "older");
  const auto served = model();
  std::mt19937_64 random(42);
  std::map<std::string, int> counts;
  for (int i = 0; i < 8000; ++i) {
    const auto selected = select_worker_set(
        *served, {.required = {VllmXargs}, .worker_id = {}, .enforce = true}, random());
    ASSERT_TRUE(selected);
    ++counts[(*selected)->name_space];
  }
  ASSERT_EQ(counts.size(), 2U) << "never the set that does not qualify";
  EXPECT_NEAR(counts["one"], 2000, 200);
  EXPECT_NEAR(counts["three"], 6000, 200);
}

TEST_F(Selection, CS4_SomeHaveItButNoSetQualifies) {
  add(Role::Aggregated, true);
  add(Role::Aggregated, false);
  const auto selected = select({VllmXargs}, true);
  ASSERT_FALSE(selected);
  EXPECT_EQ(selected.error().code, ErrorCode::CapabilityUnavailable);
  EXPECT_EQ(traits(selected.error().code).http_status, 503);
  EXPECT_EQ(selected.error().param, "vllm_xargs");
  EXPECT_THAT(selected.error().message, HasSubstr("`m`"));
  EXPECT_THAT(selected.error().message, HasSubstr("vllm_xargs"));
}

TEST_F(Selection, CS5_NobodyHasIt) {
  add(Role::Decode, false);
  add(Role::Prefill, false);
  const auto selected = select({VllmXargs, PromptLogprobs}, true);
  ASSERT_FALSE(selected);
  EXPECT_EQ(selected.error().code, ErrorCode::CapabilityUnsupported);
  EXPECT_EQ(traits(selected.error().code).http_status, 400);
  EXPECT_EQ(selected.error().param, "vllm_xargs");
  EXPECT_THAT(selected.error().message, HasSubstr("`m`"));
  EXPECT_THAT(selected.error().message, HasSubstr("vllm_xargs, prompt_logprobs"));
}

TEST_F(Selection, CS6_AModelThatCannotServeIsNotBlamedOnCapabilities) {
  add(Role::Aggregated, false).up = false;
  members.all[0]->up = true;
  EXPECT_EQ(model("unknown"), nullptr);
  model();
  members.all[0]->up = false;
  EXPECT_EQ(with_xargs(), Outcome::NoWorker503);
  EXPECT_EQ(ordinary(), Outcome::NoWorker503);
}

TEST_F(Selection, OnlySetsWithAWorkerOfTheRequiredTaintsCount) {
  add(Role::Aggregated, false, "one");
  Member& tainted = add(Role::Aggregated, true, "two");
  Members::change_card(tainted, [](Card& card) { card.taints = {"a", "b"}; });
  add(Role::Aggregated, true, "two");
  const std::vector<std::string> required{"b", "a"};
  const auto pick = [&](std::span<const std::string> taints, std::optional<WorkerId> worker = {}) {
    std::mt19937_64 random(7);
    std::set<std::string> seen;
    for (int i = 0; i < 64; ++i) {
      const auto selected = select_worker_set(
          *model(), {.required = {}, .worker_id = worker, .required_taints = taints}, random());
      seen.insert(selected ? (*selected)->name_space : selected.error().message);
    }
    return seen;
  };
  EXPECT_THAT(pick({}), ::testing::ElementsAre("one", "two"));
  EXPECT_THAT(pick(required), ::testing::ElementsAre("two"));
  EXPECT_THAT(pick(required, tainted.id), ::testing::ElementsAre("two"));
  const std::vector<std::string> unknown{"a", "c"};
  EXPECT_THAT(pick(unknown), ::testing::ElementsAre(
                                 "No worker of the model `m` has the required taints `a`, `c`"));
  EXPECT_THAT(pick(std::vector<std::string>{"a"}, members.all[0]->id),
              ::testing::ElementsAre(HasSubstr("has the required taint `a`")));
  tainted.up = false;
  const auto none = select_worker_set(
      *model(), {.required = {}, .worker_id = {}, .required_taints = required}, 0);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::TaintsUnmatched);
  EXPECT_EQ(none.error().param, "nvext.routing_constraints.required_taints");
  for (Member* member : members.all) {
    member->up = false;
  }
  EXPECT_EQ(
      select_worker_set(*model(), {.required = {}, .worker_id = {}, .required_taints = required}, 0)
          .error()
          .code,
      ErrorCode::NoWorkers)
      << "taints are not to blame";
}

TEST_F(Selection, CS7_RequestsThatNeedNothingUseMixedSets) {
  add(Role::Decode, true);
  add(Role::Decode, false);
  add(Role::Prefill, false);
  EXPECT_EQ(ordinary(), Outcome::Serve);
}

TEST_F(Selection, CS8_TheOrderInWhichWorkersComeDoesNotMatter) {
  struct Kind {
    Role role;
    bool capable;
  };
  std::vector<Kind> kinds = {
      {Role::Decode, true}, {Role::Decode, false}, {Role::Prefill, true}, {Role::Prefill, false}};
  std::vector<int> order = {0, 1, 2, 3};
  do {
    members = {};
    builder = FleetBuilder("", 30s);
    for (const int i : order) {
      add(kinds[static_cast<std::size_t>(i)].role, kinds[static_cast<std::size_t>(i)].capable);
      model();  // each joins in a snapshot of its own
    }
    EXPECT_EQ(with_xargs(), Outcome::Refuse503);
    for (Member* member : members.all) {
      member->info->capabilities.add(VllmXargs);
    }
    EXPECT_EQ(with_xargs(), Outcome::Serve);
  } while (std::ranges::next_permutation(order).found);
}

TEST_F(Selection, CS9_LeavingAndRejoiningChangeWhoQualifies) {
  add(Role::Aggregated, true);
  Member& older = add(Role::Aggregated, false);
  Card card = older.card;
  EXPECT_EQ(with_xargs(), Outcome::Refuse503);
  members.remove(older);
  EXPECT_EQ(with_xargs(), Outcome::Serve);
  Members::set_card(add(Role::Aggregated, false), card);
  EXPECT_EQ(with_xargs(), Outcome::Refuse503);
  members.all[1]->info->capabilities = {VllmXargs};
  EXPECT_EQ(with_xargs(), Outcome::Serve) << "rejoined upgraded";
}

TEST_F(Selection, TheDecisionTable) {
  enum Support { None, Mixed, All, Absent };
  const auto fill = [this](Role role, Support support) {
    if (support != Absent) {
      add(role, support != None);
      add(role, support == All);
    }
  };
  struct Row {
    Support decode;
    Support prefill;
    Outcome expected;
  };
  for (const Row& row : std::vector<Row>{{All, Absent, Outcome::Serve},
                                         {All, All, Outcome::Serve},
                                         {All, Mixed, Outcome::Refuse503},
                                         {All, None, Outcome::Refuse503},
                                         {Mixed, Absent, Outcome::Refuse503},
                                         {Mixed, All, Outcome::Refuse503},
                                         {Mixed, None, Outcome::Refuse503},
                                         {None, All, Outcome::Refuse503},
                                         {None, Mixed, Outcome::Refuse503},
                                         {None, None, Outcome::Refuse400},
                                         {None, Absent, Outcome::Refuse400}}) {
    members = {};
    builder = FleetBuilder("", 30s);
    fill(Role::Decode, row.decode);
    fill(Role::Prefill, row.prefill);
    EXPECT_EQ(with_xargs(), row.expected) << row.decode << " " << row.prefill;
    EXPECT_EQ(ordinary(), Outcome::Serve);
  }
}

TEST_F(Selection, AFullyCapableNamespaceServesBesideAnOlderOne) {
  const WorkerId upgraded = add(Role::Aggregated, true, "m-0000000b").id;
  add(Role::Aggregated, false, "m-0000000a");
  const auto served = model();
  for (std::uint64_t draw = 0; draw < 10; ++draw) {
    const auto selected = select_worker_set(
        *served, {.required = {VllmXargs}, .worker_id = {}, .enforce = true}, draw);
    ASSERT_TRUE(selected);
    EXPECT_EQ((*selected)->workers[0]->id, upgraded);
  }
}

TEST_F(Selection, EveryCapabilityIsJudgedAlike) {
  for (const engine::CapabilityTraits& row : engine::capability_table()) {
    members = {};
    builder = FleetBuilder("", 30s);
    Member& a = members.add();
    Member& b = members.add();
    EXPECT_EQ(outcome({row.capability}), Outcome::Refuse400) << row.name;
    a.info->capabilities = {row.capability};
    EXPECT_EQ(outcome({row.capability}), Outcome::Refuse503) << row.name;
    b.info->capabilities = {row.capability};
    EXPECT_EQ(outcome({row.capability}), Outcome::Serve) << row.name;
    Members::change_card(b, [&](Card& card) { card.denied = {row.capability}; });
    EXPECT_EQ(outcome({row.capability}), Outcome::Refuse503) << row.name;
  }
}

TEST_F(Selection, ANamespaceThatMissesARoleIsPassedOver) {
  const auto needs_prefill = [](Card& card) { card.needs = {{Role::Prefill}}; };
  Members::change_card(add(Role::Decode, false), needs_prefill);
  EXPECT_EQ(ordinary(), Outcome::NoWorker503);
  Member& prefill = add(Role::Prefill, false);
  EXPECT_EQ(ordinary(), Outcome::Serve);
  prefill.up = false;
  EXPECT_EQ(ordinary(), Outcome::NoWorker503);
}

TEST_F(Selection, PrefillSetsNeverAnswer) {
  add(Role::Prefill, false);
  EXPECT_EQ(ordinary(), Outcome::NoWorker503);
}

TEST_F(Selection, ANamedWorkersSetIsTheOnlyOne) {
  add(Role::Aggregated, true, "a");
  Member& wanted = add(Role::Aggregated, false, "b");
  const auto pick = [&](WorkerId id, engine::CapabilitySet required) {
    return select_worker_set(*model(), {.required = required, .worker_id = id, .enforce = true}, 0);
  };
  EXPECT_EQ((*pick(wanted.id, {}))->name_space, "b");
  EXPECT_EQ(pick(12345, {}).error().code, ErrorCode::NoWorkers);
  EXPECT_EQ(pick(wanted.id, {VllmXargs}).error().code, ErrorCode::CapabilityUnavailable);
  wanted.up = false;
  EXPECT_EQ(pick(wanted.id, {}).error().code, ErrorCode::NoWorkers);
}

TEST_F(Selection, AnAdapterIsServedWhereItIs) {
  Member& without = add(Role::Aggregated, true, "a");
  Member& with = add(Role::Aggregated, true, "b");
  with.info->lora_adapters = {"sql"};
  with.info->capabilities = {VllmXargs, Lora};
  for (std::uint64_t draw = 0; draw < 10; ++draw) {
    const auto selected = select_worker_set(
        *model("sql"), {.required = {Lora, VllmXargs}, .worker_id = {}, .enforce = true}, draw);
    ASSERT_TRUE(selected) << selected.error().message;
    EXPECT_EQ((*selected)->workers[0]->id, with.id);
  }
  // In one set: the worker without the adapter never gets the request, so it need not know of any.
  Members::change_card(without, [](Card& card) { card.name_space = "b"; });
  const auto selected = select_worker_set(
      *model("sql"), {.required = {Lora, VllmXargs}, .worker_id = {}, .enforce = true}, 0);
  ASSERT_TRUE(selected) << selected.error().message;
  with.up = false;
  EXPECT_EQ(select_worker_set(*model("sql"), {}, 0).error().code, ErrorCode::NoWorkers);
}

}  // namespace
}  // namespace fairlead::fleet
