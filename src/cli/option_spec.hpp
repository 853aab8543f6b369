#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fairlead::cli {

/// What the text of an option must be.
enum class OptionKind : std::uint8_t {
  Bool,     ///< `--name`, `--no-name`; elsewhere true/false, 1/0, yes/no, on/off.
  Integer,  ///< A whole number within the range.
  Number,   ///< A finite number within the range.
  Text,     ///< Any text, or one of the choices.
  List,     ///< Repeatable; comma lists are split; several values may follow one flag.
  Texts,    ///< Repeatable; every value as it stands.
};

/// One row of the option table, which feeds parsing, help, the documentation and `config check`.
struct OptionSpec {
  std::string_view name;                ///< Flag without the dashes; also the key in files.
  OptionKind kind = OptionKind::Text;   ///< What its values are.
  std::string_view value_name = {};     ///< Placeholder in help.
  std::string_view default_value = {};  ///< As text; empty means unset (false for Bool).
  std::string_view help = {};           ///< One sentence without a full stop.
  std::string_view section = {};        ///< Heading in help and documentation.
  /// Name of the second environment variable. Empty: `DYN_` and the flag in upper snake case; `-`:
  /// none.
  std::string_view dyn_name = {};
  double minimum = std::numeric_limits<double>::lowest();  ///< Smallest Integer or Number.
  double maximum = std::numeric_limits<double>::max();     ///< Largest Integer or Number.
  std::string_view choices = {};                           ///< Comma list of the legal texts.
  std::string_view alias = {};                             ///< A second flag of the same meaning.
  /// Not empty: the option is known but giving it is wrong usage, for this reason.
  std::string_view refusal = {};
  /// The text `None` leaves an Integer or Number unset.
  bool none_unsets = false;
};

/// `FAIRLEAD_` and the name in upper snake case.
std::string environment_name(const OptionSpec& spec);

/// The `DYN_` variable of an option; empty when it has none.
std::string dyn_environment_name(const OptionSpec& spec);

/// The option of this name or alias, or null.
const OptionSpec* find_option(std::span<const OptionSpec> table, std::string_view name);

/// Of all names, aliases and `no-` forms the one most like `name`; empty when none is near.
std::string closest_option(std::span<const OptionSpec> table, std::string_view name);

/// Of `names` the one most like `name`; empty when none is near.
std::string closest_name(std::span<const std::string> names, std::string_view name);

/// Splits at commas and trims blanks; empty items are dropped.
std::vector<std::string> split_commas(std::string_view text);

}  // namespace fairlead::cli
