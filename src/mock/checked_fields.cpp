#include "mock/checked_fields.hpp"

#include <algorithm>
#include <limits>

namespace fairlead::mock {
namespace {

using json::Value;

std::optional<std::int64_t> whole(const Value& value) {
  if (const std::int64_t* number = value.as_int()) {
    return *number;
  }
  // Checked to be whole and small.
  const double* real = value.as_double();
  return real ? std::optional(static_cast<std::int64_t>(*real)) : std::nullopt;
}

std::vector<TokenId> ids_of(const Value& list) {
  std::vector<TokenId> out;
  if (const json::Array* items = list.as_array()) {
    out.reserve(items->size());
    for (const Value& item : *items) {
      constexpr std::int64_t kLargest = std::numeric_limits<TokenId>::max();
      const std::int64_t id = whole(item).value_or(kLargest);
      out.push_back(static_cast<TokenId>(id < 0 ? kLargest : std::min(id, kLargest)));
    }
  }
  return out;
}

}  // namespace

const Value* CheckedFields::find(std::string_view name) const {
  const Value* value = object_ ? object_->find(name) : nullptr;
  return value && !value->is_null() ? value : nullptr;
}

std::optional<std::int64_t> CheckedFields::integer(std::string_view name) const {
  const Value* value = find(name);
  return value ? whole(*value) : std::nullopt;
}

std::optional<float> CheckedFields::real(std::string_view name) const {
  double number = 0;
  const Value* value = find(name);
  return value && value->number(number) ? std::optional(static_cast<float>(number)) : std::nullopt;
}

bool CheckedFields::flag(std::string_view name) const {
  const Value* value = find(name);
  return value && value->as_bool() && *value->as_bool();
}

std::string CheckedFields::text(std::string_view name) const {
  const Value* value = find(name);
  return value && value->as_string() ? *value->as_string() : std::string();
}

std::vector<TokenId> CheckedFields::ids(std::string_view name) const {
  const Value* value = find(name);
  return value ? ids_of(*value) : std::vector<TokenId>();
}

std::vector<std::vector<TokenId>> CheckedFields::id_lists(std::string_view name) const {
  std::vector<std::vector<TokenId>> out;
  const Value* value = find(name);
  if (const json::Array* lists = value ? value->as_array() : nullptr) {
    out.reserve(lists->size());
    for (const Value& list : *lists) {
      out.push_back(ids_of(list));
    }
  }
  return out;
}

}  // namespace fairlead::mock
