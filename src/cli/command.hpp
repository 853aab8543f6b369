#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "cli/option_spec.hpp"
#include "cli/settings.hpp"

namespace fairlead::cli {

/// Exit codes of the program.
inline constexpr int kExitDone = 0;    ///< Did what was asked.
inline constexpr int kExitFailed = 1;  ///< Failed at run time.
inline constexpr int kExitUsage = 2;   ///< Wrong usage or configuration.

/// One subcommand.
struct Command {
  std::string_view name;                 ///< As typed.
  std::string_view summary;              ///< One line for help.
  std::string_view positional;           ///< Placeholder of its arguments; empty = takes none.
  std::span<const OptionSpec> options;   ///< Its rows of the option table.
  int (*run)(const Settings& settings);  ///< Returns an exit code.
};

/// Finds the command that `argv` names, resolves its options and runs it. Prints help, and errors
/// as one line on stderr.
int run_program(std::span<const Command> commands, int argc, const char* const* argv);

/// kExitUsage for `InvalidRequest`, else kExitFailed.
int exit_code(const Error& error);

/// `fairlead COMMAND: message` as one line, its end included.
std::string error_line(std::string_view command, const Error& error);

/// Writes `error_line` to stderr; returns `exit_code`.
int report(std::string_view command, const Error& error);

/// The longest file that a command reads as a whole.
inline constexpr std::size_t kMaxFileBytes = std::size_t{16} << 20;

/// Reads a whole file or pipe of at most `max_bytes`; other things, folders and devices, are
/// refused, only the null device is an empty file. A pipe that is silent, or that nobody writes to,
/// for longer than `patience` is refused, too. The error names the file and the reason.
Result<std::string> read_file(const std::string& path, std::size_t max_bytes = kMaxFileBytes,
                              std::chrono::milliseconds patience = std::chrono::seconds(10));

}  // namespace fairlead::cli
