#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/likeness.hpp"

namespace fairlead::fleet {

/// What the prefill and decode engines of one model and namespace must have in common to hand KV
/// caches to one another. The members that fit the first one that was up, whatever their role,
/// remain for as long as one of them is there; others are left out until then, since no peer of
/// theirs could be told from one that never answers a hand-over.
class Pairing {
 public:
  /// Of a model in a namespace.
  Pairing(std::string model, std::string name_space);

  /// Fills the `exclusion` of the members that do not fit. `members` are all probed ones that
  /// prefill or decode, in the order in which they became known. Newly rejected ones go to
  /// `errors`.
  void choose(std::span<Member* const> members, net::TimePoint now, net::Duration succession_after,
              std::vector<std::string>& errors);
  /// When `choose` must be asked again though nothing else happens.
  std::optional<net::TimePoint> succession_at() const { return succession_at_; }

 private:
  std::string model_;
  std::string name_space_;
  std::optional<Likeness> incumbent_;
  std::string incumbent_url_;
  std::optional<net::TimePoint> succession_at_;
  std::set<std::string> reported_;  // endpoint and reason of the members that are left out
};

}  // namespace fairlead::fleet
