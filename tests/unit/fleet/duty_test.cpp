#include "fleet/duty.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "fleet/fleet.hpp"
#include "fleet/fleet_builder.hpp"
#include "fleet/members.hpp"

namespace fairlead::fleet {
namespace {

using engine::Leg;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Members;
using enum Role;
using Needs = std::vector<std::vector<Role>>;

Duty duty(Role card_role, std::optional<Leg> told, Needs needs = {}, bool decode_alone = false) {
  Card card;
  card.role = card_role;
  card.needs = std::move(needs);
  engine::EngineInfo info;
  info.role = told;
  return duty_of(card, card.checksum(), info, decode_alone);
}

TEST(Duties, ACardDecidesForEnginesThatDoNotTell) {
  for (const Role role : {Aggregated, Prefill, Decode}) {
    EXPECT_EQ(duty(role, std::nullopt).role, role);
    EXPECT_THAT(duty(role, std::nullopt).needs, IsEmpty());
    EXPECT_EQ(duty(role, std::nullopt).contradiction, "");
  }
  EXPECT_EQ(duty(Decode, std::nullopt, {{Prefill}}).needs, Needs{{Prefill}});
}

TEST(Duties, AnEngineThatTellsDecidesByItself) {
  EXPECT_EQ(duty(Aggregated, Leg::Prefill).role, Prefill);
  EXPECT_EQ(duty(Aggregated, Leg::Prefill).needs, Needs{{Decode}});
  EXPECT_EQ(duty(Decode, Leg::Prefill, {{Prefill}}).needs, Needs{{Decode}});
  EXPECT_EQ(duty(Aggregated, Leg::Decode).role, Decode);
  EXPECT_EQ(duty(Aggregated, Leg::Decode).needs, Needs{{Prefill}});
  EXPECT_EQ(duty(Decode, Leg::Decode).needs, Needs{{Prefill}}) << "it cannot answer alone";
  EXPECT_EQ(duty(Decode, Leg::Decode, {{Prefill, Aggregated}}).needs,
            (Needs{{Prefill, Aggregated}}));
  EXPECT_EQ(duty(Prefill, Leg::Prefill, {{Decode}}).contradiction, "");
  EXPECT_EQ(duty(Decode, Leg::Whole, {{Prefill}}).role, Aggregated) << "it takes no hand-over";
  EXPECT_THAT(duty(Decode, Leg::Whole, {{Prefill}}).needs, IsEmpty());
}

TEST(Duties, AnEngineNamedForPrefillMustNotSayOtherwise) {
  EXPECT_THAT(duty(Prefill, Leg::Decode).contradiction,
              HasSubstr("named as a prefill engine and says that it is a decode engine"));
  EXPECT_THAT(duty(Prefill, Leg::Whole).contradiction, HasSubstr("a whole one"));
  EXPECT_EQ(duty(Prefill, Leg::Prefill).contradiction, "");
}

TEST(Duties, DecodeMayDoWithoutPrefillUnlessTheEngineSaysThatItOnlyDecodes) {
  EXPECT_THAT(duty(Decode, std::nullopt, {{Prefill}}, true).needs, IsEmpty());
  EXPECT_EQ(duty(Decode, std::nullopt, {{Prefill, Aggregated}}, true).needs, Needs{{Aggregated}});
  EXPECT_EQ(duty(Prefill, std::nullopt, {{Decode}}, true).needs, Needs{{Decode}});
  EXPECT_EQ(duty(Decode, Leg::Decode, {{Prefill}}, true).needs, Needs{{Prefill}});
}

TEST(Duties, TheChecksumIsThatOfTheDuty) {
  Card card;
  card.role = Decode;
  card.needs = {{Prefill}};
  const std::string named = card.checksum();
  engine::EngineInfo info;
  info.role = Leg::Prefill;
  Card prefill;
  prefill.role = Prefill;
  prefill.needs = {{Decode}};
  EXPECT_EQ(duty_of(card, named, info, false).checksum,
            duty_of(prefill, prefill.checksum(), info, false).checksum);
  info.role = Leg::Decode;
  EXPECT_EQ(duty_of(card, named, info, false).checksum, named);
}

class FleetOfRoles : public ::testing::Test {
 protected:
  std::shared_ptr<const Fleet> build() {
    built = builder.build(members.all, now, 0);
    return built.fleet;
  }
  Member& telling(Leg told, Role card_role = Aggregated, Needs needs = {}) {
    Member& member = members.add(card_role);
    Members::change_card(member, [&](Card& card) { card.needs = std::move(needs); });
    member.info->role = told;
    return member;
  }
  void down(Member& member) {
    member.up = false;
    member.down_since = now;
  }
  bool ready() { return build()->models.at(0)->ready(); }

