#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "mock/block_pool.hpp"
#include "mock/kv_publisher.hpp"
#include "mock/scheduler.hpp"
#include "net/reactor.hpp"

namespace fairlead::mock {

/// A point of monotonic time as the scheduler counts it.
inline Nanos engine_time(net::TimePoint time) { return time.time_since_epoch(); }

/// What the requests of one rank amounted to, since the start.
struct TokenCounters {
  std::uint64_t prompt_tokens = 0;     ///< Prompts of requests that began to answer.
  std::uint64_t cached_tokens = 0;     ///< Of these, found in the prefix cache.
  std::uint64_t generated_tokens = 0;  ///< Generated.
  std::uint64_t stopped = 0;           ///< Requests that ended by a stop.
  std::uint64_t full = 0;              ///< Requests that ended by their length.
  std::uint64_t aborted = 0;           ///< Requests that were aborted, or left by their client.
};

/// One rank of a simulated engine inside a reactor: runs the scheduler's steps when they are due
/// and publishes the events of the cache. Steps that take no time are run many per turn, but never
/// so many that the reactor's other work waits long.
class EngineCore final : private net::Flushable, private net::IoHandler {
 public:
  /// `publisher` may be null.
  EngineCore(net::Reactor& reactor, const SchedulerOptions& scheduler, TimingModel timing,
             std::unique_ptr<BlockPool> pool, std::unique_ptr<KvPublisher> publisher);
  ~EngineCore() override;
  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;

  /// Queues a sequence; see Scheduler::add.
  void add(Sequence& sequence);
  /// Takes a sequence out.
  void remove(Sequence& sequence);
  /// Leaves a sequence out of the steps, or not any more.
  void set_paused(Sequence& sequence, bool paused);
  /// Frees blocks that a finished sequence has kept.
  void release(std::span<const BlockId> blocks);
  /// Something outside has changed a sequence so that it can go on.
  void wake() { run_soon(); }
  /// Stops admission (`admit` false) and, with `freeze`, running sequences as well.
  void hold(bool admit, bool freeze);
  /// Publishes what has changed in the cache now, not with the next step.
  void flush_events() { publish(); }
  /// Resets the prefix cache; false while a request holds blocks. The event follows with the next
  /// step.
  bool reset_prefix_cache() { return pool_->reset(); }

  /// The scheduler, for its counts.
  const Scheduler& scheduler() const { return scheduler_; }
  /// The cache, for its counts and content.
  const BlockPool& pool() const { return *pool_; }
  /// What its requests amounted to; whoever runs them counts.
  TokenCounters& counters() { return counters_; }
  /// The same, for reading.
  const TokenCounters& counters() const { return counters_; }
  /// The publisher, or null.
  KvPublisher* publisher() { return publisher_.get(); }

 private:
  void flush() override;                      // a turn of steps
  void on_io(std::uint32_t events) override;  // the step's time is over
  void run_soon();
  bool run_step(Nanos now);
  void wake_at(Nanos time);
  void publish();

  net::Reactor& reactor_;
  std::unique_ptr<BlockPool> pool_;
  std::unique_ptr<KvPublisher> publisher_;
  Scheduler scheduler_;
  TokenCounters counters_;
  int timer_fd_;
  bool publishes_idle_;  // changes are told even when no step follows
  bool frozen_ = false;
  bool late_ = false;       // the last step has just ended: the next begins where it ended
  Nanos step_end_{0};       // of the step that runs, or that ended last
  Nanos wake_time_{0};      // for which the timer is set; 0 = not
  std::size_t tokens_ = 0;  // tokens of the steps of this turn
};

}  // namespace fairlead::mock
