#include "fleet/pairing.hpp"

#include <fmt/format.h>

#include <utility>

#include "fleet/succession.hpp"

namespace fairlead::fleet {

Pairing::Pairing(std::string model, std::string name_space)
    : model_(std::move(model)), name_space_(std::move(name_space)) {}

void Pairing::choose(std::span<Member* const> members, net::TimePoint now,
                     net::Duration succession_after, std::vector<std::string>& errors) {
  const Succession succession = find_successor(
      members,
      [this](const Member& member) {
        return incumbent_ && difference(*incumbent_, likeness_of(member)).empty();
      },
      now, succession_after);
  succession_at_ = succession.later;
  if (succession.extinct) {
    incumbent_.reset();
  }
  if (succession.heir) {
    incumbent_ = likeness_of(*succession.heir);
    incumbent_url_ = succession.heir->card.endpoint.url;
    reported_.clear();
  }
  const std::set<std::string> known = std::exchange(reported_, {});
  for (Member* member : members) {
    if (!incumbent_) {
      return;  // none of them was ever up
    }
    const Likeness likeness = likeness_of(*member);
    std::string reason = difference(*incumbent_, likeness);
    if (reason.empty()) {
      if (member->up) {  // fill what the first one did not know
        incumbent_->fill(likeness);
      }
      continue;
    }
    std::string line = fmt::format("{}\n{}", member->card.endpoint.url, reason);
    if (member->up && !known.contains(line)) {
      errors.push_back(fmt::format(
          "engine left out: prefill and decode engines must be alike endpoint={} reason=\"{}\" "
          "model={} namespace=\"{}\" role={} incumbent={}",
          member->card.endpoint.url, reason, model_, name_space_, role_name(member->duty.role),
          incumbent_url_));
    }
    if (member->up || known.contains(line)) {
      reported_.insert(std::move(line));
    }
    member->exclusion = std::move(reason);
  }
}

}  // namespace fairlead::fleet
