#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "fleet/fleet_builder.hpp"
#include "fleet/members.hpp"
#include "fleet/selection.hpp"

// The requirements CA-4 and CM-1 to CM-8 of the discovery spec: the record of what each worker of a
// set can do. CM-8 through the whole live fleet is in live_fleet_test.cpp.

namespace fairlead::fleet {
namespace {

using testing::Members;
using enum engine::Capability;
using namespace std::chrono_literals;

class MemberCapabilities : public ::testing::Test {
 protected:
  Member& add(bool capable) {
    Member& member = members.add();
    if (capable) {
      member.info->capabilities = {VllmXargs};
    }
    return member;
  }
  std::shared_ptr<const Fleet> build() {
    return builder.build(members.all, net::TimePoint(1h), 0).fleet;
  }
  static std::optional<ErrorCode> xargs(const Fleet& fleet, std::string_view name = "m") {
    const auto selected = select_worker_set(
        *fleet.find(name), {.required = {VllmXargs}, .worker_id = {}, .enforce = true}, 0);
    return selected ? kServed : std::optional(selected.error().code);
  }
  static constexpr std::optional<ErrorCode> kServed;

  Members members;
  FleetBuilder builder{"", 30s};
};

TEST_F(MemberCapabilities, CA4_UpgradedAndOlderWorkersShareOneSet) {
  add(true);
  add(false);
  Member& denied = add(true);
  Members::change_card(denied, [](Card& card) { card.denied = {VllmXargs}; });
  EXPECT_EQ(denied.checksum, members.all[0]->checksum);
  const auto fleet = build();
  ASSERT_EQ(fleet->models[0]->worker_sets.size(), 1U);
  EXPECT_EQ(fleet->models[0]->worker_sets[0]->workers.size(), 3U);
}

TEST_F(MemberCapabilities, CM1_EveryCommittedMemberHasItsOwnRecord) {
  const WorkerId a = add(true).id;
  const WorkerId b = add(false).id;
  const auto fleet = build();
  EXPECT_TRUE(fleet->worker(a)->capabilities.has(VllmXargs));
  EXPECT_FALSE(fleet->worker(b)->capabilities.has(VllmXargs));
}

TEST_F(MemberCapabilities, CM2_EveryChangeRewritesTheWholeRecord) {
  Member& a = add(true);
  Member& b = add(false);
  const WorkerId gone = b.id;
  Card card = b.card;
  build();
  members.remove(b);
  EXPECT_EQ(build()->worker(gone), nullptr);
  Members::set_card(add(true), card);
  members.all[1]->id = gone;
  EXPECT_TRUE(build()->worker(gone)->capabilities.has(VllmXargs)) << "read anew when it rejoins";
  a.info->capabilities = {};
  EXPECT_FALSE(build()->worker(a.id)->capabilities.has(VllmXargs));
}

TEST_F(MemberCapabilities, CM3_NoSnapshotListsAWorkerWithoutItsRecord) {
  // Workers come up one by one, each with a record of its own; whatever the snapshot, each worker
  // in it has its own, since the record is part of it.
  for (int i = 0; i < 20; ++i) {
    Member& member = add(i % 3 != 0);
    member.info->max_model_len = i % 3 != 0 ? 1 : 2;
    if (i % 4 == 3) {
      members.remove(*members.all[1]);
    }
    const auto fleet = build();
    ASSERT_EQ(fleet->models[0]->worker_sets[0]->workers.size(), members.all.size());
    for (const auto& worker : fleet->models[0]->worker_sets[0]->workers) {
      EXPECT_EQ(worker->capabilities.has(VllmXargs), worker->info.max_model_len == 1);
    }
  }
}

TEST_F(MemberCapabilities, CM4_AWorkerOfWhomNothingIsKnownCountsAsNotCapable) {
  add(true);
  members.add().info->capabilities = {};
  EXPECT_EQ(xargs(*build()), ErrorCode::CapabilityUnavailable);
  // Before its first answer it is no member at all and cannot get a request either.
  members.all[1]->info.reset();
  members.all[1]->up = false;
  const auto fleet = build();
  EXPECT_EQ(fleet->worker(members.all[1]->id), nullptr);
  EXPECT_EQ(xargs(*fleet), kServed);
}

TEST_F(MemberCapabilities, CM5_NoSingleMemberDecidesForAll) {
  for (const std::size_t odd : {0U, 1U, 2U}) {
    members = {};
    builder = FleetBuilder("", 30s);
    for (std::size_t i = 0; i < 3; ++i) {
      add(i != odd);
    }
    EXPECT_EQ(xargs(*build()), ErrorCode::CapabilityUnavailable) << odd;
  }
}

TEST_F(MemberCapabilities, CM6_AdapterViewsReadTheirBasesLiveRecord) {
  Member& a = add(true);
  a.info->capabilities = {VllmXargs, Lora};
  a.info->lora_adapters = {"sql"};
  EXPECT_EQ(xargs(*build(), "sql"), kServed);
  Member& older = add(false);
  older.info->lora_adapters = {"sql"};
  EXPECT_EQ(xargs(*build(), "sql"), ErrorCode::CapabilityUnavailable);
  older.info->capabilities = {VllmXargs, Lora};
  EXPECT_EQ(xargs(*build(), "sql"), kServed);
}

TEST_F(MemberCapabilities, CM7_ReadersSeeTheOldOrTheNewRecordWhole) {
  // One writer publishes as the control thread does, readers in other threads take what is newest.
  // In even snapshots every worker is capable and has 1 token of context, in odd ones none.
  for (int i = 0; i < 4; ++i) {
    add(true);
  }
  std::mutex mutex;
  std::shared_ptr<const Fleet> newest;
  const auto publish = [&](bool capable) {
    for (Member* member : members.all) {
      member->info->capabilities =
          capable ? engine::CapabilitySet{VllmXargs} : engine::CapabilitySet{};
      member->info->max_model_len = capable ? 1 : 2;
    }
    auto fleet = build();
    const std::lock_guard lock(mutex);
    newest = std::move(fleet);
  };
  publish(true);
  std::atomic<bool> done{false};
  std::atomic<int> looks{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!done) {
        std::shared_ptr<const Fleet> fleet;
        {
          const std::lock_guard lock(mutex);
          fleet = newest;
        }
        const WorkerSet& set = *fleet->models[0]->worker_sets[0];
        const bool capable = set.workers[0]->capabilities.has(VllmXargs);
        for (const auto& worker : set.workers) {
          EXPECT_EQ(worker->capabilities.has(VllmXargs), capable);
          EXPECT_EQ(worker->info.max_model_len == 1, capable);
        }
        EXPECT_EQ(xargs(*fleet),
                  capable ? kServed : std::optional(ErrorCode::CapabilityUnsupported));
        ++looks;
      }
    });
  }
  for (int i = 0; i < 500 || looks < 500; ++i) {
    publish(i % 2 != 0);
  }
  done = true;
  for (std::thread& reader : readers) {
    reader.join();
  }
}

TEST_F(MemberCapabilities, CM8_ACardThatDeniesMoreIsSeenThoughItsChecksumIsEqual) {
  Member& a = add(true);
  EXPECT_EQ(xargs(*build()), kServed);
  const std::string checksum = a.checksum;
  Members::change_card(a, [](Card& card) { card.denied = {VllmXargs}; });
  EXPECT_EQ(a.checksum, checksum);
  EXPECT_EQ(xargs(*build()), ErrorCode::CapabilityUnsupported);
}

}  // namespace
}  // namespace fairlead::fleet
