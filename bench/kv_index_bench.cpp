// links: fl_kv
//
// The KV index by itself: `find` by depth (p50, p99, ns per block), stores and removals as engines
// send them, one or two writers and a reader beside them, and bytes per (block, worker). Rates hold
// for the fill that the benchmark's name says; prompts and victims are chosen at random, so blocks
// are as cold as the table is large. docs/kv-index.md has the figures.

#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "kv/index.hpp"

namespace fairlead::kv {
namespace {

constexpr std::size_t kWorkers = 64;
constexpr std::size_t kChain = 3750;       // blocks of 16 tokens in a prompt of 60,000
constexpr std::size_t kManyWorkers = 256;  // of the cases in which all have the prompt
constexpr std::size_t kManyPrompts = 64;   // of these
constexpr std::size_t kMillion = 1'000'000;
using Clock = std::chrono::steady_clock;

double nanoseconds(Clock::duration time) {
  return std::chrono::duration<double, std::nano>(time).count();
}

// CPU time of this thread in ns: rates hold on a machine that does other things as well.
double cpu_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// Engines' names and contents of block `i` of chain `chain`; engines name blocks by a hash, too.
StoredBlock block_of(std::uint64_t chain, std::uint64_t i) {
  const std::uint64_t content = mix_hash((chain << 20U) + i + 1);
  return {.engine = mix_hash(content ^ 0x5555), .local = content};
}

std::vector<StoredBlock> make_chain(std::uint64_t chain, std::size_t length = kChain) {
  std::vector<StoredBlock> blocks(length);
  for (std::size_t i = 0; i < length; ++i) {
    blocks[i] = block_of(chain, i);
  }
  return blocks;
}

std::vector<SequenceHash> prompt_of(std::uint64_t chain, std::size_t length) {
  std::vector<LocalHash> locals(length);
  for (std::size_t i = 0; i < length; ++i) {
    locals[i] = block_of(chain, i).local;
  }
  std::vector<SequenceHash> hashes;
  sequence_hashes(locals, hashes);
  return hashes;
}

// An index with about so many held blocks: chains of full length, each held by one worker.
class Filled {
 public:
  explicit Filled(std::size_t held) : index({}), chains(held / kChain) {
    for (std::size_t i = 0; i < kWorkers; ++i) {
      targets.push_back(*index.add_target());
    }
    for (std::uint64_t chain = 0; chain < chains; ++chain) {
      if (index.store(owner(chain), Tier::Device, std::nullopt, make_chain(chain)) !=
          StoreOutcome::Stored) {
        throw std::runtime_error("the index is full");
      }
    }
  }

  TargetId owner(std::uint64_t chain) const { return targets[chain % kWorkers]; }

  // Indexes are kept from one benchmark to the next, one at a time.
  static Filled& of(std::size_t held) {
    static std::unique_ptr<Filled> kept;
    static std::size_t kept_size = 0;
    if (kept_size != held) {
      kept.reset();
      kept = std::make_unique<Filled>(held);
      kept_size = held;
    }
    return *kept;
  }

  KvIndex index;
  std::size_t chains;
  std::vector<TargetId> targets;
};

// Times every call by itself.
class Latencies {
 public:
  template <class Call>
  void time(Call&& call) {
    const Clock::time_point start = Clock::now();
    call();
    times_.push_back(static_cast<float>(nanoseconds(Clock::now() - start)));
  }
  void report(benchmark::State& state) {
    if (times_.empty()) {
      return;
    }
    std::ranges::sort(times_);
    state.counters["p50_us"] = static_cast<double>(times_[times_.size() / 2]) / 1e3;
    state.counters["p99_us"] = static_cast<double>(times_[times_.size() * 99 / 100]) / 1e3;
  }
  std::size_t count() const { return times_.size(); }

