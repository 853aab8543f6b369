#include "fleet/duty.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace fairlead::fleet {
namespace {

using engine::Leg;

using Needs = std::vector<std::vector<Role>>;

std::string_view own_words(Leg role) {
  switch (role) {
    case Leg::Whole: return "a whole one";
    case Leg::Prefill: return "a prefill engine";
    case Leg::Decode: return "a decode engine";
  }
  return {};
}

/// What `role` cannot do without when its card says nothing about it.
Needs usual_needs(Role role) {
  switch (role) {
    case Role::Aggregated: return {};
    case Role::Prefill: return {{Role::Decode}};
    case Role::Decode: return {{Role::Prefill}};
  }
  return {};
}

/// The same without prefill engines.
Needs without_prefill(Needs needs) {
  for (std::vector<Role>& peers : needs) {
    std::erase(peers, Role::Prefill);
    if (peers.empty()) {
      return {};
    }
  }
  return needs;
}

}  // namespace

Role effective_role(const Card& card, const engine::EngineInfo& info) {
  if (!info.role) {
    return card.role;
  }
  switch (*info.role) {
    case Leg::Prefill: return Role::Prefill;
    case Leg::Decode: return Role::Decode;
    case Leg::Whole: break;
  }
  return Role::Aggregated;
}

Duty duty_of(const Card& card, const std::string& checksum, const engine::EngineInfo& info,
             bool decode_alone) {
  Duty duty;
  duty.role = effective_role(card, info);
  if (card.role == Role::Prefill && duty.role != Role::Prefill) {
    duty.contradiction = fmt::format("it is named as a prefill engine and says that it is {}",
                                     own_words(info.role.value_or(Leg::Whole)));
  }
  const bool told = info.role && *info.role != Leg::Whole;
  const bool cards_needs = duty.role == card.role && !(told && card.needs.empty());
  duty.needs = cards_needs ? card.needs : usual_needs(duty.role);
  if (decode_alone && duty.role == Role::Decode && !told) {
    duty.needs = without_prefill(std::move(duty.needs));
  }
  const bool as_card = duty.role == card.role && duty.needs == card.needs;
  duty.checksum = as_card ? checksum : card.checksum_as(duty.role, duty.needs);
  return duty;
}

}  // namespace fairlead::fleet
