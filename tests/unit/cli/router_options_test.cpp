#include "cli/router_options.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/config_file.hpp"
#include "cli/serve_options.hpp"
#include "cli/tables.hpp"

namespace fairlead::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

const std::vector<std::string> kTables{"serve", "demo"};

struct Inputs {
  std::vector<std::string> arguments;
  std::map<std::string, std::string> variables = {};
  std::string file = {};
};

Result<Settings> resolve(const Inputs& inputs) {
  const Result<RawArguments> raw = parse_arguments(serve_table(), inputs.arguments);
  if (!raw) {
    return std::unexpected(raw.error());
  }
  const auto entries = parse_config(inputs.file, "serve", kTables);
  const auto environment = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = inputs.variables.find(name);
    return found == inputs.variables.end() ? std::nullopt : std::optional(found->second);
  };
  return Settings::resolve(serve_table(), *raw, environment, *entries, "f.toml");
}

RouterSettings good(const Inputs& inputs) {
  const auto settings = resolve(inputs);
  EXPECT_TRUE(settings.has_value()) << settings.error().message;
  const auto router = settings ? router_settings(*settings) : std::unexpected(settings.error());
  EXPECT_TRUE(router.has_value()) << router.error().message;
  return router ? *router : RouterSettings();
}

std::string error_of(const Inputs& inputs) {
  const auto settings = resolve(inputs);
  if (!settings) {
    EXPECT_EQ(settings.error().code, ErrorCode::InvalidRequest);
    return settings.error().message;
  }
  const auto router = router_settings(*settings);
  EXPECT_FALSE(router.has_value());
  return router ? std::string() : router.error().message;
}

std::vector<std::string> warnings(const Inputs& inputs) {
  const auto settings = resolve(inputs);
  EXPECT_TRUE(settings.has_value()) << settings.error().message;
  return settings ? router_warnings(*settings) : std::vector<std::string>();
}

/// Every field as text, to see which ones differ.
std::map<std::string, std::string> fields(const RouterSettings& settings) {
  const auto& kv = settings.router.kv;
  const auto& busy = settings.router.thresholds;
  const auto& views = settings.views;
  const routing::PolicyClass queue = settings.router.policies
                                         ? settings.router.policies->profile("m")->classes()[0]
                                         : routing::PolicyClass();
  const auto optional = [](const auto& value) {
    return value ? std::to_string(*value) : std::string("unset");
  };
  std::vector<std::string> peers;
  for (const fleet::Endpoint& peer : settings.peers.peers) {
    peers.push_back(peer.url);
  }
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(settings.peers.timeout);
  return {
      {"mode", std::to_string(static_cast<int>(settings.router.mode))},
      {"credit", std::to_string(kv.overlap_score_credit)},
      {"decay", std::to_string(kv.overlap_score_credit_decay)},
      {"scale", std::to_string(kv.prefill_load_scale)},
      {"host", std::to_string(kv.host_cache_hit_weight)},
      {"disk", std::to_string(kv.disk_cache_hit_weight)},
      {"shared", std::to_string(kv.shared_cache_multiplier)},
      {"temperature", std::to_string(kv.router_temperature)},
      {"request", std::to_string(kv.decode_active_request_weight)},
      {"recompute", std::to_string(kv.recompute_weight)},
      {"active", std::to_string(kv.track_active_blocks)},
      {"output", std::to_string(kv.track_output_blocks)},
      {"reuse", std::to_string(kv.assume_kv_reuse)},
      {"prefill", std::to_string(kv.track_prefill_tokens)},
      {"policy", std::to_string(static_cast<int>(kv.policy))},
      {"busy blocks", optional(busy.active_decode_blocks)},
      {"busy tokens", optional(busy.active_prefill_tokens)},
      {"busy frac", optional(busy.active_prefill_tokens_frac)},
      {"queue threshold", optional(queue.prefill_busy_threshold_frac)},
      {"queue policy", std::to_string(static_cast<int>(queue.policy))},
      {"queue limit", std::to_string(settings.router.queue_limit)},
      {"events", std::to_string(views.events)},
      {"ttl", std::to_string(views.approximate_ttl.count())},
      {"predicted", std::to_string(views.predicted_ttl.count())},
      {"index", std::to_string(views.index_bytes)},
      {"tree", std::to_string(views.approximate_blocks)},
      {"threads", std::to_string(views.event_threads)},
      {"block", std::to_string(views.block_size)},
      {"peers", fmt::format("{}", fmt::join(peers, " "))},
      {"peers timeout", std::to_string(millis.count())},
      {"conditional", std::to_string(settings.conditional.enabled)},
      {"new tokens", std::to_string(settings.conditional.eff_isl_threshold)},
      {"session",
       settings.session_ttl
           ? std::to_string(std::chrono::seconds(std::chrono::duration_cast<std::chrono::seconds>(
                                                     *settings.session_ttl))
                                .count())
           : "unset"},
  };
}