 private:
  std::vector<float> times_;
};

void run_find(benchmark::State& state, const KvIndex& index,
              const std::vector<std::vector<SequenceHash>>& prompts, std::size_t blocks) {
  std::mt19937_64 random(1);
  std::vector<Overlap> found;
  std::vector<SequenceHash> prompt;
  Latencies latencies;
  const double start = cpu_nanoseconds();
  for (auto _ : state) {
    // A prompt has just been hashed when it is looked up: its hashes are in the cache.
    prompt = prompts[random() % prompts.size()];
    latencies.time([&] { index.find(prompt, found); });
    benchmark::DoNotOptimize(found.data());
  }
  if (blocks > 0) {
    state.counters["ns_per_block"] = (cpu_nanoseconds() - start) /
                                     static_cast<double>(latencies.count()) /
                                     static_cast<double>(blocks);
  }
  latencies.report(state);
}

// One worker has all of the prompt.
void find(benchmark::State& state) {
  Filled& filled = Filled::of(static_cast<std::size_t>(state.range(0)) * kMillion);
  const auto depth = static_cast<std::size_t>(state.range(1));
  std::vector<std::vector<SequenceHash>> prompts;
  for (std::uint64_t chain = 0; chain < filled.chains; ++chain) {
    prompts.push_back(prompt_of(chain, depth));
  }
  run_find(state, filled.index, prompts, depth);
}

// Nobody has any of it.
void find_miss(benchmark::State& state) {
  Filled& filled = Filled::of(static_cast<std::size_t>(state.range(0)) * kMillion);
  std::vector<std::vector<SequenceHash>> prompts;
  for (std::uint64_t i = 0; i < 50'000; ++i) {
    prompts.push_back(prompt_of((std::uint64_t{1} << 30U) + i, 24));
  }
  run_find(state, filled.index, prompts, 0);
}

// All workers have all of it.
void find_all_hit(benchmark::State& state) {
  const auto depth = static_cast<std::size_t>(state.range(0));
  KvIndex index({});
  std::vector<std::vector<SequenceHash>> prompts;
  for (std::uint64_t chain = 0; chain < kManyPrompts; ++chain) {
    prompts.push_back(prompt_of(chain, depth));
  }
  for (std::size_t i = 0; i < kManyWorkers; ++i) {
    const TargetId target = *index.add_target();
    for (std::uint64_t chain = 0; chain < kManyPrompts; ++chain) {
      index.store(target, Tier::Device, std::nullopt, make_chain(chain, depth));
    }
  }
  run_find(state, index, prompts, depth);
}

// A writer's own chains, which take turns: the oldest is removed after a new one came.
class Turnover {
 public:
  Turnover(Filled& filled, std::uint64_t writer, std::size_t event)
      : filled_(filled), writer_(writer), event_(event), random_(writer) {
    for (std::size_t i = 0; i < kRounds; ++i) {
      add(i);
    }
  }
  ~Turnover() {
    for (const Chain& chain : chains_) {
      drop(chain, kLength);
    }
  }
  Turnover(const Turnover&) = delete;
  Turnover& operator=(const Turnover&) = delete;

  // Both take a round's chains; the first is timed apart from the other.
  double store() {
    for (Chain& chain : chains_) {
      chain = make();
    }
    const double start = cpu_nanoseconds();
    for (const Chain& chain : chains_) {
      put(chain);
    }
    return cpu_nanoseconds() - start;
  }
  double remove(std::size_t at_once) {
    std::ranges::shuffle(chains_, random_);
    const double start = cpu_nanoseconds();
    for (const Chain& chain : chains_) {
      drop(chain, at_once);
    }
    return cpu_nanoseconds() - start;
  }

  static constexpr std::size_t kRounds = 64;    // chains
  static constexpr std::size_t kLength = 1024;  // blocks of each
  static constexpr std::size_t kBlocks = kRounds * kLength;

 private:
  struct Chain {
    TargetId target = 0;
    std::vector<StoredBlock> blocks;
    std::vector<EngineHash> names;
  };

  Chain make() {
    // Writers have targets of their own, as threads of the feed have.
    const std::uint64_t id = (writer_ + 1) << 32U | next_++;
    Chain chain{.target = filled_.targets[random_() % (kWorkers / 2) * 2 + writer_ % 2],
                .blocks = make_chain(id, kLength),
                .names = {}};
    for (const StoredBlock& block : chain.blocks) {
      chain.names.push_back(block.engine);
    }
    return chain;
  }
  void add(std::size_t) {
    chains_.push_back(make());
    put(chains_.back());
  }
  void put(const Chain& chain) {
    std::optional<EngineHash> parent;
    for (std::size_t i = 0; i < kLength; i += event_) {
      const auto blocks = std::span(chain.blocks).subspan(i, std::min(event_, kLength - i));
      if (filled_.index.store(chain.target, Tier::Device, parent, blocks) != StoreOutcome::Stored) {
        throw std::runtime_error("not stored");
      }
      parent = blocks.back().engine;
    }
  }
  void drop(const Chain& chain, std::size_t at_once) {
    for (std::size_t i = 0; i < kLength; i += at_once) {
      filled_.index.remove(chain.target, Tier::Device,
                           std::span(chain.names).subspan(i, std::min(at_once, kLength - i)));
    }
  }

