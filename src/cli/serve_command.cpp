#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "cli/command.hpp"
#include "cli/commands.hpp"
#include "cli/frontend.hpp"
#include "cli/process.hpp"
#include "cli/router_options.hpp"
#include "cli/serve_options.hpp"
#include "cli/tables.hpp"
#include "cli/version.hpp"
#include "hub/hub.hpp"
#include "net/reactor.hpp"

namespace fairlead::cli {
namespace {

void warn_unsupported_variables() {
  for (const UnsupportedVariable& variable : unsupported_variables()) {
    if (std::getenv(std::string(variable.name).c_str())) {
      log::warn("{} has no effect: {}", variable.name, variable.reason);
    }
  }
}

/// Finds the models that the hub has, and downloads what is not here. Nothing is served yet, so a
/// signal ends the process at once.
Result<> resolve_model_paths(ServeOptions& options) {
  std::vector<std::string*> paths;
  for (auto& [name, path] : options.model_paths.named) {
    paths.push_back(&path);
  }
  paths.push_back(&options.model_paths.common);
  std::erase_if(paths, [](const std::string* path) { return !hub::is_hub_name(*path); });
  if (paths.empty()) {
    return {};
  }
  end_at_signal(kExitDone);
  for (std::string* path : paths) {
    const auto folder = hub::resolve_model(*path);
    if (!folder) {
      return fail(folder.error().code,
                  fmt::format("{}: {}", options.model_path_origin, folder.error().message));
    }
    *path = folder->string();
  }
  prepare_signals();
  return {};
}

/// Serves until the second signal or the end of the drain that the first began. `hurried`: there
/// was a second one.
std::optional<Error> serve(ServeOptions options, bool& hurried) {
  if (Result<> resolved = resolve_model_paths(options); !resolved) {
    return resolved.error();
  }
  net::Reactor control("control");
  Result<std::unique_ptr<Frontend>> frontend = Frontend::start(control, std::move(options));
  if (!frontend) {
    return frontend.error();
  }
  std::optional<ExitGuard> guard;
  bool signalled = false;
  const SignalWatcher signals(control, [&](int) {
    log::info("shutting down");
    hurried = std::exchange(signalled, true);
    if (hurried && !guard) {
      guard.emplace(kSecondSignalGrace, kExitDone);
    }
    (*frontend)->drain([&] { control.stop(); });
  });
  const std::string address = (*frontend)->address().to_string();
  log::info("fairlead {} listens on {}", kVersion, address);
  print_ready(fmt::format(R"({{"http":"{}"}})", address));
  control.run();
  end_at_signal(kExitDone);
  if (!guard) {
    guard.emplace(kEndGrace, kExitDone);
  }
  // In a turn, since what it owns belongs to the reactor.
  control.post([&] { frontend->reset(); });
  control.run_turn(net::Duration(0));
  return std::nullopt;
}

}  // namespace

int run_serve(const Settings& settings) {
  Result<ServeOptions> options = serve_options(settings);
  if (!options) {
    return report("serve", options.error());
  }
  prepare_signals();
  raise_fd_limit(options->fd_limit);
  start_log(settings);
  warn_unsupported_variables();
  for (const std::string& line : router_warnings(settings)) {
    log::warn("{}", line);
  }
  bool hurried = false;
  const std::optional<Error> failure = serve(std::move(*options), hurried);
  return end_command("serve", failure, hurried);
}

}  // namespace fairlead::cli
