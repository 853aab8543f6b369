#include "cli/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <utility>

namespace fairlead::cli {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') {
      c = static_cast<char>(c - 'A' + 'a');
    }
  }
  return out;
}

std::optional<bool> parse_bool(std::string_view text) {
  const std::string word = lower(text);
  if (word == "1" || word == "true" || word == "yes" || word == "on") {
    return true;
  }
  if (word == "0" || word == "false" || word == "no" || word == "off" || word.empty()) {
    return false;
  }
  return std::nullopt;
}

template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    return std::nullopt;
  }
  return value;
}

std::string range_text(const OptionSpec& spec) {
  const bool low = spec.minimum > std::numeric_limits<double>::lowest();
  const bool high = spec.maximum < std::numeric_limits<double>::max();
  if (low && high) {
    return fmt::format(" from {} to {}", spec.minimum, spec.maximum);
  }
  if (low) {
    return fmt::format(" of at least {}", spec.minimum);
  }
  return high ? fmt::format(" of at most {}", spec.maximum) : std::string();
}

template <class... Args>
std::unexpected<Error> usage(fmt::format_string<Args...> format, Args&&... args) {
  return fail(ErrorCode::InvalidRequest, fmt::format(format, std::forward<Args>(args)...));
}

/// The value an option takes from the file, or null; the one in the command's own table wins, which
/// is the last.
const ConfigEntry* find_entry(std::span<const ConfigEntry> file, const OptionSpec& spec) {
  const ConfigEntry* found = nullptr;
  for (const ConfigEntry& entry : file) {
    if (entry.key == spec.name || (!spec.alias.empty() && entry.key == spec.alias)) {
      found = &entry;
    }
  }
  return found;
}

Result<> check_keys(std::span<const OptionSpec> table, std::span<const ConfigEntry> file,
                    std::string_view file_name) {
  constexpr std::string_view kConfig = "config";
  std::map<std::pair<std::string_view, std::string_view>, int> lines;  // by table and option
  for (const ConfigEntry& entry : file) {
    const OptionSpec* spec = find_option(table, entry.key);
    if (!spec) {
      const std::string hint = closest_option(table, entry.key);
      return usage("{}:{}: unknown key `{}`{}", file_name, entry.line, entry.key,
                   hint.empty() ? std::string() : fmt::format("; did you mean `{}`?", hint));
    }
    if (spec->name == kConfig) {
      return usage("{}:{}: `{}` names this file and cannot stand in it", file_name, entry.line,
                   kConfig);
    }
    const auto [first, is_first] =
        lines.emplace(std::pair(std::string_view(entry.table), spec->name), entry.line);
    if (!is_first) {
      return usage("{}:{}: `{}` is set twice, first in line {}", file_name, entry.line, spec->name,
                   first->second);
    }
  }
  return {};
}

}  // namespace

Result<Settings> Settings::resolve(std::span<const OptionSpec> table, const RawArguments& arguments,
                                   const Environment& environment,
                                   std::span<const ConfigEntry> file, std::string_view file_name) {
  if (Result<> known = check_keys(table, file, file_name); !known) {
    return std::unexpected(known.error());
  }
  Settings settings;
  settings.table_ = table;
  settings.positional_ = arguments.positional;
  for (const OptionSpec& spec : table) {
    Value value = choose(spec, arguments, environment, file, file_name);
    Result<Value> checked = check(spec, std::move(value));
    if (!checked) {
      return std::unexpected(checked.error());
    }
    settings.values_.emplace(spec.name, std::move(*checked));
  }
  return settings;
}

