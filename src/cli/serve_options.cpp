#include "cli/serve_options.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "cli/canary_options.hpp"
#include "cli/command.hpp"
#include "cli/engine_list.hpp"
#include "cli/sampling_defaults.hpp"

namespace fairlead::cli {
namespace {

net::Duration seconds_of(const Settings& settings, std::string_view name) {
  return std::chrono::duration_cast<net::Duration>(
      std::chrono::duration<double>(settings.number(name)));
}

std::size_t kib_of(const Settings& settings, std::string_view name) {
  return static_cast<std::size_t>(settings.integer(name)) * 1024;
}

std::size_t mib_of(const Settings& settings, std::string_view name) {
  return static_cast<std::size_t>(std::llround(settings.number(name) * 1024 * 1024));
}

/// A total in MiB, at least `one` of what it is the total of.
std::shared_ptr<net::http::BodyBudget> budget_of(const Settings& settings, std::string_view name,
                                                 std::size_t one) {
  const auto mib = static_cast<std::size_t>(settings.integer(name));
  return std::make_shared<net::http::BodyBudget>(std::max(mib * 1024 * 1024, one));
}

net::http::ServerLimits server_limits(const Settings& settings) {
  net::http::ServerLimits limits;
  limits.header_bytes = kib_of(settings, "http-header-limit-kb");
  limits.body_bytes = mib_of(settings, "http-body-limit-mb");
  limits.bodies = budget_of(settings, "http-body-total-mb", limits.body_bytes);
  limits.read_ahead_bytes = kib_of(settings, "http-read-ahead-kb");
  limits.body_min_rate =
      static_cast<std::size_t>(std::llround(settings.number("http-body-min-rate-kb") * 1024));
  limits.retry_after_secs = static_cast<std::uint32_t>(settings.integer("retry-after-secs"));
  limits.max_unsent_bytes = kib_of(settings, "slow-reader-limit-kb");
  limits.header_timeout = seconds_of(settings, "http-header-timeout-secs");
  limits.body_timeout = seconds_of(settings, "http-body-timeout-secs");
  limits.idle_timeout = seconds_of(settings, "http-idle-timeout-secs");
  limits.slow_reader_timeout = seconds_of(settings, "slow-reader-timeout-secs");
  limits.max_streams = static_cast<std::uint32_t>(settings.integer("http2-max-streams"));
  limits.allow_half_close = settings.flag("http-allow-half-close");
  limits.socket.user_timeout = seconds_of(settings, "tcp-user-timeout-secs");
  return limits;
}

void set_fleet_timing(const Settings& settings, fleet::LiveFleetOptions& fleet) {
  fleet.startup_deadline = seconds_of(settings, "engine-startup-timeout-secs");
  fleet.attempt_timeout = seconds_of(settings, "engine-probe-timeout-secs");
  fleet.retry_interval = seconds_of(settings, "engine-retry-interval-secs");
  fleet.health_interval = seconds_of(settings, "engine-health-interval-secs");
  fleet.health_timeout = seconds_of(settings, "engine-health-timeout-secs");
  fleet.resolve_interval = seconds_of(settings, "engine-resolve-interval-secs");
  fleet.circuit.failures = static_cast<std::uint32_t>(settings.integer("circuit-breaker-failures"));
  fleet.circuit.open = seconds_of(settings, "circuit-breaker-open-secs");
  fleet.circuit.longest_open = std::max(fleet.circuit.open, fleet.circuit.longest_open);
}

api::ApiOptions api_options(const Settings& settings) {
  api::ApiOptions api;
  api.ignore_unsupported_fields = settings.flag("ignore-unsupported-fields");
  api.force_include_usage = settings.flag("force-include-usage");
  api.disable_nvext = settings.flag("disable-nvext");
  api.overload_status = static_cast<int>(settings.integer("overload-status"));
  api.retry_after = static_cast<std::uint32_t>(settings.integer("retry-after-secs"));
  api.keep_alive = std::chrono::milliseconds(settings.integer("sse-keep-alive-ms"));
  api.admin = !settings.flag("disable-admin-api");
  api.access_log = settings.flag("access-log");
  return api;
}

/// The object of `--default-sampling-params`: JSON, or `@FILE`.
Result<json::Value> default_sampling(const Settings& settings) {
  constexpr std::string_view kName = "default-sampling-params";
  std::string text = settings.text(kName);
  if (text.empty()) {
    return json::Value();
  }
  if (text.starts_with('@')) {
    Result<std::string> file = read_file(text.substr(1));
    if (!file) {
      return fail(ErrorCode::InvalidRequest,
                  fmt::format("{}: {}", settings.origin(kName), file.error().message));
    }
    text = std::move(*file);
  }
  Result<json::Value> value = json::parse(text);
  if (!value || !value->as_object()) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("{}: not a JSON object{}", settings.origin(kName),
                            value ? std::string() : ": " + value.error().message));
  }
  drop_wrong_counts(settings.origin(kName), *value);
  chat::SamplingDefaults probe;
  if (const Result<> known = overlay_sampling(*value, probe); !known) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("{}: {}", settings.origin(kName), known.error().message));
  }
  return value;
}

/// `PATH`, or `NAME=PATH`. What begins like a path is one, whatever it contains.
Result<> add_model_path(std::string_view text, ModelPaths& out) {
  const std::size_t equals =
      text.starts_with('/') || text.starts_with('.') ? std::string_view::npos : text.find('=');
  if (equals == std::string_view::npos) {
    if (text.empty()) {
      return {};
    }
    if (!out.common.empty()) {
      return fail(ErrorCode::InvalidRequest,
                  fmt::format("`{}` and `{}` are both for all models", out.common, text));
    }
    out.common = text;
    return {};
  }
  if (equals == 0 || equals + 1 == text.size()) {
    return fail(ErrorCode::InvalidRequest, fmt::format("`{}` is not NAME=PATH", text));
  }
  if (!out.named.emplace(text.substr(0, equals), text.substr(equals + 1)).second) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("model `{}` is named twice", text.substr(0, equals)));
  }
  return {};
}

