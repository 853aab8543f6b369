#include "cli/router_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <random>
#include <string_view>
#include <utility>

#include "cli/command.hpp"
#include "cli/serve_options.hpp"
#include "cli/tables.hpp"

namespace fairlead::cli {
namespace {

constexpr std::string_view kMode = "router-mode";
constexpr std::string_view kLoadAware = "load-aware";
constexpr std::string_view kCredit = "router-kv-overlap-score-credit";
constexpr std::string_view kScale = "router-prefill-load-scale";
constexpr std::string_view kWeight = "router-kv-overlap-score-weight";
constexpr std::string_view kEvents = "router-kv-events";
constexpr std::string_view kPeers = "kv-peers";
constexpr std::string_view kPeersTimeout = "kv-peers-timeout-secs";
constexpr std::string_view kPredictedTtl = "router-predicted-ttl-secs";
constexpr std::string_view kConditional = "router-conditional-disagg";
constexpr std::string_view kConditionalConfig = "router-conditional-disagg-config";
constexpr std::string_view kSessionTtl = "router-session-affinity-ttl-secs";

// More threads for events than this rarely have anything to do.
constexpr std::size_t kMostEventThreads = 4;

/// The mode that is in force. `--load-aware` names one, too, but less plainly.
Result<routing::RouterMode> router_mode(const Settings& settings) {
  if (settings.flag(kLoadAware) && !settings.given(kMode)) {
    return routing::RouterMode::Kv;
  }
  const std::string& text = settings.text(kMode);
  if (const auto mode = routing::parse_router_mode(text)) {
    return *mode;
  }
  return fail(ErrorCode::InvalidRequest,
              fmt::format("{}: mode `{}` is {}; choose one of round-robin, random, power-of-two, "
                          "least-loaded, direct, kv",
                          settings.origin(kMode), text,
                          text == "device-aware-weighted" ? "not supported yet" : "unknown"));
}

/// Rounded up, so that only 0 is none.
std::chrono::milliseconds millis_of(const Settings& settings, std::string_view name) {
  return std::chrono::milliseconds(std::llround(std::ceil(settings.number(name) * 1000)));
}

routing::KvRouterConfig kv_config(const Settings& settings) {
  routing::KvRouterConfig config;
  config.overlap_score_credit = settings.number(kCredit);
  config.overlap_score_credit_decay = settings.number("router-kv-overlap-score-credit-decay");
  config.prefill_load_scale = settings.number(kScale);
  config.host_cache_hit_weight = settings.number("router-host-cache-hit-weight");
  config.disk_cache_hit_weight = settings.number("router-disk-cache-hit-weight");
  config.router_temperature = settings.number("router-temperature");
  config.decode_active_request_weight = settings.number("router-decode-active-request-weight");
  config.recompute_weight = settings.number("router-recompute-weight");
  config.track_active_blocks = settings.flag("router-track-active-blocks");
  config.track_output_blocks = settings.flag("router-track-output-blocks");
  config.assume_kv_reuse = settings.flag("router-assume-kv-reuse");
  config.track_prefill_tokens = settings.flag("router-track-prefill-tokens");
  config.policy = routing::parse_selection_policy(settings.text("router-selection-policy"))
                      .value_or(config.policy);
  return config;
}

routing::BusyThresholds thresholds(const Settings& settings) {
  routing::BusyThresholds out;
  if (settings.set("active-decode-blocks-threshold")) {
    out.active_decode_blocks = settings.number("active-decode-blocks-threshold");
  }
  if (settings.set("active-prefill-tokens-threshold")) {
    out.active_prefill_tokens = settings.integer("active-prefill-tokens-threshold");
  }
  if (settings.set("active-prefill-tokens-threshold-frac")) {
    out.active_prefill_tokens_frac = settings.number("active-prefill-tokens-threshold-frac");
  }
  return out;
}

routing::KvViewOptions view_options(const Settings& settings) {
  routing::KvViewOptions views;
  views.events = settings.flag(kEvents);
  views.approximate_ttl = millis_of(settings, "router-ttl-secs");
  views.predicted_ttl = millis_of(settings, kPredictedTtl);
  views.index_bytes = static_cast<std::size_t>(settings.integer("router-index-limit-mb")) << 20U;
  views.approximate_blocks = static_cast<std::size_t>(settings.integer("router-max-tree-size"));
  const auto threads = static_cast<std::size_t>(settings.integer("router-event-threads"));
  views.event_threads =
      static_cast<int>(threads == 0 ? std::min(kMostEventThreads, usable_cores()) : threads);
  views.block_size = static_cast<std::uint32_t>(settings.integer("kv-cache-block-size"));
  return views;
}

Result<serving::PeerOptions> peer_options(const Settings& settings) {
  serving::PeerOptions peers;
  for (const std::string& url : settings.list(kPeers)) {
    Result<fleet::Endpoint> peer = fleet::parse_endpoint(url);
    if (!peer) {
      return fail(ErrorCode::InvalidRequest,
                  fmt::format("{}: {}", settings.origin(kPeers), peer.error().message));
    }
    peers.peers.push_back(std::move(*peer));
  }
  peers.timeout = millis_of(settings, kPeersTimeout);
  return peers;
}

/// Which requests wait, by flags and the policy file.
Result<std::shared_ptr<const routing::PolicyConfig>> policies(const Settings& settings,
                                                              std::size_t& limit) {
  routing::QueueOptions flags;
  if (settings.set("router-queue-threshold")) {
    flags.threshold = settings.number("router-queue-threshold");
  }
  const auto policy = routing::parse_queue_policy(settings.text("router-queue-policy"));
  if (!policy) {
    return fail(
        ErrorCode::InvalidRequest,
        fmt::format("{}: policy `{}` is unknown; choose one of fcfs, lcfs, wspt",
                    settings.origin("router-queue-policy"), settings.text("router-queue-policy")));
  }
  flags.policy = *policy;
  flags.limit = static_cast<std::size_t>(settings.integer("router-queue-limit"));
  limit = flags.limit;
  constexpr std::string_view kFile = "router-policy-config";
  if (settings.text(kFile).empty()) {
    return std::make_shared<const routing::PolicyConfig>(flags);
  }
  const Result<std::string> text = read_file(settings.text(kFile));
  if (!text) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("{}: {}", settings.origin(kFile), text.error().message));
  }
  Result<routing::PolicyConfig> parsed = routing::PolicyConfig::parse(*text, flags);
  if (!parsed) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("{}: {}: {}", settings.origin(kFile), settings.text(kFile),
                            parsed.error().message));
  }
  return std::make_shared<const routing::PolicyConfig>(std::move(*parsed));
}

