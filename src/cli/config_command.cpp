#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "cli/command.hpp"
#include "cli/commands.hpp"
#include "cli/docs.hpp"
#include "cli/engine_list.hpp"
#include "cli/router_options.hpp"
#include "cli/serve_options.hpp"
#include "cli/version.hpp"

namespace fairlead::cli {
namespace {

std::string value_text(const Settings& settings, const OptionSpec& spec) {
  if (spec.kind == OptionKind::Bool) {
    return settings.flag(spec.name) ? "true" : "false";
  }
  const bool several = spec.kind == OptionKind::List || spec.kind == OptionKind::Texts;
  return several ? fmt::format("{}", fmt::join(settings.list(spec.name), ","))
                 : settings.text(spec.name);
}

int check(const Settings& settings) {
  if (const Result<ServeOptions> options = serve_options(settings); !options) {
    return report("config check", options.error());
  }
  for (const std::string& line : router_warnings(settings)) {
    fmt::print(stderr, "fairlead config check: {}\n", line);
  }
  for (const OptionSpec& spec : settings.table()) {
    const std::string value = value_text(settings, spec);
    if (!value.empty()) {
      fmt::print("{} = {}  # {}\n", spec.name, value,
                 settings.given(spec.name) ? settings.origin(spec.name) : "default");
    }
  }
  return kExitDone;
}

}  // namespace

int run_config(const Settings& settings) {
  const auto& words = settings.positional();
  if (words.size() == 1 && words.front() == "docs") {
    std::fputs(configuration_page().c_str(), stdout);
    return kExitDone;
  }
  if (words.size() == 1 && words.front() == "check") {
    return check(settings);
  }
  return report("config", {ErrorCode::InvalidRequest, "say `config check` or `config docs`", {}});
}

int run_version(const Settings& settings) {
  static_cast<void>(settings);
  fmt::print("fairlead {}\n", kVersion);
  return kExitDone;
}

}  // namespace fairlead::cli