Result<ModelPaths> model_paths(const Settings& settings) {
  ModelPaths out;
  for (const std::string& text : settings.list("model-path")) {
    if (const Result<> added = add_model_path(text, out); !added) {
      return fail(ErrorCode::InvalidRequest,
                  fmt::format("{}: {}", settings.origin("model-path"), added.error().message));
    }
  }
  return out;
}

void set_origin(const Settings& settings, std::string_view name, std::string& out) {
  if (settings.given(name)) {
    out = settings.origin(name);
  }
}

// As Prometheus has it.
bool is_metric_name(std::string_view name) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':';
  };
  return !name.empty() && letter(name.front()) &&
         std::ranges::all_of(name, [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

}  // namespace

std::size_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) {
    return 1;
  }
  return static_cast<std::size_t>(std::max(1, CPU_COUNT(&set)));
}

Result<ServeOptions> serve_options(const Settings& settings) {
  ServeOptions options;
  Result<EngineSelection> engines = select_engines(settings);
  if (!engines) {
    return std::unexpected(engines.error());
  }
  options.engines = std::move(engines->engines);
  options.prefill_engines = std::move(engines->prefill_engines);
  options.card_folder = std::move(engines->folder);
  options.fleet.decode_alone = settings.flag("allow-aggregated-fallback");
  set_fleet_timing(settings, options.fleet);
  Result<fleet::CanaryOptions> canary = canary_options(settings);
  if (!canary) {
    return std::unexpected(canary.error());
  }
  options.fleet.canary = std::move(*canary);
  Result<RouterSettings> router = router_settings(settings);
  if (!router) {
    return std::unexpected(router.error());
  }
  options.router = std::move(*router);
  options.service.conditional = options.router.conditional;
  Result<json::Value> sampling = default_sampling(settings);
  if (!sampling) {
    return std::unexpected(sampling.error());
  }
  options.default_sampling = std::move(*sampling);
  options.fleet.model_name = settings.text("model-name");
  if (settings.given("model-name") &&
      options.fleet.model_name.find_first_not_of(" \t") == std::string::npos) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("{}: the name is blank", settings.origin("model-name")));
  }
  if (!log::parse_level(settings.text("log-level"), options.log_level)) {
    return fail(ErrorCode::InvalidRequest, "--log-level: unknown level");
  }
  options.http_host = settings.text("http-host");
  set_origin(settings, "http-host", options.http_host_origin);
  set_origin(settings, "model-path", options.model_path_origin);
  set_origin(settings, "generation-config", options.generation_config_origin);
  options.http_port = static_cast<std::uint16_t>(settings.integer("http-port"));
  const std::size_t cores = usable_cores();
  const auto threads = static_cast<std::size_t>(settings.integer("threads"));
  options.threads = threads == 0 ? cores : threads;
  const auto cpu_threads = static_cast<std::size_t>(settings.integer("cpu-threads"));
  // Two at least, so that there is one that no very large prompt occupies.
  options.cpu_pool.threads = cpu_threads == 0 ? std::max<std::size_t>(2, cores / 2) : cpu_threads;
  options.cpu_pool.queue_jobs = static_cast<std::size_t>(settings.integer("cpu-queue"));
  options.cpu_pool.queue_bytes = static_cast<std::size_t>(settings.integer("cpu-queue-mb")) << 20;
  options.tokenizer_cache_bytes = static_cast<std::size_t>(settings.integer("tokenizer-cache-mb"))
                                  << 20;
  options.fd_limit = static_cast<std::uint64_t>(settings.integer("fd-limit"));
  options.drain_timeout = seconds_of(settings, "graceful-shutdown-timeout-secs");
  options.limits = server_limits(settings);
  options.service.inline_prompt_bytes =
      static_cast<std::size_t>(settings.integer("inline-prompt-bytes"));
  options.service.stream_timeout = seconds_of(settings, "stream-timeout-secs");
  options.service.first_token_timeout = seconds_of(settings, "first-token-timeout-secs");
  options.service.migration_limit = static_cast<std::uint32_t>(settings.integer("migration-limit"));
  options.service.migration_max_seq_len =
      static_cast<std::uint32_t>(settings.integer("migration-max-seq-len"));
  options.service.release_timeout = seconds_of(settings, "decode-release-timeout-secs");
  options.service.answer_bytes = mib_of(settings, "http-answer-limit-mb");
  options.service.answers =
      budget_of(settings, "http-answer-total-mb", options.service.answer_bytes);
  options.service.max_attempts = static_cast<std::uint32_t>(settings.integer("max-attempts"));
  options.api = api_options(settings);
  options.api.high_mark_bytes = options.limits.high_mark_bytes;
  options.metrics_prefix = settings.text("metrics-prefix");
  if (!is_metric_name(options.metrics_prefix)) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("{}: `{}` cannot begin a metric's name: letters, digits, `_` and `:`, "
                            "no digit first",
                            settings.origin("metrics-prefix"), options.metrics_prefix));
  }
  Result<ModelPaths> paths = model_paths(settings);
  if (!paths) {
    return std::unexpected(paths.error());
  }
  options.model_paths = std::move(*paths);
  options.generation_config = settings.text("generation-config");
  return options;
}

}  // namespace fairlead::cli