// The options that this decides are kOverruled.
void ignore_caches(RouterSettings& out) {
  out.router.kv.overlap_score_credit = 0;
  out.router.kv.assume_kv_reuse = false;
  out.router.kv.track_active_blocks = true;
  out.router.kv.track_prefill_tokens = true;
  out.views.events = false;
  out.views.predicted_ttl = std::chrono::milliseconds(0);
}

constexpr std::initializer_list<std::string_view> kOverruled = {
    kCredit,
    kEvents,
    kPredictedTtl,
    "router-assume-kv-reuse",
    "router-track-active-blocks",
    "router-track-prefill-tokens",
};

/// Those of `names` that were given, as they were, with commas between.
std::string given_among(const Settings& settings, std::initializer_list<std::string_view> names) {
  std::vector<std::string> out;
  for (const std::string_view name : names) {
    if (settings.given(name)) {
      out.push_back(settings.origin(name));
    }
  }
  return fmt::format("{}", fmt::join(out, ", "));
}

std::string given_in_kv_section(const Settings& settings) {
  std::vector<std::string> out;
  for (const OptionSpec& spec : settings.table()) {
    if (spec.section == kKvRouting && settings.given(spec.name)) {
      out.push_back(settings.origin(spec.name));
    }
  }
  return fmt::format("{}", fmt::join(out, ", "));
}

