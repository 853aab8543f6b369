#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/json.hpp"

// For reading the policy file: mappings whose fields are checked one by one.

namespace fairlead::routing {

/// Bound of the names of classes, families and buckets, which are label values, in bytes.
inline constexpr std::size_t kMaxPolicyNameBytes = 64;

/// What a value is, in words.
std::string_view kind_of(const json::Value& value);
/// A name from the file, cut and quoted for an error's one line.
std::string shown(std::string_view text);

/// Keeps the first thing that was found wrong.
class PolicyFindings {
 public:
  /// Something is wrong with the field at `path`; empty = the whole file.
  void add(std::string_view path, std::string_view what);
  /// True when something was added.
  bool any() const { return error_.has_value(); }
  /// The first one; `any` must hold.
  Error take();

 private:
  std::optional<Error> error_;
};

/// One mapping of the file. Reading a field that is wrong adds a finding and gives nothing.
class PolicySection {
 public:
  /// Bound of `count` that is none.
  static constexpr std::uint64_t kNoBound = std::numeric_limits<std::int64_t>::max();

  /// `path` is where it stands. Fields other than the `known` ones are findings.
  PolicySection(const json::Value& value, std::string path, PolicyFindings& findings,
                std::initializer_list<std::string_view> known);

  /// The path of a field.
  std::string field(std::string_view key) const;
  /// True when the field is there.
  bool has(std::string_view key) const { return find(key) != nullptr; }
  /// Text.
  std::optional<std::string> text(std::string_view key);
  /// Letters, digits, `_`, `.` and `-`: what may be a label value.
  std::optional<std::string> name(std::string_view key);
  /// A name that must be there; empty when it is wrong.
  std::string required_name(std::string_view key);
  /// A whole number in a range.
  std::optional<std::uint64_t> count(std::string_view key, std::uint64_t least = 0,
                                     std::uint64_t most = kNoBound);
  /// One that must be there; `least` when it is wrong.
  std::uint64_t required_count(std::string_view key, std::uint64_t least, std::uint64_t most);
  /// Any number.
  std::optional<double> number(std::string_view key);
  /// A list of 1 to `most` elements that must be there; empty when it is wrong.
  const json::Array& list(std::string_view key, std::size_t most);

 private:
  const json::Value* find(std::string_view key) const {
    return object_ ? object_->find(key) : nullptr;
  }
  const json::Value* required(std::string_view key);

  const json::Object* object_;
  std::string path_;
  PolicyFindings& findings_;
};

}  // namespace fairlead::routing
