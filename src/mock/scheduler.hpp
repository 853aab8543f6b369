#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "mock/block_pool.hpp"
#include "mock/sequence.hpp"
#include "mock/timing.hpp"

namespace fairlead::mock {

/// Which running sequence gives way when blocks run out.
enum class PreemptionMode : std::uint8_t {
  Newest,  ///< The one that was admitted last.
  Oldest,  ///< The one that was admitted first.
};

/// Bounds of a step.
struct SchedulerOptions {
  std::size_t max_running = 256;                       ///< Sequences that hold blocks.
  std::size_t max_batched_tokens = 8192;               ///< Tokens computed per step.
  bool chunked_prefill = true;                         ///< A prompt may take several steps.
  PreemptionMode preemption = PreemptionMode::Newest;  ///< Who gives way.
  /// Blocks of generated tokens become readable when their sequence ends, as in SGLang's tree.
  bool output_stored_at_end = false;
};

/// Continuous batching after vLLM's scheduler, without any I/O or clock: `begin_step` chooses what
/// the next step computes and says how long that takes, `finish_step` hands out its tokens. Between
/// the two, sequences may come and go. Not thread-safe.
class Scheduler {
 public:
  /// What `begin_step` decided.
  struct Step {
    bool work = false;          ///< False: nothing can run now; the step has not begun.
    Nanos duration{0};          ///< How long it takes.
    std::size_t sequences = 0;  ///< How many take part.
  };

  /// The pool must outlive the scheduler.
  Scheduler(SchedulerOptions options, TimingModel timing, BlockPool& pool)
      : options_(options), timing_(timing), pool_(pool) {}

  /// Queues a sequence, which must stay at its place until it has finished or was removed. Its
  /// prompt must fit the pool.
  void add(Sequence& sequence);
  /// Takes a sequence out, wherever it is, and frees its blocks.
  void remove(Sequence& sequence);
  /// A paused sequence keeps its blocks but takes part in no step.
  void pause(Sequence& sequence) { sequence.paused = true; }
  /// Ends a pause.
  void resume(Sequence& sequence) { sequence.paused = false; }
  /// While held, no sequence is admitted from the queue.
  void hold(bool held) { held_ = held; }

  /// Plans the next step from what is ready at `now`.
  Step begin_step(Nanos now);
  /// Ends the step: every sequence whose tokens are all computed draws one more. Observers are
  /// called in the order of admission.
  void finish_step(Nanos now);
  /// True between the two.
  bool in_step() const { return in_step_; }
  /// The earliest time after `now` at which a sequence that is not paused becomes ready.
  std::optional<Nanos> next_ready(Nanos now) const;

  /// Sequences that hold blocks.
  std::size_t running() const { return running_.size(); }
  /// Queued sequences.
  std::size_t waiting() const { return waiting_.size(); }
  /// Preemptions since the start.
  std::uint64_t preemptions() const { return preemptions_; }

 private:
  struct Scheduled {
    Sequence* sequence = nullptr;  // null when it left during the step
    std::size_t tokens = 0;
  };
  struct Load {
    std::size_t budget = 0;
    std::uint64_t prefill_tokens = 0;
    std::uint64_t active_tokens = 0;  // KV of decoding sequences
    bool decoding = false;
    bool preempted = false;
  };

  void schedule_running(Nanos now, Load& load);
  void schedule_waiting(Nanos now, Load& load);
  bool admit(Sequence& sequence, Load& load);
  bool make_room(Sequence& sequence, std::size_t tokens, Load& load);
  void preempt(Sequence& sequence);
  void schedule(Sequence& sequence, std::size_t tokens, Load& load);
  bool grow(Sequence& sequence, std::size_t tokens);
  void publish(Sequence& sequence, std::size_t tokens);
  void store(Sequence& sequence, std::size_t full);
  void extend_hashes(Sequence& sequence) const;
  void emit(Sequence& sequence, Nanos now);
  void drop_blocks(Sequence& sequence);

  SchedulerOptions options_;
  TimingModel timing_;
  BlockPool& pool_;
  std::deque<Sequence*> waiting_;
  std::vector<Sequence*> running_;
  std::vector<Scheduled> scheduled_;
  bool in_step_ = false;
  bool held_ = false;
  std::uint64_t preemptions_ = 0;
};

}  // namespace fairlead::mock