/// What differs from the defaults.
std::map<std::string, std::string> changes(const Inputs& inputs) {
  std::map<std::string, std::string> out;
  const auto defaults = fields(good({}));
  for (const auto& [name, value] : fields(good(inputs))) {
    if (defaults.at(name) != value) {
      out.emplace(name, value);
    }
  }
  return out;
}

TEST(RouterSettings, DefaultsAreThoseOfTheRouter) {
  RouterSettings plain;
  plain.views.event_threads = static_cast<int>(std::min<std::size_t>(4, usable_cores()));
  EXPECT_EQ(fields(good({})), fields(plain));
  EXPECT_EQ(good({.arguments = {"--router-seed", "7"}}).router.seed, 7U);
}

TEST(RouterSettings, EveryOptionReachesItsField) {
  const std::vector<std::tuple<std::string, std::string, std::string, std::string>> rows{
      {"router-mode", "kv", "mode", std::to_string(static_cast<int>(routing::RouterMode::Kv))},
      {"kv-cache-block-size", "32", "block", "32"},
      {"router-kv-overlap-score-credit", "1.5", "credit", "1.500000"},
      {"router-kv-overlap-score-credit-decay", "0.5", "decay", "0.500000"},
      {"router-prefill-load-scale", "2", "scale", "2.000000"},
      {"router-kv-overlap-score-weight", "3", "scale", "3.000000"},
      {"router-host-cache-hit-weight", "0", "host", "0.000000"},
      {"router-disk-cache-hit-weight", "1", "disk", "1.000000"},
      {"router-temperature", "0.25", "temperature", "0.250000"},
      {"router-decode-active-request-weight", "0", "request", "0.000000"},
      {"router-recompute-weight", "0", "recompute", "0.000000"},
      {"router-selection-policy", "lmetric", "policy",
       std::to_string(static_cast<int>(routing::SelectionPolicy::LMetric))},
      {"router-track-active-blocks", "false", "active", "0"},
      {"router-track-output-blocks", "true", "output", "1"},
      {"router-assume-kv-reuse", "false", "reuse", "0"},
      {"router-track-prefill-tokens", "false", "prefill", "0"},
      {"router-kv-events", "false", "events", "0"},
      {"router-ttl-secs", "0.0125", "ttl", "13"},
      {"router-max-tree-size", "1000", "tree", "1000"},
      {"router-predicted-ttl-secs", "0.0001", "predicted", "1"},
      {"router-event-threads", "9", "threads", "9"},
      {"router-index-limit-mb", "3", "index", "3145728"},
      {"router-session-affinity-ttl-secs", "31536000", "session", "31536000"},
      {"router-conditional-disagg", "true", "conditional", "1"},
      {"router-conditional-disagg-config", R"({"eff_isl_threshold": 5})", "new tokens", "5.000000"},
      {"kv-peers", "a:1", "peers", "http://a:1"},
      {"kv-peers-timeout-secs", "0.5", "peers timeout", "500"},
      {"router-queue-threshold", "0.5", "queue threshold", "0.500000"},
      {"router-queue-policy", "wspt", "queue policy",
       std::to_string(static_cast<int>(routing::QueuePolicy::Wspt))},
      {"router-queue-limit", "7", "queue limit", "7"},
      {"active-decode-blocks-threshold", "0.9", "busy blocks", "0.900000"},
      {"active-prefill-tokens-threshold", "0", "busy tokens", "0"},
      {"active-prefill-tokens-threshold-frac", "1.5", "busy frac", "1.500000"},
  };
  std::vector<std::string> covered{"router-seed", "max-attempts", "load-aware",
                                   "router-policy-config"};
  for (const auto& [option, text, field, value] : rows) {
    const std::map<std::string, std::string> expected{{field, value}};
    EXPECT_EQ(changes({.arguments = {fmt::format("--{}={}", option, text)}}), expected) << option;
    EXPECT_EQ(changes({.arguments = {}, .file = fmt::format("{} = {}", option, text)}), expected)
        << option;
    covered.push_back(option);
  }
  for (const OptionSpec& spec : router_rows()) {
    EXPECT_THAT(covered, Contains(spec.name)) << "no row here";
  }
  EXPECT_EQ(good({.arguments = {"--router-predicted-ttl-secs", "0"}}).views.predicted_ttl, 0ms);
}

