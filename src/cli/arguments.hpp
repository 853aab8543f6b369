#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "cli/option_spec.hpp"
#include "cli/settings.hpp"

namespace fairlead::cli {

/// Splits a command's arguments (without the program's and the command's name) into options and
/// positional ones. Errors are `InvalidRequest`, one line; an unknown flag gets a hint.
Result<RawArguments> parse_arguments(std::span<const OptionSpec> table,
                                     const std::vector<std::string>& arguments);

/// Help of one command: usage line, summary, options by section.
std::string help_text(std::string_view command, std::string_view summary,
                      std::string_view positional, std::span<const OptionSpec> table);

}  // namespace fairlead::cli
