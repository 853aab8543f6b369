#pragma once

#include <string>
#include <vector>

#include "engine/client.hpp"
#include "fleet/card.hpp"

namespace fairlead::fleet {

/// What a member does in its fleet: its card says what the operator wants, its engine what it was
/// started for.
struct Duty {
  Role role = Role::Aggregated;          ///< What it does.
  std::vector<std::vector<Role>> needs;  ///< Peers it cannot serve without: any of the lists.
  std::string checksum;                  ///< Of the card as this duty makes it.
  std::string contradiction;             ///< Why it can do nothing at all; empty if it can.
};

/// The role of an engine that has been probed. An engine that tells its role decides by itself;
/// otherwise its card does.
Role effective_role(const Card& card, const engine::EngineInfo& info);

/// The duty of an engine that has been probed; `checksum` is the card's own. With `decode_alone`
/// engines that decode may do without prefill engines, unless they say themselves that decoding is
/// all they do: such an engine answers nothing without a peer.
Duty duty_of(const Card& card, const std::string& checksum, const engine::EngineInfo& info,
             bool decode_alone);

}  // namespace fairlead::fleet
