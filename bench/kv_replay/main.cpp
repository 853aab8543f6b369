// links: fl_mock
#include <CLI/CLI.hpp>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <vector>

#include "kv/target_set.hpp"
#include "kv_replay/replay.hpp"
#include "kv_replay/workload.hpp"

namespace {

// Windows of a sweep: ten from 1 to 50 s, evenly spaced on a logarithmic scale.
std::vector<double> sweep_windows() {
  std::vector<double> windows;
  for (int step = 0; step < 10; ++step) {
    windows.push_back(1000 * std::pow(50, step / 9.0));
  }
  return windows;
}

void print(const fairlead::kv_replay::Report& run, double window_ms) {
  const auto operations = static_cast<double>(run.finds + run.events);
  const auto blocks = static_cast<double>(run.query_blocks + run.stored_blocks);
  std::printf(
      "{\"finds\": %zu, \"events\": %zu, \"query_blocks\": %zu, \"matched_blocks\": %zu, "
      "\"stored_blocks\": %zu, \"removed_blocks\": %zu, \"failed\": %zu, \"held_blocks\": %zu, "
      "\"index_bytes\": %zu, \"seconds\": %.4f, \"cpu_seconds\": %.4f, \"latest_ms\": %.3f, "
      "\"ops_per_s\": %.0f, \"block_ops_per_s\": %.0f, \"ops_per_cpu_s\": %.0f, "
      "\"block_ops_per_cpu_s\": %.0f, \"find_p50_us\": %.2f, \"find_p99_us\": %.2f",
      run.finds, run.events, run.query_blocks, run.matched_blocks, run.stored_blocks,
      run.removed_blocks, run.failed, run.held_blocks, run.index_bytes, run.seconds,
      run.cpu_seconds, run.latest_ms, operations / run.seconds, blocks / run.seconds,
      operations / run.cpu_seconds, blocks / run.cpu_seconds, run.find_p50_us, run.find_p99_us);
  if (window_ms > 0) {
    const double offered = operations / window_ms * 1e3;
    std::printf(", \"window_ms\": %.0f, \"offered_ops_per_s\": %.0f, \"kept_up\": %s", window_ms,
                offered, operations / run.seconds >= 0.95 * offered ? "true" : "false");
  }
  std::puts("}");
  std::fflush(stdout);
}

}  // namespace

// Replays a request trace (JSON lines on standard input) against the KV index as Dynamo's
// `mooncake_bench` does, and prints a line of JSON per run.
int main(int argc, char** argv) {
  fairlead::kv_replay::WorkloadOptions options;
  std::size_t threads = 1;
  std::size_t repeat = 1;
  double window_ms = 0;
  CLI::App app{"fairlead-kv-replay: zcat TRACE.jsonl.gz | fairlead-kv-replay"};
  app.add_option("--workers", options.workers)->check(CLI::Range(1, 32'768));
  app.add_option("--copies", options.copies, "disjoint copies of trace and workers")
      ->check(CLI::Range(1, 1000));
  app.add_option("--gpu-blocks", options.gpu_blocks, "of each worker's cache")
      ->check(CLI::Range(2, 1 << 20));
  app.add_option("--block-size", options.block_size)->check(CLI::Range(1, 65'536));
  app.add_option("--simulation-ms", options.simulation_ms)->check(CLI::PositiveNumber);
  app.add_option("--seed", options.seed);
  app.add_option("--threads", threads, "that replay")->check(CLI::Range(1, 64));
  app.add_option("--window-ms", window_ms, "0 = as fast as possible")
      ->check(CLI::NonNegativeNumber);
  bool sweep = false;
  app.add_flag("--sweep", sweep, "windows from 1 to 50 s, ten of them")->excludes("--window-ms");
  app.add_option("--repeat", repeat)->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  if (options.workers * options.copies > fairlead::kv::kMaxTargets) {
    std::fputs("too many workers\n", stderr);
    return 2;
  }
  const auto trace = fairlead::kv_replay::read_trace(std::cin);
  if (!trace) {
    std::fprintf(stderr, "%s\n", trace.error().message.c_str());
    return 1;
  }
  const auto workload = fairlead::kv_replay::make_workload(*trace, options);
  const std::vector<double> windows = sweep ? sweep_windows() : std::vector{window_ms};
  for (std::size_t i = 0; i < repeat * windows.size(); ++i) {
    const double window = windows[i % windows.size()];
    const auto run = fairlead::kv_replay::replay(workload, threads, window);
    print(run, window);
    if (run.failed > 0) {
      std::fputs("stores failed\n", stderr);
      return 1;
    }
  }
  return 0;
}
