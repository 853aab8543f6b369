// links: fl_routing
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>

#include "kv_sim/report.hpp"
#include "kv_sim/simulation.hpp"
#include "kv_sim/trace.hpp"

namespace fairlead::kv_sim {
namespace {

struct Arguments {
  SimulationOptions simulation;
  std::string mode = "kv";
  std::string policy = "sum";
  std::string trace;
  std::string json;
  double limit_seconds = 1e6;
  double event_delay_ms = 5;
  double predicted_ttl = 5;
  double speed = 1;
  std::uint32_t duplicate = 1;
  bool no_reuse = false;
  bool hot = false;
  std::uint32_t burst = 0;
  std::uint32_t prompt_tokens = 8192;
  std::uint32_t output_tokens = 200;
  HotOptions hot_options;
};

void declare_workload(CLI::App& app, Arguments& args) {
  auto* source = app.add_option_group("workload");
  source->add_option("--trace", args.trace, "JSON lines as of Mooncake's traces; - = stdin");
  source->add_option("--burst", args.burst, "so many equal prompts at once")
      ->check(CLI::Range(1U, 1'000'000U));
  source->add_flag("--hot", args.hot, "a hot prefix, popular documents, own questions");
  source->require_option(1);
  app.add_option("--limit-seconds", args.limit_seconds, "of the trace, before --speed")
      ->check(CLI::PositiveNumber);
  app.add_option("--speed", args.speed, "2 = twice as fast")->check(CLI::Range(1e-3, 1e3));
  app.add_option("--duplicate", args.duplicate, "copies with ids of their own, at the same times")
      ->check(CLI::Range(1U, 10'000U));
  app.add_flag("--no-reuse", args.no_reuse, "no two requests have a block in common");
  app.add_option("--prompt-tokens", args.prompt_tokens, "of --burst")
      ->check(CLI::Range(1U, 1'000'000U));
  app.add_option("--output-tokens", args.output_tokens, "of --burst and --hot")
      ->check(CLI::Range(1U, 1'000'000U));
  app.add_option("--requests", args.hot_options.requests, "of --hot")
      ->check(CLI::Range(1U, 10'000'000U));
  app.add_option("--rate", args.hot_options.rate, "of --hot, per second")
      ->check(CLI::Range(1e-3, 1e6));
  app.add_option("--prefix-tokens", args.hot_options.prefix_tokens, "of --hot")
      ->check(CLI::Range(512U, 1'000'000U));
  app.add_option("--documents", args.hot_options.documents, "of --hot")
      ->check(CLI::Range(1U, 1'000'000U));
  app.add_option("--document-tokens", args.hot_options.document_tokens, "of --hot")
      ->check(CLI::Range(512U, 1'000'000U));
  app.add_option("--zipf", args.hot_options.exponent, "of the documents of --hot")
      ->check(CLI::Range(0.0, 10.0));
}

void declare_engine(CLI::App& app, Arguments& args) {
  EngineOptions& engine = args.simulation.engine;
  app.add_option("--workers", args.simulation.workers)->check(CLI::Range(1U, 4'000U));
  app.add_option("--blocks", engine.blocks, "of a worker's KV cache")
      ->check(CLI::Range(1U, 10'000'000U));
  app.add_option("--block-size", engine.block_size, "tokens")
      ->check(CLI::IsMember({1U, 2U, 4U, 8U, 16U, 32U, 64U, 128U, 256U, 512U}));
  app.add_option("--step-tokens", engine.step_tokens, "computed per step at most")
      ->check(CLI::Range(1U, 10'000'000U));
  app.add_option("--max-running", engine.max_running)->check(CLI::Range(1U, 100'000U));
  const auto cost = CLI::Range(0.0, 1e6);
  app.add_option("--base-ms", engine.time.base_ms, "of a step")->check(CLI::Range(1e-3, 1e6));
  app.add_option("--prefill-token-ms", engine.time.prefill_token_ms)->check(cost);
  app.add_option("--decode-request-ms", engine.time.decode_request_ms)->check(cost);
  app.add_option("--kv-block-ms", engine.time.kv_block_ms, "per 16 tokens read")->check(cost);
  app.add_option("--event-delay-ms", args.event_delay_ms, "from an engine to the index")
      ->check(cost);
  app.add_option("--predicted-ttl", args.predicted_ttl, "seconds; 0 = nothing is predicted")
      ->check(cost);
}

void declare_router(CLI::App& app, Arguments& args) {
  routing::KvRouterConfig& kv = args.simulation.router.kv;
  app.add_option("--mode", args.mode, "as --router-mode");
  app.add_option("--seed", args.simulation.router.seed, "of lots, ties and --hot");
  app.add_option("--overlap-score-credit", kv.overlap_score_credit);
  app.add_option("--overlap-score-credit-decay", kv.overlap_score_credit_decay);
  app.add_option("--prefill-load-scale", kv.prefill_load_scale);
  app.add_option("--temperature", kv.router_temperature);
  app.add_option("--decode-active-request-weight", kv.decode_active_request_weight);
  app.add_option("--recompute-weight", kv.recompute_weight);
  app.add_option("--track-active-blocks", kv.track_active_blocks);
  app.add_option("--track-output-blocks", kv.track_output_blocks);
  app.add_option("--assume-kv-reuse", kv.assume_kv_reuse);
  app.add_option("--track-prefill-tokens", kv.track_prefill_tokens);
  app.add_option("--policy", args.policy, "sum or lmetric");
}

Nanos nanos(double value, double unit) { return Nanos(std::llround(value * unit)); }

Result<Workload> make_workload(const Arguments& args) {
  Workload workload{
      .records = {}, .copies = args.duplicate, .speed = args.speed, .reuse = !args.no_reuse};
  if (args.burst > 0) {
    workload.records = burst(args.burst, args.prompt_tokens, args.output_tokens);
  } else if (args.hot) {
    HotOptions options = args.hot_options;
    options.output_tokens = args.output_tokens;
    options.seed = args.simulation.router.seed;
    workload.records = hot(options);
  } else {
    std::ifstream file;
    if (args.trace != "-") {
      file.open(args.trace);
      if (!file) {
        return fail(ErrorCode::InvalidRequest, fmt::format("cannot read {}", args.trace));
      }
    }
    auto records = read_trace(args.trace == "-" ? std::cin : file, nanos(args.limit_seconds, 1e9));
    if (!records) {
      return std::unexpected(records.error());
    }
    workload.records = std::move(*records);
  }
  return workload;
}

Result<> run(Arguments& args) {
  SimulationOptions& options = args.simulation;
  const auto mode = routing::parse_router_mode(args.mode);
  const auto policy = routing::parse_selection_policy(args.policy);
  if (!mode || *mode == routing::RouterMode::Direct || !policy) {
    return fail(ErrorCode::InvalidRequest, "unknown --mode or --policy");
  }
  options.router.mode = *mode;
  options.router.kv.policy = *policy;
  options.event_delay = nanos(args.event_delay_ms, 1e6);
  options.predicted_ttl = nanos(args.predicted_ttl, 1e9);
  if (const auto valid = routing::validate(options.router.kv); !valid) {
    return valid;
  }
  const auto workload = make_workload(args);
  if (!workload) {
    return std::unexpected(workload.error());
  }
  const auto results = Simulation(options, *workload).run();
  if (!results) {
    return std::unexpected(results.error());
  }
  const Summary summary = summarize(*results);
  std::fputs(to_text(summary, *results, args.mode).c_str(), stdout);
  if (!args.json.empty()) {
    std::ofstream(args.json) << to_json(summary, *results, args.mode) << '\n';
  }
  return results->drained && results->exact
             ? Result<>()
             : fail(ErrorCode::Internal, "something is left over at the end");
}

}  // namespace
}  // namespace fairlead::kv_sim

// Routing simulator: the real router and the real index of KV caches, virtual engines, virtual
// time.
int main(int argc, char** argv) {
  fairlead::kv_sim::Arguments args;
  CLI::App app{"kv_sim"};
  fairlead::kv_sim::declare_workload(app, args);
  fairlead::kv_sim::declare_engine(app, args);
  fairlead::kv_sim::declare_router(app, args);
  app.add_option("--json", args.json, "file for the figures");
  CLI11_PARSE(app, argc, argv);
  if (const auto done = fairlead::kv_sim::run(args); !done) {
    std::fprintf(stderr, "kv_sim: %s\n", done.error().message.c_str());
    return 1;
  }
  return 0;
}
