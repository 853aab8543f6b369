#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "fleet/likeness.hpp"

namespace fairlead::fleet {

/// What makes workers interchangeable: one model, one namespace, one role.
struct GroupKey {
  std::string model;             ///< Public name.
  std::string name_space;        ///< Of the cards.
  Role role = Role::Aggregated;  ///< Of the duties.

  auto operator<=>(const GroupKey&) const = default;
};

/// The worker set of one group of members, remembered between snapshots. The members that fit the
/// first one seen, by checksum of the card and by what the probe found, are the incumbent cohort;
/// it alone serves, for as long as a member of it is there. The others wait until it is gone.
/// Those that prefill or decode must also come from one maker, since any of them may have to hand
/// over to any peer.
///
/// Capabilities take no part in this: upgraded and older workers of one cohort serve together.
class Group {
 public:
  /// Of no members yet; `dispensable` as in WorkerSet.
  explicit Group(GroupKey key, bool dispensable = false)
      : key_(std::move(key)), dispensable_(dispensable) {}

  /// Decides which cohort serves and fills every member's `exclusion`. `members` are all probed
  /// members of the group, in the order in which they became known. The incumbent cohort is gone
  /// when none of its cards is there any more, or when all its workers have been down for
  /// `succession_after` while another cohort could serve; `fresh_id` then names the new set.
  /// Newly rejected cohorts go to `errors`.
  void choose(std::span<Member* const> members, net::TimePoint now, net::Duration succession_after,
              std::uint64_t& fresh_id, std::vector<std::string>& errors);
  /// When `choose` must be asked again though nothing else happens.
  std::optional<net::TimePoint> succession_at() const { return succession_at_; }

  /// True once a cohort serves.
  bool serves() const { return incumbent_.has_value(); }
  /// The incumbent's members, in the order of the last `choose`.
  std::span<Member* const> committed() const { return committed_; }
  /// The set of the committed members.
  std::shared_ptr<const WorkerSet> build_set();

  /// Id of the serving set; grows from set to set.
  std::uint64_t set_id() const { return set_id_; }
  /// Model id that the incumbents' engines report; may be empty.
  const std::string& model_id() const { return incumbent_->likeness.model_id; }
  /// Tokens per KV block; 0 = unknown.
  std::uint32_t kv_block_size() const { return incumbent_->likeness.kv_block_size; }

 private:
  /// What all members of a cohort share. Empty and zero agree with anything.
  struct Identity {
    std::string checksum;
    Likeness likeness;  // without a maker in sets that hand nothing over
  };

  static Identity identity_of(const Member& member);
  std::string difference(const Identity& other) const;
  void adopt(const Member& member, std::uint64_t& fresh_id);
  void keep_or_replace_incumbent(std::span<Member* const> members, net::TimePoint now,
                                 net::Duration succession_after, std::uint64_t& fresh_id);
  void reject(Member& member, std::string reason, std::vector<std::string>& errors);
  std::size_t slot_of(WorkerId id);

  GroupKey key_;
  bool dispensable_;
  std::uint64_t set_id_ = 0;
  std::optional<Identity> incumbent_;
  std::optional<net::TimePoint> succession_at_;
  std::vector<Member*> committed_;
  std::set<std::string> reported_;  // rejected cohorts named in the log under this incumbent
  std::set<std::string> rejected_;  // those of this round
  std::map<WorkerId, std::size_t> slots_;
  std::vector<bool> slot_taken_;
};

}  // namespace fairlead::fleet
