#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "cli/command.hpp"
#include "cli/commands.hpp"
#include "cli/frontend.hpp"
#include "cli/process.hpp"
#include "cli/router_options.hpp"
#include "cli/serve_options.hpp"
#include "cli/tables.hpp"
#include "cli/version.hpp"
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

/// Serves until the second signal or the end of the drain that the first began. `hurried`: there
/// was a second one.
std::optional<Error> serve(ServeOptions options, bool& hurried) {
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