TEST(RouterSettings, ComeFromTheVariablesOfOtherFrontends) {
  const std::map<std::string, std::string> variables{
      {"DYN_ROUTER_MODE", "kv"},
      {"DYN_KV_CACHE_BLOCK_SIZE", "64"},
      {"DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT", "0.5"},
      {"DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT_DECAY", "1"},
      {"DYN_ROUTER_PREFILL_LOAD_SCALE", "2.5"},
      {"DYN_ROUTER_HOST_CACHE_HIT_WEIGHT", "0.5"},
      {"DYN_ROUTER_DISK_CACHE_HIT_WEIGHT", "0.125"},
      {"DYN_ROUTER_TEMPERATURE", "0.75"},
      {"DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT", "2"},
      {"DYN_ROUTER_USE_KV_EVENTS", "false"},
      {"DYN_ROUTER_TTL_SECS", "60.0"},
      {"DYN_ROUTER_MAX_TREE_SIZE", "2048"},
      {"DYN_ROUTER_PREDICTED_TTL_SECS", "2"},
      {"DYN_ROUTER_EVENT_THREADS", "8"},
      {"DYN_ROUTER_TRACK_ACTIVE_BLOCKS", "false"},
      {"DYN_ROUTER_TRACK_OUTPUT_BLOCKS", "true"},
      {"DYN_ROUTER_ASSUME_KV_REUSE", "false"},
      {"DYN_ROUTER_TRACK_PREFILL_TOKENS", "false"},
      {"DYN_ROUTER_SESSION_AFFINITY_TTL_SECS", "300"},
      {"DYN_ACTIVE_DECODE_BLOCKS_THRESHOLD", "0.95"},
      {"DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD", "100000"},
      {"DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD_FRAC", "4"},
  };
  EXPECT_EQ(changes({.arguments = {}, .variables = variables}).size(), variables.size());
  EXPECT_EQ(changes({.arguments = {}, .variables = {{"DYN_ROUTER_KV_OVERLAP_SCORE_WEIGHT", "0"}}}),
            (std::map<std::string, std::string>{{"credit", "0.000000"}, {"scale", "0.000000"}}));
  EXPECT_EQ(good({.arguments = {}, .variables = {{"DYN_ROUTER_LOAD_AWARE", "true"}}}).router.mode,
            routing::RouterMode::Kv);
}

TEST(RouterSettings, FlagOverOwnVariableOverDynVariableOverFile) {
  Inputs inputs{.arguments = {}, .file = "router-temperature = 0.1"};
  const auto temperature = [&] { return good(inputs).router.kv.router_temperature; };
  EXPECT_EQ(temperature(), 0.1);
  inputs.variables["DYN_ROUTER_TEMPERATURE"] = "0.2";
  EXPECT_EQ(temperature(), 0.2);
  inputs.variables["FAIRLEAD_ROUTER_TEMPERATURE"] = "0.3";
  EXPECT_EQ(temperature(), 0.3);
  inputs.arguments = {"--router-temperature", "0.4"};
  EXPECT_EQ(temperature(), 0.4);
}

TEST(RouterSettings, FormerNamesWork) {
  const auto old =
      good({.arguments = {"--no-kv-events", "--no-track-active-blocks", "--track-output-blocks",
                          "--no-assume-kv-reuse", "--kv-overlap-score-weight", "0.5"}});
  EXPECT_FALSE(old.views.events);
  EXPECT_FALSE(old.router.kv.track_active_blocks);
  EXPECT_TRUE(old.router.kv.track_output_blocks);
  EXPECT_FALSE(old.router.kv.assume_kv_reuse);
  EXPECT_EQ(old.router.kv.prefill_load_scale, 0.5);
  EXPECT_FALSE(good({.arguments = {"--no-router-kv-events"}}).views.events);
  EXPECT_TRUE(
      good({.arguments = {"--router-kv-events"}, .variables = {{"DYN_ROUTER_USE_KV_EVENTS", "0"}}})
          .views.events);
}

