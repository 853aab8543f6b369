#include "cli/arguments.hpp"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <memory>
#include <utility>

namespace fairlead::cli {
namespace {

std::string flag_names(const OptionSpec& spec) {
  std::string names = fmt::format("--{}", spec.name);
  if (!spec.alias.empty()) {
    names += fmt::format(",--{}", spec.alias);
  }
  if (spec.kind == OptionKind::Bool) {
    names += fmt::format(",!--no-{}", spec.name);
    if (!spec.alias.empty()) {
      names += fmt::format(",!--no-{}", spec.alias);
    }
  }
  return names;
}

std::string description(const OptionSpec& spec) {
  std::string text(spec.help);
  if (!spec.choices.empty()) {
    text += fmt::format(" ({})", fmt::join(split_commas(spec.choices), ", "));
  }
  if (!spec.refusal.empty()) {
    text += fmt::format(" [not available: {}]", spec.refusal);
  } else if (!spec.default_value.empty()) {
    text += fmt::format(" [{}]", spec.default_value);
  }
  return text;
}

bool repeatable(const OptionSpec& spec) {
  return spec.kind == OptionKind::List || spec.kind == OptionKind::Texts;
}

CLI::Option* add(CLI::App& app, const OptionSpec& spec) {
  CLI::Option* option = nullptr;
  const std::string text = description(spec);  // const: the library would bind a variable
  if (spec.kind == OptionKind::Bool) {
    option = app.add_flag(flag_names(spec), text);
  } else {
    option = app.add_option(flag_names(spec), text);
    if (spec.kind == OptionKind::List) {
      option->expected(1, -1)->allow_extra_args();
    }
    option->type_name(spec.value_name.empty() ? "VALUE" : std::string(spec.value_name));
  }
  option->multi_option_policy(repeatable(spec) ? CLI::MultiOptionPolicy::TakeAll
                                               : CLI::MultiOptionPolicy::TakeLast);
  return option->group(spec.section.empty() ? "Options" : std::string(spec.section));
}

/// The library derives its usage line from the program's name, which is not the whole command.
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::string usage) : usage_(std::move(usage)) { column_width(44); }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    static_cast<void>(app);
    static_cast<void>(name);
    return usage_;
  }

 private:
  std::string usage_;
};

/// The flag part of `--name=value`.
std::string_view flag_of(std::string_view argument) {
  return argument.substr(0, argument.find('='));
}

std::unexpected<Error> unknown_flag(std::span<const OptionSpec> table, std::string_view argument) {
  const std::string_view flag = flag_of(argument);
  std::string_view bare = flag;
  while (bare.starts_with('-')) {
    bare.remove_prefix(1);
  }
  const std::string hint = closest_option(table, bare);
  return fail(ErrorCode::InvalidRequest,
              fmt::format("unknown option `{}`{}", flag,
                          hint.empty() ? std::string("; see --help")
                                       : fmt::format("; did you mean `--{}`?", hint)));
}

}  // namespace

Result<RawArguments> parse_arguments(std::span<const OptionSpec> table,
                                     const std::vector<std::string>& arguments) {
  CLI::App app;
  app.set_help_flag();
  CLI::Option* help = app.add_flag("-h,--help");
  app.allow_extras();
  std::vector<std::pair<const OptionSpec*, CLI::Option*>> options;
  for (const OptionSpec& spec : table) {
    options.emplace_back(&spec, add(app, spec));
  }
  RawArguments raw;
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(std::move(reversed));
  } catch (const CLI::ParseError& problem) {
    std::string text = problem.what();
    std::ranges::replace(text, '\n', ' ');
    return fail(ErrorCode::InvalidRequest, std::move(text));
  }
  raw.help = help->count() > 0;
  for (const auto& [spec, option] : options) {
    if (option->count() == 0) {
      continue;
    }
    std::vector<std::string> values = option->results();
    if (!repeatable(*spec) && values.size() > 1) {
      values.erase(values.begin(), values.end() - 1);
    }
    raw.options.emplace(spec->name, std::move(values));
  }
  for (std::string& extra : app.remaining()) {
    if (extra.size() > 1 && extra.starts_with('-')) {
      return unknown_flag(table, extra);
    }
    raw.positional.push_back(std::move(extra));
  }
  return raw;
}

std::string help_text(std::string_view command, std::string_view summary,
                      std::string_view positional, std::span<const OptionSpec> table) {
  std::string usage = fmt::format("Usage: fairlead {} [OPTIONS]", command);
  if (!positional.empty()) {
    usage += fmt::format(" {}", positional);
  }
  CLI::App app{std::string(summary)};
  app.formatter(std::make_shared<HelpFormatter>(usage + "\n"));
  for (const OptionSpec& spec : table) {
    add(app, spec);
  }
  return app.help();
}

}  // namespace fairlead::cli
