#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "mock/token_formula.hpp"

namespace fairlead::mock {

/// The members of an object whose types were checked; null counts as absent.
class CheckedFields {
 public:
  /// The object must outlive it; null, or what is no object, has no members.
  explicit CheckedFields(const json::Value* value)
      : object_(value ? value->as_object() : nullptr) {}

  /// The member, unless it is absent.
  const json::Value* find(std::string_view name) const;
  /// A whole number, also one that was written with a fraction of zero.
  std::optional<std::int64_t> integer(std::string_view name) const;
  /// Any number.
  std::optional<float> real(std::string_view name) const;
  /// A boolean; false when absent.
  bool flag(std::string_view name) const;
  /// A string; empty when absent.
  std::string text(std::string_view name) const;
  /// A list of ids; those that no vocabulary can hold become the largest one.
  std::vector<TokenId> ids(std::string_view name) const;
  /// A list of such lists.
  std::vector<std::vector<TokenId>> id_lists(std::string_view name) const;

 private:
  const json::Object* object_;
};

}  // namespace fairlead::mock
