#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fleet/cohort.hpp"
#include "fleet/fleet.hpp"
#include "fleet/member.hpp"
#include "fleet/name_claims.hpp"
#include "fleet/pairing.hpp"

namespace fairlead::fleet {

/// A snapshot and what there is to say about it.
struct BuiltFleet {
  std::shared_ptr<const Fleet> fleet;      ///< The snapshot.
  std::vector<std::string> errors;         ///< New reasons to leave something out, one line each.
  std::optional<net::TimePoint> again_at;  ///< When to build anew though nothing happens.
};

/// Builds snapshots of all models out of members. Pure but for what it must remember between
/// snapshots: which cohort serves, since when a model is known, slots, the ids of worker sets and
/// who holds which name.
///
/// A snapshot is immutable and a worker's record (its capabilities and adapters) is part of the
/// worker in it. Record and membership therefore change in one swap: there is no moment at which a
/// worker is listed without its record, whatever the order in which cards come and go.
class FleetBuilder {
 public:
  /// `model_name` is the public name of the workers whose card has none; empty = what their engine
  /// reports. A cohort whose workers are all down for `succession_after` makes room for another.
  /// With `decode_alone` decode engines answer without prefill engines while there are none.
  FleetBuilder(std::string model_name, net::Duration succession_after, bool decode_alone = false);

  /// The snapshot of these members, which are in the order in which they became known; fills their
  /// `exclusion`.
  BuiltFleet build(std::span<Member* const> members, net::TimePoint now, std::int64_t unix_seconds);

 private:
  /// An adapter as the cards and engines of its base's workers tell it.
  struct Adapter {
    std::string lora_name;
    std::string source_path;
    std::vector<std::string> aliases;
  };
  /// A model while a snapshot is made of it.
  struct Draft {
    std::vector<Group*> groups;
    bool refused = false;
    std::shared_ptr<Model> model;
    std::map<std::string, Adapter> adapters;  // by public name
  };

  const std::string& name_of(const Member& member) const;
  std::vector<std::string> aliases_of(const Draft& draft) const;
  using Grouped = std::map<GroupKey, std::vector<Member*>>;

  Grouped sort_members(std::span<Member* const> members, std::vector<std::string>& errors);
  void leave_out(Member& member, std::string_view why, std::string reason,
                 std::vector<std::string>& errors) const;
  void choose_peers(const Grouped& grouped, std::span<Member* const> members, net::TimePoint now,
                    BuiltFleet& out);
  void choose_groups(std::span<Member* const> members, net::TimePoint now, BuiltFleet& out);
  void gather_drafts();
  void fill(const std::string& name, Draft& draft, std::int64_t unix_seconds);
  void gather_adapters(Draft& draft) const;
  void claim_names(std::vector<std::string>& errors);
  void add_base_models(Fleet& fleet, std::vector<std::string>& errors);
  void add_adapters(Fleet& fleet, std::int64_t unix_seconds, std::vector<std::string>& errors);
  std::int64_t registered(const std::string& owner, std::int64_t unix_seconds);
  void forget_the_gone(const Fleet& fleet);

  std::string model_name_;
  net::Duration succession_after_;
  bool decode_alone_;
  std::uint64_t generation_ = 0;
  std::uint64_t next_set_id_ = 1;
  std::map<GroupKey, std::unique_ptr<Group>> groups_;
  std::map<std::pair<std::string, std::string>, Pairing> pairings_;  // by model and namespace
  std::vector<std::string> order_;               // names of base models, in order of registration
  std::map<std::string, Draft> drafts_;          // of the snapshot that is being built
  std::map<std::string, std::int64_t> created_;  // by owner, see NameClaim
  NameClaims names_;
  std::set<std::string> left_out_;  // cards and reasons of members that fit nowhere
};

}  // namespace fairlead::fleet
