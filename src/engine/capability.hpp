#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/request.hpp"

namespace fairlead::engine {

/// What an engine may or may not be able to do for a request. One row each in the table of
/// capability.cpp.
enum class Capability : std::uint8_t {
  VllmXargs,         ///< Extra arguments reach the engine's sampling parameters.
  LogprobTokenIds,   ///< Log-probabilities of chosen tokens.
  BadWordsTokenIds,  ///< Token sequences that are never generated.
  PromptLogprobs,    ///< Log-probabilities of the prompt's tokens.
  Lora,              ///< LoRA adapters by name.
  NativeN,           ///< Several sequences in one request of the engine.
  Multimodal,        ///< Media in the prompt.
  Embeddings,        ///< Embeddings instead of generation.
};

/// Number of `Capability` values; the table has one row each.
inline constexpr std::size_t kCapabilityCount = 8;

/// A set of capabilities; a value.
class CapabilitySet {
 public:
  constexpr CapabilitySet() = default;
  /// The set of these.
  constexpr CapabilitySet(std::initializer_list<Capability> members) {
    for (const Capability member : members) {
      add(member);
    }
  }

  /// Adds one.
  constexpr void add(Capability member) { bits_ |= bit(member); }
  /// Takes one out.
  constexpr void remove(Capability member) { bits_ &= ~bit(member); }
  /// True when it is in the set.
  constexpr bool has(Capability member) const { return (bits_ & bit(member)) != 0; }
  /// True when all of `others` are in the set.
  constexpr bool covers(CapabilitySet others) const { return (others.bits_ & ~bits_) == 0; }
  /// Those of this set that are not in `others`.
  constexpr CapabilitySet without(CapabilitySet others) const {
    CapabilitySet out;
    out.bits_ = bits_ & ~others.bits_;
    return out;
  }
  /// Those of either set.
  constexpr CapabilitySet with(CapabilitySet others) const {
    CapabilitySet out;
    out.bits_ = bits_ | others.bits_;
    return out;
  }
  /// True when there is none.
  constexpr bool empty() const { return bits_ == 0; }

  constexpr bool operator==(const CapabilitySet&) const = default;

 private:
  static constexpr std::uint32_t bit(Capability member) {
    return std::uint32_t{1} << static_cast<unsigned>(member);
  }
  std::uint32_t bits_ = 0;
};

/// One row of the capability table.
struct CapabilityTraits {
  Capability capability;   ///< The row's key.
  std::string_view name;   ///< In model cards, errors, logs and metrics.
  std::string_view field;  ///< The request field that needs it, for a refusal's `param`.
  bool (*needed)(const GenerateRequest& request);  ///< Whether a request cannot do without it.
  std::string_view probed;                         ///< How an engine is found to have it; for docs.
};

/// All rows, in the order of the enumeration.
std::span<const CapabilityTraits> capability_table();
/// The row of one.
const CapabilityTraits& capability_traits(Capability capability);
/// The capability of this name.
std::optional<Capability> find_capability(std::string_view name);
/// What the request cannot do without.
CapabilitySet required_capabilities(const GenerateRequest& request);
/// The names of a set for people: `a, b`; empty for none.
std::string capability_names(CapabilitySet set);
/// The first member's request field; empty for an empty set.
std::string_view capability_field(CapabilitySet set);

}  // namespace fairlead::engine
