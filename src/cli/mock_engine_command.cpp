#include "cli/mock_engine_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "base/log.hpp"
#include "cli/command.hpp"
#include "cli/commands.hpp"
#include "cli/process.hpp"
#include "mock/mock_engine.hpp"
#include "net/reactor.hpp"
#include "net/task_group.hpp"

namespace fairlead::cli {
namespace {

// Options of the command that the engine does not know.
constexpr std::array<std::string_view, 3> kOwn{"config", "log-level", "extra-engine-args"};

Result<> set(mock::MockOptions& options, const Settings& settings, std::string_view name,
             std::string_view value) {
  Result<> done = mock::set_option(options, name, value);
  if (!done && settings.source(name) != Source::Flag) {
    done.error().message = fmt::format("{} ({})", done.error().message, settings.origin(name));
  }
  return done;
}

}  // namespace

Result<mock::MockOptions> mock_options(const Settings& settings) {
  mock::MockOptions options;
  if (settings.given("extra-engine-args")) {
    if (Result<> done =
            set(options, settings, "extra-engine-args", settings.text("extra-engine-args"));
        !done) {
      return std::unexpected(done.error());
    }
  }
  for (const OptionSpec& spec : settings.table()) {
    if (!settings.given(spec.name) || std::ranges::find(kOwn, spec.name) != kOwn.end()) {
      continue;
    }
    if (spec.kind == OptionKind::Bool) {
      if (Result<> done =
              set(options, settings, spec.name, settings.flag(spec.name) ? "true" : "false");
          !done) {
        return std::unexpected(done.error());
      }
      continue;
    }
    for (const std::string& value : settings.list(spec.name)) {
      if (Result<> done = set(options, settings, spec.name, value); !done) {
        return std::unexpected(done.error());
      }
    }
  }
  return options;
}

namespace {

net::Task<> start_engine(mock::MockEngine& engine, net::Reactor& reactor,
                         std::optional<Error>& failure) {
  const Result<mock::MockAddresses> addresses = co_await engine.start();
  if (addresses) {
    print_ready(addresses->to_json());
  } else {
    // The engine could be told to use a busy port: that is no wrong usage.
    failure = Error{ErrorCode::Internal, addresses.error().message, {}};
    reactor.stop();
  }
}

}  // namespace

int run_mock_engine(const Settings& settings) {
  Result<mock::MockOptions> options = mock_options(settings);
  if (!options) {
    return report("mock-engine", options.error());
  }
  prepare_signals();
  start_log(settings);
  std::optional<Error> failure;
  {
    net::Reactor reactor("mock-engine");
    auto engine = mock::MockEngine::create(reactor, std::move(*options));
    if (!engine) {
      return end_command("mock-engine", engine.error());
    }
    (*engine)->set_on_death([&](const std::string& cause) {
      failure = Error{ErrorCode::Internal, "the engine died: " + cause, {}};
      reactor.stop();
    });
    const SignalWatcher signals(reactor, [&](int) { reactor.stop(); });
    net::TaskGroup tasks;
    reactor.post([&] { tasks.spawn(start_engine(**engine, reactor, failure)); });
    reactor.run();
    end_at_signal(failure ? kExitFailed : kExitDone);
    (*engine)->stop();
    tasks.cancel();
  }
  return end_command("mock-engine", failure);
}

}  // namespace fairlead::cli
