#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fleet/activity.hpp"
#include "fleet/card.hpp"
#include "fleet/duty.hpp"
#include "fleet/worker.hpp"
#include "net/reactor.hpp"

namespace fairlead::fleet {

/// What is known of one engine that a card names.
struct Member {
  Card card;                               ///< Its base card.
  std::string key;                         ///< Of the card.
  std::string checksum;                    ///< Of the card.
  WorkerId id = 0;                         ///< Of the card's endpoint.
  std::vector<Card> adapters;              ///< Adapter cards that belong to the card.
  std::optional<engine::EngineInfo> info;  ///< Last probe; absent before the first.
  Duty duty;                               ///< Of the last snapshot that it was probed for.
  std::vector<net::Address> addresses;     ///< Resolved.
  std::uint64_t incarnation = 0;           ///< See Worker.
  bool up = false;                         ///< Answers; may be given requests, unless `barred`.
  Circuit circuit = Circuit::Closed;       ///< See Worker.
  bool barred = false;                     ///< By its circuit.
  net::TimePoint down_since;               ///< When it went down, or when it became known.
  std::string exclusion;                   ///< Why it is left out though it answers; empty if not.
  std::shared_ptr<Activity> activity = std::make_shared<Activity>();  ///< See Worker.
};

/// What is known of a probed member's engine: its own word, and where it says nothing its card's.
engine::EngineInfo known_info(const Member& member);

}  // namespace fairlead::fleet
