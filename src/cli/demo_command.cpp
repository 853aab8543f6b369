#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "cli/command.hpp"
#include "cli/commands.hpp"
#include "cli/demo_model.hpp"
#include "cli/frontend.hpp"
#include "cli/mock_fleet.hpp"
#include "cli/process.hpp"
#include "cli/serve_options.hpp"
#include "cli/tables.hpp"
#include "net/reactor.hpp"

namespace fairlead::cli {
namespace {

constexpr std::string_view kModel = "fairlead-demo";
constexpr std::size_t kEngines = 2;
// Slow enough to see it stream.
constexpr double kTokenIntervalMs = 10;

mock::MockOptions engine_options(const chat::ModelAssets& assets) {
  mock::MockOptions options;
  options.model = kModel;
  options.reply = "echo";
  options.token_interval_ms = kTokenIntervalMs;
  options.max_model_len = assets.context_length;
  options.vocab_size = assets.vocab_size;
  options.eos_token_ids = assets.eos_token_ids;
  return options;
}

/// serve's own defaults with these engines; the environment has no say in a demo.
Result<ServeOptions> frontend_options(const Settings& settings, const MockFleet& engines) {
  RawArguments arguments;
  arguments.options["direct"] = {"true"};
  arguments.options["engine-url"] = engines.addresses();
  arguments.options["http-host"] = {settings.text("http-host")};
  arguments.options["http-port"] = {settings.text("http-port")};
  const auto nothing = [](const std::string&) { return std::optional<std::string>(); };
  const Result<Settings> resolved = Settings::resolve(serve_table(), arguments, nothing, {}, "");
  if (!resolved) {
    return std::unexpected(resolved.error());
  }
  return serve_options(*resolved);
}

/// On the port asked for, else on a free one.
Result<std::unique_ptr<Frontend>> start_frontend(
    net::Reactor& control, const ServeOptions& options,
    const std::shared_ptr<const chat::ModelAssets>& assets) {
  Result<std::unique_ptr<Frontend>> frontend = Frontend::start(control, options, assets);
  if (frontend || options.http_port == 0) {
    return frontend;
  }
  log::print(fmt::format("{}; taking a free port instead\n", frontend.error().message));
  ServeOptions other = options;
  other.http_port = 0;
  return Frontend::start(control, std::move(other), assets);
}

std::string invitation(const net::Address& address) {
  const std::string text = address.to_string();
  const std::string place =
      text.starts_with("0.0.0.0:") ? "127.0.0.1" + text.substr(text.find(':')) : text;
  return fmt::format(R"(
A frontend and two simulated engines that answer with your own words.

  http://{0}

With curl:

curl http://{0}/v1/chat/completions -H 'Content-Type: application/json' -d '{{"model": "{1}", "messages": [{{"role": "user", "content": "Hello, how are you today?"}}]}}'

With the OpenAI SDK for Python (pip install openai):

from openai import OpenAI
client = OpenAI(base_url="http://{0}/v1", api_key="none")
messages = [{{"role": "user", "content": "Tell me a story about a ship."}}]
for chunk in client.chat.completions.create(model="{1}", messages=messages, stream=True):
    print(chunk.choices[0].delta.content or "", end="", flush=True)

print()

Metrics are at http://{0}/metrics. Ctrl-C ends the demo.

)",
                     place, kModel);
}

/// Speaks once every engine is being served, so that what is printed works at once.
class Announcer {
 public:
  explicit Announcer(const Frontend& frontend) : frontend_(frontend), timer_([this] { check(); }) {}
  void check() {
    const auto fleet = frontend_.fleet();
    std::size_t healthy = 0;
    for (const auto& model : fleet->models) {
      for (const auto& set : model->worker_sets) {
        healthy += set->healthy();
      }
    }
    if (healthy < kEngines) {
      timer_.arm(std::chrono::milliseconds(10));
      return;
    }
    const net::Address& address = frontend_.address();
    log::print(invitation(address));
    print_ready(fmt::format(R"({{"http":"{}","model":"{}"}})", address.to_string(), kModel));
  }

 private:
  const Frontend& frontend_;
  net::Timer timer_;
};

std::optional<Error> run(const Settings& settings) {
  Result<std::shared_ptr<const chat::ModelAssets>> assets = load_demo_model();
  if (!assets) {
    return Error{ErrorCode::Internal, assets.error().message, {}};
  }
  const Result<std::unique_ptr<MockFleet>> engines =
      MockFleet::start(kEngines, engine_options(**assets));
  if (!engines) {
    return Error{ErrorCode::Internal, engines.error().message, {}};
  }
  Result<ServeOptions> options = frontend_options(settings, **engines);
  if (!options) {
    return options.error();
  }
  raise_fd_limit(options->fd_limit);
  net::Reactor control("control");
  Result<std::unique_ptr<Frontend>> frontend = start_frontend(control, *options, *assets);
  if (!frontend) {
    return frontend.error();
  }
  const SignalWatcher signals(control, [&](int) { control.stop(); });
  Announcer announcer(**frontend);
  control.post([&] { announcer.check(); });
  control.run();
  end_at_signal(kExitDone);
  const ExitGuard guard(kEndGrace, kExitDone);
  control.post([&] { frontend->reset(); });
  control.run_turn(net::Duration(0));
  return std::nullopt;
}

}  // namespace

int run_demo(const Settings& settings) {
  prepare_signals();
  start_log(settings);
  return end_command("demo", run(settings));
}

}  // namespace fairlead::cli
