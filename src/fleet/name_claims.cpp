#include "fleet/name_claims.hpp"

#include <fmt/format.h>

namespace fairlead::fleet {

void NameClaims::begin_round() {
  former_ = std::exchange(held_, {});
  refused_ = std::exchange(still_refused_, {});
}

void NameClaims::announce(const NameClaim& claim) {
  const auto former = former_.find(claim.name);
  if (former != former_.end() && former->second == claim.owner) {
    held_.emplace(claim.name, claim.owner);
  }
}

bool NameClaims::take(const NameClaim& claim, std::vector<std::string>& errors) {
  const auto [place, taken] = held_.emplace(claim.name, claim.owner);
  if (taken || place->second == claim.owner) {
    return true;
  }
  const auto pair = std::pair(claim.name, claim.owner);
  still_refused_.insert(pair);
  if (!refused_.contains(pair)) {
    errors.push_back(
        fmt::format("{} refused: its name is held by another model name={} wanted_by={} holder={}",
                    claim.what, claim.name, claim.owner, place->second));
  }
  return false;
}

std::string_view NameClaims::holder(std::string_view name) const {
  const auto found = held_.find(name);
  return found == held_.end() ? std::string_view() : found->second;
}

}  // namespace fairlead::fleet
