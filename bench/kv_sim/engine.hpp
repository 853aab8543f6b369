#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "kv_sim/block_cache.hpp"
#include "kv_sim/trace.hpp"

namespace fairlead::kv_sim {

/// How long a step takes: a sum, linear in what the step computes. The defaults are those of a
/// 14-billion-parameter model in 8 bits on one H100 (docs/kv-simulation.md).
struct StepTime {
  double base_ms = 7;               ///< Reading the weights, launching.
  double prefill_token_ms = 0.05;   ///< Per prompt token computed.
  double decode_request_ms = 0.02;  ///< Per sequence that generates.
  double kv_block_ms = 0.00045;     ///< Per cache block that these read, for blocks of 16 tokens.
};

/// What a virtual engine is.
struct EngineOptions {
  std::uint32_t block_size = 16;     ///< Tokens per block; divides 512.
  std::uint32_t blocks = 40'960;     ///< Of the KV cache.
  std::uint32_t step_tokens = 8192;  ///< Computed per step at most.
  std::uint32_t max_running = 256;   ///< Sequences that hold blocks.
  StepTime time = {};                ///< Of a step.
};

/// One request inside an engine.
struct Job {
  std::size_t request = 0;               ///< Number in the workload.
  std::size_t place = 0;                 ///< The caller's.
  std::uint32_t prompt_tokens = 0;       ///< At least 1.
  std::uint32_t output_tokens = 1;       ///< It generates so many.
  std::vector<kv::LocalHash> locals;     ///< Of its complete blocks, output included.
  std::vector<kv::SequenceHash> hashes;  ///< Likewise.

  // The engine's.
  std::uint32_t generated = 0;          ///< Tokens so far.
  std::uint32_t computed = 0;           ///< Tokens whose KV exists.
  std::uint32_t published = 0;          ///< Blocks that others can find.
  std::optional<std::uint32_t> cached;  ///< Prompt tokens found cached when first scheduled.
  std::vector<BlockId> blocks;          ///< In token order.

  /// Tokens there are.
  std::uint32_t known() const { return prompt_tokens + generated; }
};

/// What an engine tells of its cache. Its own name of a block is the block's sequence hash.
struct CacheEvent {
  bool stored = true;                    ///< Else removed.
  std::optional<kv::EngineHash> parent;  ///< Of the first one stored.
  std::vector<kv::StoredBlock> blocks;   ///< Stored, in the order of their chain.
  std::vector<kv::EngineHash> removed;   ///< One copy of each.
};

/// What the end of a step brought, in the order of admission.
struct StepOutput {
  std::vector<Job*> advanced;  ///< Each generated one token: the first when `generated` is 1, the
                               ///< last when it is `output_tokens`. The engine no longer has those.
  std::vector<CacheEvent> events;  ///< Of its cache, in order.
};

/// A virtual engine in virtual time, after vLLM's scheduler: continuous batching, prompts in chunks
/// of what decoding leaves of a step's tokens, prefixes found in the cache, the newest sequence
/// gives way when blocks run out and is computed again.
class Engine {
 public:
  /// Totals.
  struct Totals {
    Nanos busy{0};                      ///< In steps.
    std::uint64_t computed_tokens = 0;  ///< Of prompts, and of what was computed again.
    std::uint64_t preemptions = 0;
    std::uint64_t requests = 0;
  };

  explicit Engine(const EngineOptions& options) : options_(options), cache_(options.blocks) {}

  /// True when it could ever serve such a request.
  static bool fits(const EngineOptions& options, std::uint32_t prompt, std::uint32_t output);
  /// Queues a request that fits; it stays at its place until its last token.
  void add(Job& job);
  /// Plans the next step and says how long it takes; nothing when there is nothing to do.
  std::optional<Nanos> begin_step();
  /// Ends the step.
  void finish_step(StepOutput& out);

  /// True between the two.
  bool in_step() const { return in_step_; }
  /// Totals so far.
  const Totals& totals() const { return totals_; }
  /// Its cache.
  const BlockCache& cache() const { return cache_; }

 private:
  struct Scheduled {
    Job* job;
    std::uint32_t tokens;
  };
  struct Load {
    std::uint32_t budget;
    std::uint32_t prefill_tokens = 0;
    std::uint32_t decoding = 0;
    std::uint64_t decode_blocks = 0;
    bool preempted = false;
  };

  bool admit(Job& job, Load& load);
  bool grow(Job& job, std::uint32_t tokens);
  void preempt(Job& job);
  void schedule(Job& job, std::uint32_t tokens, Load& load);
  void publish(Job& job, std::uint32_t tokens);
  void drop_blocks(Job& job);

  EngineOptions options_;
  BlockCache cache_;
  std::deque<Job*> waiting_;
  std::vector<Job*> running_;
  std::vector<Scheduled> scheduled_;
  std::vector<CacheEvent> events_;
  std::vector<kv::EngineHash> evicted_;  // scratch
  bool in_step_ = false;
  Totals totals_;
};

}  // namespace fairlead::kv_sim