  Filled& filled_;
  std::uint64_t writer_;
  std::size_t event_;
  std::mt19937_64 random_;
  std::uint64_t next_ = 0;
  std::vector<Chain> chains_;
};

// Stores, then removals, of events of so many blocks, into an index of so many million.
void apply(benchmark::State& state) {
  const auto event = static_cast<std::size_t>(state.range(1));
  static Filled* filled = nullptr;
  if (state.thread_index() == 0) {
    filled = &Filled::of(static_cast<std::size_t>(state.range(0)) * kMillion);
  }
  std::optional<Turnover> turnover;
  double stores = 0;
  double removals = 0;
  double rounds = 0;
  for (auto _ : state) {
    if (!turnover) {
      turnover.emplace(*filled, static_cast<std::uint64_t>(state.thread_index()), event);
    }
    removals += turnover->remove(event);
    stores += turnover->store();
    ++rounds;
  }
  const double blocks = rounds * static_cast<double>(Turnover::kBlocks);
  state.counters["stored_M_per_s"] = blocks / stores * 1e3;
  state.counters["removed_M_per_s"] = blocks / removals * 1e3;
  state.counters["applied_M_per_s"] = 2 * blocks / (stores + removals) * 1e3;
}

// The same while another thread looks prompts up as fast as it can; and what that one sees.
void apply_beside_reader(benchmark::State& state) {
  Filled& filled = Filled::of(static_cast<std::size_t>(state.range(0)) * kMillion);
  std::vector<std::vector<SequenceHash>> prompts;
  for (std::uint64_t chain = 0; chain < std::min<std::uint64_t>(filled.chains, 1000); ++chain) {
    prompts.push_back(prompt_of(chain, 752));
  }
  std::atomic<bool> stop{false};
  Latencies latencies;
  std::thread reader([&] {
    std::mt19937_64 random(5);
    std::vector<Overlap> found;
    while (!stop.load(std::memory_order_relaxed)) {
      const auto& prompt = prompts[random() % prompts.size()];
      latencies.time([&] { filled.index.find(prompt, found); });
    }
  });
  apply(state);
  stop.store(true, std::memory_order_relaxed);
  reader.join();
  latencies.report(state);
}

// Bytes of the index per (block, worker) when every block has so many holders: after so many
// million, and the most on the way from half of them.
void memory(benchmark::State& state) {
  const auto held = static_cast<std::size_t>(state.range(0)) * kMillion;
  const auto holders = static_cast<std::size_t>(state.range(1));
  for (auto _ : state) {
    KvIndex index({});
    std::vector<TargetId> targets;
    for (std::size_t i = 0; i < std::max(kWorkers, holders); ++i) {
      targets.push_back(*index.add_target());
    }
    const std::size_t empty = index.stats().bytes;
    double most = 0;
    std::size_t stored = 0;
    for (std::uint64_t chain = 0; stored + holders * 100 <= held; ++chain) {
      const auto blocks = make_chain(chain, 100);
      for (std::size_t i = 0; i < holders; ++i) {
        index.store(targets[(chain + i) % targets.size()], Tier::Device, std::nullopt, blocks);
        stored += 100;
      }
      if (stored > held / 2 && chain % 64 == 0) {
        most = std::max(
            most, static_cast<double>(index.stats().bytes - empty) / static_cast<double>(stored));
      }
    }
    state.counters["bytes"] =
        static_cast<double>(index.stats().bytes - empty) / static_cast<double>(stored);
    state.counters["most_bytes"] = most;
    state.counters["retired_bytes"] =
        static_cast<double>(index.stats().retired_bytes) / static_cast<double>(stored);
    state.counters["MiB"] = static_cast<double>(index.stats().bytes) / (1 << 20U);
  }
}

// Filled indexes are kept, so benchmarks are in the order of their sizes.
void register_all() {
  for (const int millions : {1, 10}) {
    for (const int depth : {8, 24, 62, 117, 752, 3750}) {
      benchmark::RegisterBenchmark("find", find)->ArgNames({"M", "depth"})->Args({millions, depth});
    }
    benchmark::RegisterBenchmark("find_miss", find_miss)->ArgName("M")->Arg(millions);
    for (const int event : {64, 1}) {
      for (const int writers : {1, 2}) {
        benchmark::RegisterBenchmark("apply", apply)
            ->ArgNames({"M", "event"})
            ->Args({millions, event})
            ->Threads(writers)
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
    benchmark::RegisterBenchmark("apply_beside_reader", apply_beside_reader)
        ->ArgNames({"M", "event"})
        ->Args({millions, 64})
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
  for (const int depth : {24, 752}) {
    benchmark::RegisterBenchmark("find_all_hit", find_all_hit)->ArgName("depth")->Arg(depth);
  }
  for (const int millions : {1, 10}) {
    for (const int holders : {1, 4, 64}) {
      benchmark::RegisterBenchmark("memory", memory)
          ->ArgNames({"M", "holders"})
          ->Args({millions, holders})
          ->Iterations(1)
          ->Unit(benchmark::kMillisecond);
    }
  }
}

[[maybe_unused]] const bool kRegistered = (register_all(), true);

}  // namespace
}  // namespace fairlead::kv