TEST(RouterSettings, TheDeprecatedWeightWinsOverWhatReplacedIt) {
  const std::vector<std::string> newer{"--router-prefill-load-scale", "5",
                                       "--router-kv-overlap-score-credit", "0.5"};
  const auto with = [&](const std::string& weight) {
    std::vector<std::string> arguments = newer;
    arguments.insert(arguments.end(), {"--router-kv-overlap-score-weight", weight});
    return good({.arguments = arguments}).router.kv;
  };
  EXPECT_EQ(with("2").prefill_load_scale, 2);
  EXPECT_EQ(with("2").overlap_score_credit, 0.5);
  EXPECT_EQ(with("0").prefill_load_scale, 0);
  EXPECT_EQ(with("0").overlap_score_credit, 0);
}

TEST(RouterSettings, LoadAwareIgnoresCachesWhateverElseIsGiven) {
  const std::map<std::string, std::string> expected{
      {"mode", std::to_string(static_cast<int>(routing::RouterMode::Kv))},
      {"credit", "0.000000"},
      {"events", "0"},
      {"predicted", "0"},
      {"reuse", "0"},
  };
  EXPECT_EQ(changes({.arguments = {"--load-aware"}}), expected);
  EXPECT_EQ(changes({.arguments = {"--load-aware", "--router-kv-overlap-score-credit", "3",
                                   "--router-kv-events", "--router-assume-kv-reuse",
                                   "--no-router-track-active-blocks",
                                   "--no-router-track-prefill-tokens"}}),
            expected);
  EXPECT_EQ(good({.arguments = {"--load-aware", "--router-prefill-load-scale", "2.5"}})
                .router.kv.prefill_load_scale,
            2.5);
  EXPECT_EQ(good({.arguments = {"--load-aware", "--router-mode", "random"}}).router.mode,
            routing::RouterMode::Random);
  EXPECT_TRUE(changes({.arguments = {"--no-load-aware"}}).empty());
}

TEST(RouterSettings, NoneSwitchesAThresholdOff) {
  for (const std::string option :
       {"active-decode-blocks-threshold", "active-prefill-tokens-threshold",
        "active-prefill-tokens-threshold-frac"}) {
    EXPECT_TRUE(changes({.arguments = {"--" + option, "None"}, .file = option + " = 1"}).empty())
        << option;
  }
  EXPECT_THAT(error_of({.arguments = {"--router-temperature", "None"}}),
              HasSubstr("`None` is not a number"));
}

TEST(RouterSettings, WhatIsOutOfRangeIsOneLineWithTheOrigin) {
  const std::vector<std::tuple<std::string, std::string, std::string>> rows{
      {"router-mode", "fastest",
       "`fastest` is unknown; choose one of round-robin, random, power-of-two, least-loaded, "
       "direct, kv"},
      {"router-mode", "device-aware-weighted", "`device-aware-weighted` is not supported yet"},
      {"kv-cache-block-size", "-1", "not a whole number from 0 to 1048576"},
      {"router-kv-overlap-score-credit", "-0.1", "not a number from 0 to 1000000"},
      {"router-kv-overlap-score-credit", "nan", "not a number"},
      {"router-kv-overlap-score-credit", "inf", "not a number"},
      {"router-kv-overlap-score-credit-decay", "-1", "not a number from 0"},
      {"router-prefill-load-scale", "-1", "not a number from 0"},
      {"router-prefill-load-scale", "1e300", "not a number from 0"},
      {"router-kv-overlap-score-weight", "-1", "not a number from 0"},
      {"router-host-cache-hit-weight", "1.1", "not a number from 0 to 1"},
      {"router-disk-cache-hit-weight", "-0.1", "not a number from 0 to 1"},
      {"router-temperature", "-1", "not a number from 0"},
      {"router-decode-active-request-weight", "-1", "not a number from 0"},
      {"router-recompute-weight", "-1", "not a number from 0"},
      {"router-selection-policy", "product", "`product` is unknown; choose one of sum, lmetric"},
      {"router-kv-events", "maybe", "`maybe` is neither true nor false"},
      {"router-ttl-secs", "0", "not a number from 0.001 to 31536000"},
      {"router-max-tree-size", "0", "not a whole number from 1"},
      {"router-predicted-ttl-secs", "-1", "not a number from 0"},
      {"router-event-threads", "65", "not a whole number from 0 to 64"},
      {"router-index-limit-mb", "0", "not a whole number from 1"},
      {"router-session-affinity-ttl-secs", "0", "not a whole number from 1 to 31536000"},
      {"router-session-affinity-ttl-secs", "31536001", "not a whole number from 1 to 31536000"},
      {"active-decode-blocks-threshold", "1.5", "not a number from 0 to 1"},
      {"active-prefill-tokens-threshold", "-1", "not a whole number from 0"},
      {"active-prefill-tokens-threshold", "1.5", "not a whole number from 0"},
      {"active-prefill-tokens-threshold-frac", "-1", "not a number from 0"},
  };
  for (const auto& [option, text, problem] : rows) {
    const std::string flag = error_of({.arguments = {fmt::format("--{}={}", option, text)}});
    EXPECT_TRUE(flag.starts_with("--" + option + ": ")) << flag;
    EXPECT_THAT(flag, HasSubstr(problem)) << option;
    const std::string file =
        error_of({.arguments = {}, .file = fmt::format("{} = '{}'", option, text)});
    EXPECT_TRUE(file.starts_with("f.toml:1: " + option + ": ")) << file;
  }
  EXPECT_THAT(error_of({.arguments = {}, .variables = {{"DYN_ROUTER_USE_KV_EVENTS", "perhaps"}}}),
              HasSubstr("DYN_ROUTER_USE_KV_EVENTS: `perhaps` is neither true nor false"));
}

