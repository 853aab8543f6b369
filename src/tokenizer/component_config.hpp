#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/json.hpp"

namespace fairlead::tokenizer {

/// Deepest nesting of Sequences in one component.
inline constexpr int kMaxSequenceDepth = 16;
/// Most steps of a normalizer, pre-tokenizer or decoder.
inline constexpr std::size_t kMaxSteps = 64;
/// A text may grow by this factor (and a little more) in a normalizer or pre-tokenizer.
inline constexpr std::size_t kMaxGrowth = 64;

/// Largest size of what a text of `size` bytes becomes.
constexpr std::size_t max_grown_size(std::size_t size) { return kMaxGrowth * (size + 1024); }

/// Bytes of text between two looks at whether the result is still wanted.
inline constexpr std::size_t kStopBytes = std::size_t{64} * 1024;
/// Matches of a regex, or pieces, between two such looks.
inline constexpr std::size_t kStopMatches = 4096;

/// The failure of work whose `stop` was requested.
std::unexpected<Error> stopped();
/// The failure of work whose result is out of proportion.
std::unexpected<Error> grown_too_long();

/// Reads one component of a `tokenizer.json`; errors name the part of the file and the component.
class ComponentConfig {
 public:
  /// Both must outlive the object. `part` is the member of the file, as `normalizer`.
  ComponentConfig(std::string_view part, const json::Value& config);

  /// The member `type`, empty when there is none.
  std::string_view type() const { return type_; }
  /// A member of any kind; null when it is not there.
  const json::Value* find(std::string_view name) const { return config_.find(name); }
  /// Whether a member is there.
  bool has(std::string_view name) const { return find(name) != nullptr; }
  /// Whether a member is there and not null.
  bool has_value(std::string_view name) const { return has(name) && !find(name)->is_null(); }
  /// A boolean member that must be there.
  Result<bool> flag(std::string_view name) const;
  /// A boolean member, `fallback` when it is not there.
  Result<bool> flag(std::string_view name, bool fallback) const;
  /// A string member that must be there.
  Result<std::string_view> string(std::string_view name) const;
  /// A string member of exactly one character.
  Result<std::string_view> character(std::string_view name) const;
  /// An array member that must be there.
  Result<const json::Array*> array(std::string_view name) const;
  /// A count of 64 bits that must be there.
  Result<std::size_t> count(std::string_view name) const;
  /// A count, `fallback` when it is not there.
  Result<std::size_t> count(std::string_view name, std::size_t fallback) const;

  /// What `pattern` matches.
  struct Pattern {
    bool is_regex;          ///< Otherwise a literal.
    std::string_view text;  ///< The regex or the literal.
  };
  /// The member `pattern`.
  Result<Pattern> pattern() const;

  /// The configuration is broken.
  std::unexpected<Error> bad(std::string_view message) const;
  /// The configuration cannot be done exactly.
  std::unexpected<Error> unsupported(std::string_view message) const;
  /// `error` with the component before its message.
  Error wrap(Error error) const;

 private:
  std::string_view part_;
  const json::Value& config_;
  std::string_view type_;
};

/// Calls `add` for a component, or for each step of a `Sequence`, which are its member `list`, and
/// of Sequences in it, in order; for nothing when it is null. Ends at the first failure.
Result<> each_step(std::string_view part, std::string_view list, const json::Value& component,
                   const std::function<Result<>(const ComponentConfig&)>& add, int depth = 0);

}  // namespace fairlead::tokenizer