  static constexpr net::Duration kGrace = std::chrono::seconds(30);
  Members members;
  FleetBuilder builder{"", kGrace};
  BuiltFleet built;
  net::TimePoint now{std::chrono::hours(1)};
};

TEST_F(FleetOfRoles, EnginesAreGroupedByWhatTheySay) {
  Member& prefill = telling(Leg::Prefill);
  EXPECT_FALSE(ready()) << "nobody decodes";
  Member& decode = telling(Leg::Decode);
  EXPECT_TRUE(ready());
  const auto model = build()->models.at(0);
  ASSERT_NE(model->set(Prefill), nullptr);
  EXPECT_EQ(model->set(Prefill)->workers.at(0)->id, prefill.id);
  EXPECT_EQ(model->set(Prefill)->workers.at(0)->role, Prefill);
  EXPECT_EQ(model->set(Prefill)->needs, Needs{{Decode}});
  EXPECT_EQ(model->serving_set()->workers.at(0)->id, decode.id);
  EXPECT_EQ(model->serving_set()->needs, Needs{{Prefill}});
  down(prefill);
  EXPECT_FALSE(ready());
  prefill.up = true;
  EXPECT_TRUE(ready());
  prefill.info->role = Leg::Decode;
  EXPECT_EQ(build()->models.at(0)->set(Decode)->workers.size(), 2U) << "it was started anew";
  EXPECT_EQ(build()->models.at(0)->set(Prefill), nullptr);
}

TEST_F(FleetOfRoles, HowAnEngineWasNamedDoesNotSetItApart) {
  telling(Leg::Prefill, Prefill, {{Decode}});
  telling(Leg::Prefill, Decode, {{Prefill}});
  telling(Leg::Decode, Decode, {{Prefill}});
  const auto model = build()->models.at(0);
  EXPECT_EQ(model->set(Prefill)->workers.size(), 2U);
  EXPECT_EQ(model->set(Decode)->workers.size(), 1U);
  EXPECT_THAT(built.errors, IsEmpty());
}

TEST_F(FleetOfRoles, AContradictionIsLeftOutAndSaidOnce) {
  telling(Leg::Decode, Prefill, {{Decode}});
  members.add();
  build();
  ASSERT_EQ(built.errors.size(), 1U);
  EXPECT_THAT(built.errors[0], HasSubstr(members.all[0]->card.endpoint.url));
  EXPECT_THAT(built.errors[0], HasSubstr("prefill engine and says that it is a decode engine"));
  EXPECT_FALSE(members.all[0]->exclusion.empty());
  build();
  EXPECT_THAT(built.errors, IsEmpty());
  members.all[0]->info->role = Leg::Whole;
  build();
  EXPECT_EQ(built.errors.size(), 1U) << "another contradiction";
  members.all[0]->info->role = Leg::Prefill;
  EXPECT_NE(build()->models.at(0)->set(Prefill), nullptr);
}

TEST_F(FleetOfRoles, PrefillAndDecodeMustBeAlike) {
  telling(Leg::Decode);
  telling(Leg::Prefill).info->kv_block_size = 32;
  telling(Leg::Prefill).info->model_id = "other";
  Member& good = telling(Leg::Prefill);
  const auto model = build()->models.at(0);
  ASSERT_EQ(model->set(Prefill)->workers.size(), 1U);
  EXPECT_EQ(model->set(Prefill)->workers[0]->id, good.id);
  EXPECT_EQ(members.all[1]->exclusion, "KV block size 32 instead of 16");
  EXPECT_EQ(members.all[2]->exclusion, "model id `other` instead of `id`");
  ASSERT_EQ(built.errors.size(), 2U);
  EXPECT_THAT(built.errors[0], HasSubstr("role=Prefill"));
  EXPECT_THAT(built.errors[0], HasSubstr("incumbent=" + members.all[0]->card.endpoint.url));
  build();
  EXPECT_THAT(built.errors, IsEmpty()) << "said once";
}

TEST_F(FleetOfRoles, AnotherPairTakesOverOnceTheFormerIsGone) {
  Member& decode = telling(Leg::Decode);
  Member& prefill = telling(Leg::Prefill);
  ASSERT_TRUE(ready());
  telling(Leg::Decode).info->kv_block_size = 32;
  telling(Leg::Prefill).info->kv_block_size = 32;
  ASSERT_TRUE(ready());
  down(decode);
  EXPECT_FALSE(ready()) << "its prefill engine is there still";
  down(prefill);
  build();
  EXPECT_EQ(built.again_at, now + kGrace);
  now += kGrace;
  EXPECT_TRUE(ready());
  EXPECT_EQ(build()->models.at(0)->kv_block_size, 32U);
  EXPECT_EQ(decode.exclusion, "KV block size 16 instead of 32");
}

TEST_F(FleetOfRoles, WithTheFallbackDecodeAnswersWhilePrefillIsGone) {
  FleetBuilder alone("", kGrace, true);
  Member& prefill = members.add(Prefill);
  Members::change_card(prefill, [](Card& card) { card.needs = {{Decode}}; });
  Members::change_card(members.add(Decode), [](Card& card) { card.needs = {{Prefill}}; });
  const auto ready = [&](FleetBuilder& of) {
    return of.build(members.all, now, 0).fleet->models.at(0)->ready();
  };
  EXPECT_TRUE(ready(builder));
  EXPECT_TRUE(ready(alone));
  down(prefill);
  EXPECT_FALSE(ready(builder));
  EXPECT_TRUE(ready(alone));
  members.remove(prefill);
  EXPECT_FALSE(ready(builder));
  EXPECT_TRUE(ready(alone));
  members.all[0]->info->role = Leg::Decode;
  EXPECT_FALSE(ready(alone)) << "it answers nothing without a peer";
}

TEST(BootstrapHosts, AreTheEndpointsWhenTheyAreNotToldOrLocal) {
  const auto host = [](std::string told, std::string_view endpoint, std::uint16_t port = 8998) {
    engine::EngineInfo info;
    info.bootstrap_host = std::move(told);
    info.bootstrap_port = port;
    replace_wildcard_hosts(info, parse_endpoint(endpoint)->authority_host());
    return info.bootstrap_host;
  };
  EXPECT_EQ(host("", "gpu1:30000"), "gpu1");
  EXPECT_EQ(host("0.0.0.0", "gpu1:30000"), "gpu1");
  EXPECT_EQ(host("::", "[2001:db8::1]:30000"), "2001:db8::1");
  EXPECT_EQ(host("127.0.0.1", "10.0.0.7:30000"), "10.0.0.7");
  EXPECT_EQ(host("localhost", "127.0.0.1:30000"), "127.0.0.1");
  EXPECT_EQ(host("10.1.2.3", "gpu1:30000"), "10.1.2.3");
  EXPECT_EQ(host("", "gpu1:30000", 0), "") << "there is no bootstrap server";
}

}  // namespace
}  // namespace fairlead::fleet
