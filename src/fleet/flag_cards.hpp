#pragma once

#include <span>
#include <vector>

#include "fleet/card.hpp"

namespace fairlead::fleet {

/// An engine that the operator named on the command line.
struct NamedEngine {
  Endpoint endpoint;                                ///< Where it listens.
  engine::Backend backend = engine::Backend::Vllm;  ///< Which wire.
};

/// The cards of engines named by flags, for the source `flags`. With prefill engines the others are
/// Decode and each kind needs the other; otherwise all are Aggregated. Names and lengths are left
/// to the engines.
std::vector<Card> flag_cards(std::span<const NamedEngine> engines,
                             std::span<const NamedEngine> prefill_engines);

}  // namespace fairlead::fleet
