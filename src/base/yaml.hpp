#pragma once

#include <cstddef>
#include <string_view>

#include "base/error.hpp"
#include "base/json.hpp"

namespace fairlead::yaml {

/// Mappings and lists within each other that `parse` accepts.
inline constexpr int kMaxDepth = 32;
/// Longest text that `parse` accepts.
inline constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

/// Parses one YAML document as configuration files have them, JSON included. Plain scalars are
/// typed by the core schema of YAML 1.2: null, booleans, integers, numbers, else text; quoted and
/// block scalars are text. Keys are text, whatever they look like. Errors are `InvalidRequest` and
/// name the line: syntax, a repeated key, one that is no scalar, and what is not read: anchors,
/// aliases, tags other than those of the core schema, several documents.
Result<json::Value> parse(std::string_view text);

}  // namespace fairlead::yaml
