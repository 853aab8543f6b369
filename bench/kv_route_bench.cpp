// links: fl_routing
//
// CPU of one choice in kv mode with its booking, its end of prefill and its giving back, for fleets
// of 8 and 2,048 workers and prompts of 1,000 and 60,000 tokens in blocks of 16. Every worker has
// running requests; a few, or all (system prompt), hold a part of the prompt; or all do and a few
// hold more of it (history), or each another part.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "kv/hashes.hpp"
#include "routing/kv_testing.hpp"
#include "routing/router.hpp"

namespace fairlead {
namespace {

constexpr std::uint32_t kBlock = 16;

std::vector<std::uint32_t> make_tokens(std::size_t count, std::uint32_t seed, std::size_t shared) {
  std::mt19937 common(1);
  std::mt19937 own(seed + 2);
  std::vector<std::uint32_t> tokens(count);
  for (std::size_t i = 0; i < count; ++i) {
    tokens[i] = (i < shared ? common() : own()) % 150'000;
  }
  return tokens;
}

std::vector<kv::SequenceHash> hash(const std::vector<std::uint32_t>& tokens) {
  std::vector<kv::SequenceHash> out;
  kv::prompt_hashes(tokens, {.block_size = kBlock, .bigram = false}, kv::kBaseSeed, out);
  return out;
}

// Who holds how much beyond what all share.
enum class Holders : std::uint8_t {
  Alike,    // nobody
  FewMore,  // two or three hold three quarters of each prompt
  Differ,   // each something between nothing and all that is shared
};

class Fleet {
 public:
  Fleet(std::size_t workers, std::size_t tokens, std::size_t shared, double temperature,
        Holders holders)
      : router_({.mode = routing::RouterMode::Kv,
                 .seed = 1,
                 .kv = config(temperature),
                 .thresholds = {}}),
        set_(routing::make_kv_set(workers)),
        places_(routing::make_places(*set_)) {
    for (std::uint32_t seed = 0; seed < 64; ++seed) {
      prompts_.push_back(hash(make_tokens(tokens, seed, shared)));
    }
    std::mt19937 random(9);
    const std::size_t running = std::min<std::size_t>(workers * 4, 4096);
    for (std::size_t i = 0; i < running; ++i) {
      const auto prompt =
          hash(make_tokens(640 + random() % 1024, 1000 + static_cast<std::uint32_t>(i), shared));
      held_.push_back(std::move(*router_.choose(set_, {}, route(prompt, prompt.size() * kBlock))));
      if (i % 4 != 0) {
        held_.back().prefill_complete();
      }
    }
    const auto has_more = [&](std::size_t i) {
      return holders == Holders::FewMore && i % (workers / 2 - 1) == 1;
    };
    if (shared > 0) {
      for (std::size_t i = 0; i < workers; ++i) {
        if (has_more(i)) {
          continue;
        }
        overlaps_.push_back(
            {.target = static_cast<kv::TargetId>(i),
             .device = static_cast<std::uint32_t>(
                 holders == Holders::Differ ? random() % (shared / kBlock) + 1 : shared / kBlock),
             .host = 0,
             .disk = 0});
      }
      for (std::size_t i = 0; i < workers; ++i) {  // the longest last, as the index has it
        if (has_more(i)) {
          overlaps_.push_back({.target = static_cast<kv::TargetId>(i),
                               .device = static_cast<std::uint32_t>(tokens / kBlock * 3 / 4),
                               .host = 0,
                               .disk = 0});
        }
      }
    } else {
      for (std::uint32_t i = 0; i < 4; ++i) {
        overlaps_.push_back({.target = static_cast<kv::TargetId>(i * workers / 4),
                             .device = static_cast<std::uint32_t>(tokens / kBlock / (i + 2)),
                             .host = 0,
                             .disk = 0});
      }
    }
  }

  void pick(std::size_t i, std::size_t tokens) {
    auto chosen = router_.choose(set_, {}, route(prompts_[i % prompts_.size()], tokens));
    chosen->prefill_complete();
    benchmark::DoNotOptimize(chosen);
  }

 private:
  static routing::KvRouterConfig config(double temperature) {
    routing::KvRouterConfig config;
    config.router_temperature = temperature;
    return config;
  }
  routing::KvRoute route(const std::vector<kv::SequenceHash>& prompt, std::size_t tokens) const {
    return {.prompt = prompt,
            .prompt_tokens = static_cast<std::uint32_t>(tokens),
            .block_size = kBlock,
            .overlaps = overlaps_,
            .places = places_};
  }

  routing::Router router_;
  std::shared_ptr<fleet::WorkerSet> set_;
  std::vector<routing::TargetPlace> places_;
  std::vector<std::vector<kv::SequenceHash>> prompts_;
  std::vector<kv::Overlap> overlaps_;
  std::vector<routing::Reservation> held_;
};

void run(benchmark::State& state, std::size_t shared, double temperature,
         Holders holders = Holders::Alike) {
  const auto tokens = static_cast<std::size_t>(state.range(1));
  Fleet fleet(static_cast<std::size_t>(state.range(0)), tokens, shared, temperature, holders);
  std::size_t i = 0;
  for (auto _ : state) {
    fleet.pick(i++, tokens);
  }
}

void pick(benchmark::State& state) { run(state, 0, 0); }
void pick_with_system_prompt(benchmark::State& state) { run(state, 512, 0); }
void pick_with_history(benchmark::State& state) { run(state, 512, 0, Holders::FewMore); }
void pick_with_all_differing(benchmark::State& state) { run(state, 512, 0, Holders::Differ); }
void pick_by_lot(benchmark::State& state) { run(state, 0, 0.5); }

void hash_prompt(benchmark::State& state) {
  const auto tokens = make_tokens(static_cast<std::size_t>(state.range(0)), 1, 0);
  std::vector<kv::SequenceHash> out;
  for (auto _ : state) {
    out.clear();
    kv::prompt_hashes(tokens, {.block_size = kBlock, .bigram = false}, kv::kBaseSeed, out);
    benchmark::DoNotOptimize(out.data());
  }
}

void mode_pick(benchmark::State& state, routing::RouterMode mode) {
  routing::Router router(mode, 1);
  const auto set = routing::make_kv_set(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    auto chosen = router.choose(*set, {});
    benchmark::DoNotOptimize(chosen);
  }
}
void round_robin(benchmark::State& state) { mode_pick(state, routing::RouterMode::RoundRobin); }
void least_loaded(benchmark::State& state) { mode_pick(state, routing::RouterMode::LeastLoaded); }

BENCHMARK(pick)->ArgNames({"workers", "tokens"})->ArgsProduct({{8, 2048}, {1000, 60'000}});
BENCHMARK(pick_with_system_prompt)
    ->ArgNames({"workers", "tokens"})
    ->ArgsProduct({{8, 2048}, {1000, 60'000}});
BENCHMARK(pick_with_history)->ArgNames({"workers", "tokens"})->ArgsProduct({{8, 2048}, {1000}});
BENCHMARK(pick_with_all_differing)
    ->ArgNames({"workers", "tokens"})
    ->ArgsProduct({{8, 2048}, {1000}});
BENCHMARK(pick_by_lot)->ArgNames({"workers", "tokens"})->ArgsProduct({{8, 2048}, {1000}});
BENCHMARK(hash_prompt)->ArgNames({"tokens"})->Arg(1000)->Arg(60'000);
BENCHMARK(round_robin)->ArgNames({"workers"})->Arg(8)->Arg(2048);
BENCHMARK(least_loaded)->ArgNames({"workers"})->Arg(8)->Arg(2048);

}  // namespace
}  // namespace fairlead
