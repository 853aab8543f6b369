#include "fleet/pairing.hpp"

#include <fmt/format.h>

#include <utility>

#include "fleet/succession.hpp"

namespace fairlead::fleet {

Pairing::Pairing(std::string model, std::string name_space)
    : model_(std::move(model)), name_space_(std::move(name_space)) {}

Pairing::Identity Pairing::identity_of(const Member& member) {
  return {.maker = std::string(engine::maker_name(member.card.backend)),
          .model_id = member.info->model_id,
          .kv_block_size = known_info(member).kv_block_size};
}

std::string Pairing::difference(const Identity& other) const {
  if (incumbent_->maker != other.maker) {
    return fmt::format("engine of {} instead of {}", other.maker, incumbent_->maker);
  }
  const std::string& model_id = incumbent_->model_id;
  if (!model_id.empty() && !other.model_id.empty() && model_id != other.model_id) {
    return fmt::format("model id `{}` instead of `{}`", other.model_id, model_id);
  }
  const std::uint32_t block = incumbent_->kv_block_size;
  if (block != 0 && other.kv_block_size != 0 && block != other.kv_block_size) {
    return fmt::format("KV block size {} instead of {}", other.kv_block_size, block);
  }
  return {};
}

void Pairing::choose(std::span<Member* const> members, net::TimePoint now,
                     net::Duration succession_after, std::vector<std::string>& errors) {
  const Succession succession = find_successor(
      members,
      [this](const Member& member) {
        return incumbent_ && difference(identity_of(member)).empty();
      },
      now, succession_after);
  succession_at_ = succession.later;
  if (succession.extinct) {
    incumbent_.reset();
  }
  if (succession.heir) {
    incumbent_ = identity_of(*succession.heir);
    incumbent_url_ = succession.heir->card.endpoint.url;
    reported_.clear();
  }
  const std::set<std::string> known = std::exchange(reported_, {});
  for (Member* member : members) {
    if (!incumbent_) {
      return;  // none of them was ever up
    }
    const Identity identity = identity_of(*member);
    std::string reason = difference(identity);
    if (reason.empty()) {
      if (member->up) {  // fill what the first one did not know
        incumbent_->model_id =
            incumbent_->model_id.empty() ? identity.model_id : incumbent_->model_id;
        incumbent_->kv_block_size =
            incumbent_->kv_block_size == 0 ? identity.kv_block_size : incumbent_->kv_block_size;
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
