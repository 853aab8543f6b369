#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace fairlead::cli {

/// One `key = value` of a configuration file.
struct ConfigEntry {
  std::string table;                ///< The `[table]` it stands under; empty before the first.
  std::string key;                  ///< Option name; underscores were turned into dashes.
  std::vector<std::string> values;  ///< One, or the elements of an array.
  int line = 0;                     ///< Where it stands, from 1.
};

/// Parses the part of TOML that options need: `key = value` lines with bare, 'single' or "double"
/// quoted text, numbers, booleans and arrays (also over several lines), `#` comments, and `[table]`
/// headers. Entries before the first header and under `[command]` are returned, those of other
/// tables are left out; tables must be among `commands`. Errors are `InvalidRequest` and name the
/// line.
Result<std::vector<ConfigEntry>> parse_config(std::string_view text, std::string_view command,
                                              std::span<const std::string> commands);

}  // namespace fairlead::cli
