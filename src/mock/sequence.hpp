#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "mock/block_pool.hpp"
#include "mock/reply.hpp"
#include "mock/timing.hpp"

namespace fairlead::mock {

/// Why a sequence ended.
enum class FinishReason : std::uint8_t {
  None,    ///< It goes on.
  Length,  ///< max_new_tokens or the context.
  Stop,    ///< EOS, a stop token, or the reply has ended.
};

/// When a sequence ends.
struct StopRules {
  std::uint32_t max_new_tokens = 1;    ///< At least 1.
  std::uint32_t min_new_tokens = 0;    ///< Before this many neither EOS nor stop tokens are drawn.
  std::vector<TokenId> stop_ids = {};  ///< Sorted.
  std::optional<TokenId> eos = {};     ///< The primary one.
  bool ignore_eos = false;             ///< EOS is a token like any other.
  bool canvas = false;                 ///< Likewise, and a reply that ends adds none.
};

/// What one step gave one sequence.
struct StepOutput {
  std::optional<TokenId> token;              ///< None when a reply ended without EOS.
  FinishReason finish = FinishReason::None;  ///< Whether this was the last.
  std::optional<TokenId> stop_token;         ///< The stop token that ended it.
  bool eos = false;                          ///< The primary EOS ended it.
};

struct Sequence;

/// Told what a sequence generates. May remove the sequence from its scheduler.
class SequenceObserver {
 public:
  virtual ~SequenceObserver() = default;
  /// One step's output. After one with a finish the scheduler has already let go of the sequence.
  virtual void on_output(Sequence& sequence, const StepOutput& output) = 0;
  /// A sequence that awaits its KV cache got the blocks for it. May not remove any sequence.
  virtual void on_admitted(Sequence& sequence) { static_cast<void>(sequence); }
};

/// One request inside the simulated engine. The first part is the caller's, the second the
/// scheduler's.
struct Sequence {
  std::vector<TokenId> tokens;    ///< The prompt; generated tokens are appended.
  std::size_t prompt_tokens = 0;  ///< How many of them are the prompt.
  CacheKey cache_key;             ///< Salt, adapter, session.
  bool skip_cache_read = false;   ///< Computes everything again, then stores it.
  bool prompt_arrives = false;    ///< Another engine computed the prompt (decode role).
  bool awaits_kv = false;         ///< It has not arrived yet: blocks are held, no step taken.
  bool keep_blocks = false;       ///< When it ends by itself, its blocks go to `kept`.
  Reply reply = Reply::echo();    ///< What it generates.
  StopRules stop;                 ///< When it ends.
  Nanos interval{0};              ///< Least time between two tokens.
  Nanos ready_at{0};              ///< Not scheduled before.
  SequenceObserver* observer = nullptr;  ///< Receives the output.

  /// Where it is.
  enum class State : std::uint8_t {
    Outside,  ///< Not in a scheduler.
    Waiting,  ///< Queued, or preempted.
    Running,  ///< Holds blocks.
  };
  State state = State::Outside;         ///< Where it is.
  bool paused = false;                  ///< Skipped by steps; see Scheduler::pause.
  std::size_t computed = 0;             ///< Tokens whose KV exists.
  std::size_t stored_blocks = 0;        ///< Blocks published to the prefix cache.
  std::optional<std::uint32_t> cached;  ///< Prompt tokens found cached when first scheduled.
  std::uint32_t preemptions = 0;        ///< How often it lost its blocks.
  std::vector<BlockId> blocks;          ///< In token order.
  std::vector<std::uint64_t> hashes;    ///< Of its full blocks.
  Sha256Digest page_digest{};           ///< Of the last of them, in an SGLang engine.
  std::vector<BlockId> kept;            ///< Still referenced, and the owner's to release.

  /// Generated tokens so far.
  std::size_t generated() const { return tokens.size() - prompt_tokens; }
  /// The prompt.
  std::span<const TokenId> prompt() const { return std::span(tokens).first(prompt_tokens); }
};

/// Draws the next token of a sequence and applies its stop rules. `tokens` is not changed.
StepOutput draw(const Sequence& sequence);

}  // namespace fairlead::mock
