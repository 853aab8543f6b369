#pragma once

#include <cstdint>
#include <string>

#include "fleet/member.hpp"

namespace fairlead::fleet {

/// What engines must have in common to serve one model together. Empty and zero agree with
/// anything, but for the maker.
struct Likeness {
  std::string maker;                ///< Whose engine it is.
  std::string model_id;             ///< As the engine reports it.
  std::uint32_t kv_block_size = 0;  ///< As it says, or else its card.

  /// Takes over what is not known yet.
  void fill(const Likeness& other);
};

/// That of a probed member.
Likeness likeness_of(const Member& member);

/// What tells `other` from those that are there, in words; empty when nothing does.
std::string difference(const Likeness& incumbent, const Likeness& other);

}  // namespace fairlead::fleet
