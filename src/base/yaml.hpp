#pragma once

#include <string_view>

#include "base/error.hpp"
#include "base/json.hpp"

namespace fairlead::yaml {

/// Deepest nesting that `parse` accepts.
inline constexpr int kMaxDepth = 32;

/// Parses the part of YAML 1.2 that configuration files use, JSON included: block and flow mappings
/// and lists, plain and quoted scalars of one line, comments, one leading `---`. Plain scalars are
/// typed by the core schema: null, booleans, integers, numbers, else text. Keys are text, whatever
/// they look like. Errors are `InvalidRequest` and name the line: syntax, a repeated key, and what
/// is not read: anchors, aliases, tags, block scalars, text over several lines, several documents,
/// tabs as indentation.
Result<json::Value> parse(std::string_view text);

}  // namespace fairlead::yaml