TEST(RouterSettings, WhateverTheTableTakesIsValid) {
  for (const OptionSpec& spec : router_rows()) {
    if (spec.kind != OptionKind::Number || spec.section != kKvRouting) {
      continue;
    }
    for (const double bound : {spec.minimum, spec.maximum}) {
      const std::string argument = fmt::format("--{}={}", spec.name, bound);
      EXPECT_TRUE(routing::validate(good({.arguments = {argument}}).router.kv)) << argument;
    }
  }
}

TEST(RouterWarnings, OptionsThatTheModeDoesNotReadAreNamedInOneLine) {
  EXPECT_THAT(warnings({}), IsEmpty());
  EXPECT_THAT(warnings({.arguments = {"--router-seed", "1", "--max-attempts", "2"}}), IsEmpty());
  const Inputs shared{.arguments = {"--router-mode", "least-loaded", "--router-ttl-secs", "9"},
                      .variables = {{"DYN_ROUTER_TEMPERATURE", "0.5"}},
                      .file = "router-max-tree-size = 5"};
  EXPECT_THAT(warnings(shared),
              ElementsAre("no effect without --router-mode kv (it is least-loaded): "
                          "DYN_ROUTER_TEMPERATURE, --router-ttl-secs, f.toml:1: "
                          "router-max-tree-size"));
  Inputs kv = shared;
  kv.arguments = {"--router-mode", "kv", "--router-ttl-secs", "9"};
  EXPECT_THAT(warnings(kv), IsEmpty());
}

TEST(RouterWarnings, OptionsThatOthersOverruleAreNamed) {
  EXPECT_THAT(warnings({.arguments = {"--router-mode", "kv", "--router-kv-overlap-score-weight",
                                      "1", "--router-prefill-load-scale", "2"}}),
              ElementsAre("--router-kv-overlap-score-weight is deprecated: use "
                          "--router-prefill-load-scale",
                          "--router-kv-overlap-score-weight wins over "
                          "--router-prefill-load-scale"));
  EXPECT_THAT(warnings({.arguments = {"--router-mode", "kv"},
                        .variables = {{"DYN_ROUTER_KV_OVERLAP_SCORE_WEIGHT", "0"}}}),
              ElementsAre("DYN_ROUTER_KV_OVERLAP_SCORE_WEIGHT is deprecated: use "
                          "--router-prefill-load-scale and --router-kv-overlap-score-credit"));
  EXPECT_THAT(warnings({.arguments = {"--load-aware", "--router-kv-events"},
                        .variables = {{"DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT", "1"}}}),
              ElementsAre("--load-aware wins over DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT, "
                          "--router-kv-events"));
  EXPECT_THAT(warnings({.arguments = {"--router-mode", "kv", "--no-router-kv-events",
                                      "--router-predicted-ttl-secs", "5"}}),
              ElementsAre("no effect without KV events: --router-predicted-ttl-secs"));
  EXPECT_THAT(warnings({.arguments = {"--router-mode", "kv", "--no-router-kv-events",
                                      "--router-ttl-secs", "5"}}),
              IsEmpty());
}

}  // namespace
}  // namespace fairlead::cli
