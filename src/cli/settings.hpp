#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "cli/config_file.hpp"
#include "cli/option_spec.hpp"

namespace fairlead::cli {

/// Where a value came from, strongest first.
enum class Source : std::uint8_t { Flag, Environment, File, Default };

/// What stood on the command line, before anything was checked.
struct RawArguments {
  std::map<std::string, std::vector<std::string>, std::less<>> options;  ///< By option name.
  std::vector<std::string> positional;                                   ///< In order.
  bool help = false;                                                     ///< `--help` was given.
};

/// Looks an environment variable up; the seam for tests.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// The resolved values of one command's options: flag over `FAIRLEAD_` over `DYN_` variable over
/// file over default, each checked against its row. Getters take names of the command's table; any
/// other name is a mistake of this program and aborts.
class Settings {
 public:
  /// Resolves every option. Errors are `InvalidRequest`, one line that names the option and where
  /// its value came from. `file_name` is for messages only.
  static Result<Settings> resolve(std::span<const OptionSpec> table, const RawArguments& arguments,
                                  const Environment& environment, std::span<const ConfigEntry> file,
                                  std::string_view file_name);

  /// A Bool.
  bool flag(std::string_view name) const;
  /// An Integer; it must have a default or have been given.
  std::int64_t integer(std::string_view name) const;
  /// A Number, likewise.
  double number(std::string_view name) const;
  /// A Text; empty when unset.
  const std::string& text(std::string_view name) const;
  /// A List; empty when unset.
  const std::vector<std::string>& list(std::string_view name) const;
  /// True when the value does not come from the table.
  bool given(std::string_view name) const;
  /// True when an option that is no Bool has a value.
  bool set(std::string_view name) const;
  /// Where the value came from.
  Source source(std::string_view name) const;
  /// Where the value came from, for messages: `--name`, the variable's name, or `FILE:LINE`.
  const std::string& origin(std::string_view name) const;
  /// Arguments that are no options.
  const std::vector<std::string>& positional() const { return positional_; }
  /// The table it was resolved against.
  std::span<const OptionSpec> table() const { return table_; }

 private:
  struct Value {
    std::vector<std::string> texts;
    Source source = Source::Default;
    std::string origin;
    bool flag = false;
    std::int64_t integer = 0;
    double number = 0;
  };

  static Value choose(const OptionSpec& spec, const RawArguments& arguments,
                      const Environment& environment, std::span<const ConfigEntry> file,
                      std::string_view file_name);
  static Result<Value> check(const OptionSpec& spec, Value value);
  const Value& at(std::string_view name) const;

  std::span<const OptionSpec> table_;
  std::map<std::string, Value, std::less<>> values_;
  std::vector<std::string> positional_;
};

}  // namespace fairlead::cli
