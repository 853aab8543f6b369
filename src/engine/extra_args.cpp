#include "engine/extra_args.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace fairlead::engine {

bool is_connector_argument(std::string_view key) {
  constexpr std::array<std::string_view, 3> kNames{"kv_transfer_params", "ec_transfer_params",
                                                   "kv_hints"};
  return std::ranges::find(kNames, key) != kNames.end() || key.starts_with("bootstrap_");
}

void overlay_members(json::Value& base, const json::Object& over) {
  if (!base.as_object()) {
    base = json::Object();
  }
  json::Object& object = *base.as_object();
  for (const json::Member& member : over) {
    object.set(member.key, member.value);
  }
}

json::Value merge_extra_args(const json::Value& defaults, const json::Object& asked) {
  std::vector<json::Member> merged;
  const auto add = [&](const json::Member& member) {
    if (!is_connector_argument(member.key)) {
      merged.push_back(member);
    }
  };
  if (const json::Object* object = defaults.as_object()) {
    for (const json::Member& member : *object) {
      const json::Value* over = asked.find(member.key);
      add(over ? json::Member{member.key, *over} : member);
    }
  }
  for (const json::Member& member : asked) {
    if (!defaults.find(member.key)) {
      add(member);
    }
  }
  return merged.empty() ? json::Value() : json::Value(json::Object(std::move(merged)));
}

}  // namespace fairlead::engine