Result<serving::ConditionalDisaggregation> conditional_options(const Settings& settings) {
  serving::ConditionalDisaggregation out;
  out.enabled = settings.flag(kConditional);
  if (settings.set(kConditionalConfig)) {
    if (Result<> applied = out.apply(settings.text(kConditionalConfig)); !applied) {
      return fail(
          ErrorCode::InvalidRequest,
          fmt::format("{}: {}", settings.origin(kConditionalConfig), applied.error().message));
    }
  }
  if (out.looks_at_prefill_load() && !out.prefill_busy_threshold) {
    if (!settings.set("router-queue-threshold")) {
      return fail(ErrorCode::InvalidRequest,
                  fmt::format("{}: this policy needs `prefill_busy_threshold`, or "
                              "--router-queue-threshold",
                              settings.origin(kConditionalConfig)));
    }
    out.prefill_busy_threshold = settings.number("router-queue-threshold");
  }
  return out;
}

}  // namespace

Result<RouterSettings> router_settings(const Settings& settings) {
  const Result<routing::RouterMode> mode = router_mode(settings);
  if (!mode) {
    return std::unexpected(mode.error());
  }
  RouterSettings out;
  out.router.mode = *mode;
  out.router.seed = settings.given("router-seed")
                        ? static_cast<std::uint64_t>(settings.integer("router-seed"))
                        : std::random_device{}();
  routing::KvRouterOverrides weight;
  if (settings.set(kWeight)) {
    weight.overlap_score_weight = settings.number(kWeight);
  }
  const Result<routing::KvRouterConfig> config = routing::apply(kv_config(settings), weight);
  if (!config) {
    return std::unexpected(config.error());
  }
  out.router.kv = *config;
  out.router.thresholds = thresholds(settings);
  out.views = view_options(settings);
  Result<serving::PeerOptions> peers = peer_options(settings);
  if (!peers) {
    return std::unexpected(peers.error());
  }
  out.peers = std::move(*peers);
  auto classes = policies(settings, out.router.queue_limit);
  if (!classes) {
    return std::unexpected(classes.error());
  }
  out.router.policies = std::move(*classes);
  auto conditional = conditional_options(settings);
  if (!conditional) {
    return std::unexpected(conditional.error());
  }
  out.conditional = *conditional;
  if (settings.set(kSessionTtl)) {
    out.session_ttl = std::chrono::seconds(settings.integer(kSessionTtl));
  }
  if (settings.flag(kLoadAware)) {
    ignore_caches(out);
  }
  return out;
}

std::vector<std::string> router_warnings(const Settings& settings) {
  std::vector<std::string> out;
  const Result<routing::RouterMode> mode = router_mode(settings);
  if (mode && *mode != routing::RouterMode::Kv) {
    if (const std::string idle = given_in_kv_section(settings); !idle.empty()) {
      out.push_back(fmt::format("no effect without --router-mode kv (it is {}): {}",
                                settings.text(kMode), idle));
    }
    return out;
  }
  if (settings.set(kWeight)) {
    out.push_back(fmt::format(
        "{} is deprecated: use --{}{}", settings.origin(kWeight), kScale,
        settings.number(kWeight) == 0 ? fmt::format(" and --{}", kCredit) : std::string()));
    if (const std::string lost = given_among(settings, {kScale}); !lost.empty()) {
      out.push_back(fmt::format("{} wins over {}", settings.origin(kWeight), lost));
    }
  }
  if (settings.flag(kLoadAware)) {
    if (const std::string lost = given_among(settings, kOverruled); !lost.empty()) {
      out.push_back(fmt::format("{} wins over {}", settings.origin(kLoadAware), lost));
    }
  } else if (!settings.flag(kEvents)) {
    if (const std::string idle =
            given_among(settings, {kPredictedTtl, "router-event-threads", "router-index-limit-mb",
                                   kPeers, kPeersTimeout, kConditional, kConditionalConfig});
        !idle.empty()) {
      out.push_back(fmt::format("no effect without KV events: {}", idle));
    }
  }
  return out;
}

}  // namespace fairlead::cli