// The strongest source that says something about the option, unchecked.
Settings::Value Settings::choose(const OptionSpec& spec, const RawArguments& arguments,
                                 const Environment& environment, std::span<const ConfigEntry> file,
                                 std::string_view file_name) {
  if (const auto flag = arguments.options.find(spec.name); flag != arguments.options.end()) {
    return {
        .texts = flag->second, .source = Source::Flag, .origin = fmt::format("--{}", spec.name)};
  }
  for (const std::string& name : {environment_name(spec), dyn_environment_name(spec)}) {
    // An empty variable is how shells unset one.
    const std::optional<std::string> variable = name.empty() ? std::nullopt : environment(name);
    if (variable && !variable->empty()) {
      return {.texts = {*variable}, .source = Source::Environment, .origin = name};
    }
  }
  if (const ConfigEntry* entry = find_entry(file, spec)) {
    return {.texts = entry->values,
            .source = Source::File,
            .origin = fmt::format("{}:{}: {}", file_name, entry->line, spec.name)};
  }
  Value value;
  if (!spec.default_value.empty()) {
    value.texts.emplace_back(spec.default_value);
  }
  return value;
}

Result<Settings::Value> Settings::check(const OptionSpec& spec, Value value) {
  if (spec.kind == OptionKind::List) {
    std::vector<std::string> items;
    for (const std::string& text : value.texts) {
      for (std::string& item : split_commas(text)) {
        items.push_back(std::move(item));
      }
    }
    value.texts = std::move(items);
  } else if (spec.kind != OptionKind::Texts && value.texts.size() > 1) {
    return usage("{}: one value is expected, not a list", value.origin);
  }
  const bool refused = value.source != Source::Default && !spec.refusal.empty();
  if (spec.kind == OptionKind::Bool) {
    if (!value.texts.empty()) {
      const std::optional<bool> parsed = parse_bool(value.texts.front());
      if (!parsed) {
        return usage("{}: `{}` is neither true nor false", value.origin, value.texts.front());
      }
      value.flag = *parsed;
    }
    if (refused && value.flag) {
      return usage("{}: {}", value.origin, spec.refusal);
    }
    return value;
  }
  if (refused && !value.texts.empty()) {
    return usage("{}: {}", value.origin, spec.refusal);
  }
  if (value.texts.empty()) {
    return value;
  }
  const std::string& text = value.texts.front();
  if (spec.none_unsets && lower(text) == "none") {
    value.texts.clear();
    return value;
  }
  if (spec.kind == OptionKind::Integer) {
    const auto parsed = parse_number<std::int64_t>(text);
    if (!parsed || static_cast<double>(*parsed) < spec.minimum ||
        static_cast<double>(*parsed) > spec.maximum) {
      return usage("{}: `{}` is not a whole number{}", value.origin, text, range_text(spec));
    }
    value.integer = *parsed;
  } else if (spec.kind == OptionKind::Number) {
    const auto parsed = parse_number<double>(text);
    if (!parsed || !std::isfinite(*parsed) || *parsed < spec.minimum || *parsed > spec.maximum) {
      return usage("{}: `{}` is not a number{}", value.origin, text, range_text(spec));
    }
    value.number = *parsed;
  } else if (spec.kind == OptionKind::Text && !spec.choices.empty()) {
    const std::vector<std::string> choices = split_commas(spec.choices);
    if (std::ranges::find(choices, text) == choices.end()) {
      return usage("{}: `{}` is unknown; choose one of {}", value.origin, text,
                   fmt::join(choices, ", "));
    }
  }
  return value;
}

const Settings::Value& Settings::at(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) {
    std::abort();
  }
  return found->second;
}

bool Settings::flag(std::string_view name) const { return at(name).flag; }

std::int64_t Settings::integer(std::string_view name) const { return at(name).integer; }

double Settings::number(std::string_view name) const { return at(name).number; }

const std::string& Settings::text(std::string_view name) const {
  static const std::string empty;
  const Value& value = at(name);
  return value.texts.empty() ? empty : value.texts.front();
}

const std::vector<std::string>& Settings::list(std::string_view name) const {
  return at(name).texts;
}

bool Settings::given(std::string_view name) const { return at(name).source != Source::Default; }

bool Settings::set(std::string_view name) const { return !at(name).texts.empty(); }

Source Settings::source(std::string_view name) const { return at(name).source; }

const std::string& Settings::origin(std::string_view name) const { return at(name).origin; }

}  // namespace fairlead::cli
