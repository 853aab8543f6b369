// links: fl_kv
//
// The index of what was routed lately: one insertion and one answer, for prompts of 1,000 and
// 60,000 tokens in blocks of 16 (62 and 3,750 blocks), 8 and 2,048 targets. All prompts begin with
// the same 32 blocks, a system prompt that every target has, so an answer names every target; the
// rest is a prompt's own and, when `again`, known already. The index is at its cap when prompts are
// new.

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "kv/approximate_index.hpp"

namespace {

namespace kv = fairlead::kv;
using TimePoint = kv::ApproximateIndex::TimePoint;
using Prompt = std::vector<kv::SequenceHash>;

constexpr std::size_t kSystemBlocks = 32;
constexpr std::size_t kPrompts = 256;

void make_prompt(std::uint64_t own, Prompt& out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = (((i < kSystemBlocks ? 0 : own) << 20U) + i + 1) * 0x9E3779B97F4A7C15ULL;
  }
}

class Routed {
 public:
  Routed(std::size_t blocks, std::size_t targets)
      : index_({.ttl = std::chrono::seconds(120)}), targets_(targets) {
    Prompt system(kSystemBlocks);
    make_prompt(0, system);
    for (std::size_t target = 0; target < targets; ++target) {
      index_.insert(static_cast<kv::TargetId>(target), system, now_);
    }
    prompts_.resize(kPrompts, Prompt(blocks));
    for (std::size_t i = 0; i < kPrompts; ++i) {
      make_prompt(i + 1, prompts_[i]);
      insert(i);
    }
  }

  void insert(std::size_t i) {
    index_.insert(static_cast<kv::TargetId>(i % targets_), prompts_[i % kPrompts], now_);
  }
  void insert_new() {
    Prompt& prompt = prompts_[next_ % kPrompts];
    make_prompt(++next_ + kPrompts, prompt);
    index_.insert(static_cast<kv::TargetId>(next_ % targets_), prompt, now_);
  }
  void only_make_new() {
    Prompt& prompt = prompts_[next_ % kPrompts];
    make_prompt(++next_ + kPrompts, prompt);
    benchmark::DoNotOptimize(prompt.data());
  }
  void find(std::size_t i) {
    found_.clear();
    index_.find(prompts_[i % kPrompts], now_, found_);
    benchmark::DoNotOptimize(found_.data());
  }

 private:
  kv::ApproximateIndex index_;
  std::size_t targets_;
  std::vector<Prompt> prompts_;
  std::vector<kv::Overlap> found_;
  std::uint64_t next_ = 0;
  TimePoint now_ = TimePoint(std::chrono::hours(1));
};

void insert_again(benchmark::State& state) {
  Routed all(static_cast<std::size_t>(state.range(1)), static_cast<std::size_t>(state.range(0)));
  std::size_t i = 0;
  for (auto _ : state) {
    all.insert(i++ % kPrompts);
  }
}

// With making the prompt, which `make_prompts` measures alone, and with pruning.
void insert_new(benchmark::State& state) {
  Routed all(static_cast<std::size_t>(state.range(1)), static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    all.insert_new();
  }
}

void make_prompts(benchmark::State& state) {
  Routed all(static_cast<std::size_t>(state.range(1)), static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    all.only_make_new();
  }
}

void find(benchmark::State& state) {
  Routed all(static_cast<std::size_t>(state.range(1)), static_cast<std::size_t>(state.range(0)));
  std::size_t i = 0;
  for (auto _ : state) {
    all.find(i++);
  }
}

void find_nothing(benchmark::State& state) {
  const kv::ApproximateIndex index({.ttl = std::chrono::seconds(120)});
  Prompt prompt(3750);
  make_prompt(1, prompt);
  std::vector<kv::Overlap> found;
  for (auto _ : state) {
    index.find(prompt, TimePoint(std::chrono::hours(1)), found);
    benchmark::DoNotOptimize(found.data());
  }
}

void sizes(benchmark::internal::Benchmark* of) {
  of->ArgNames({"targets", "blocks"})->ArgsProduct({{8, 2048}, {62, 3750}});
}
BENCHMARK(insert_again)->Apply(sizes);
BENCHMARK(insert_new)->Apply(sizes);
BENCHMARK(make_prompts)->ArgNames({"targets", "blocks"})->ArgsProduct({{8}, {62, 3750}});
BENCHMARK(find)->Apply(sizes);
BENCHMARK(find_nothing);

}  // namespace
