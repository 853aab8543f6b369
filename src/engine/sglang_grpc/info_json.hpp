#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/json.hpp"

namespace fairlead::engine::sglang_grpc {

/// Parses a document that Python's `json` wrote, which may have bare NaN and infinities: they
/// become null.
Result<json::Value> parse_python_json(std::string_view text, int max_depth);

/// Members of the engine's own JSON, whose values are what Python made of them: a number may be a
/// decimal text, what is unset is null. Absent, null and unreadable are the same: nothing.
std::optional<std::uint64_t> find_count(const json::Value& object, std::string_view key);
/// A text; empty for nothing, and for one of spaces.
std::string find_text(const json::Value& object, std::string_view key);
/// True only for `true`.
bool find_flag(const json::Value& object, std::string_view key);

}  // namespace fairlead::engine::sglang_grpc
