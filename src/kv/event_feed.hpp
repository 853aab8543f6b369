#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "kv/checkpoint.hpp"
#include "kv/event_normalizer.hpp"
#include "kv/recovery.hpp"

// Follows the KV events of engines over ZeroMQ, in threads of its own.

namespace fairlead::net::zmq {
class Context;
}

namespace fairlead::kv {

/// Where one engine's rank publishes, as its discovery says; addresses are those to connect to.
struct SourceSpec {
  std::string endpoint;                      ///< Of the live stream, e.g. `tcp://10.0.0.7:5557`.
  std::string replay_endpoint;               ///< Empty: the engine offers no replay.
  std::string topic;                         ///< Prefix to subscribe to; empty: everything.
  std::uint32_t rank = 0;                    ///< Data-parallel rank.
  std::uint32_t block_size = 0;              ///< Tokens per block; 0: to be learned, see
                                             ///< NormalizerOptions.
  std::size_t buffer_steps = 0;              ///< Batches the engine keeps for replay; 0: not known.
  bool check_rank = true;                    ///< Reject batches that name another rank.
  std::optional<std::uint32_t> image_token;  ///< See NormalizerOptions.
  std::string label;                         ///< For logs, e.g. `worker_7 dp_rank=0`.
};

/// What one source did to the view. Written by its thread, read by any.
struct EventCounters {
  observe::Cell stored;          ///< Stored events handed on.
  observe::Cell removed;         ///< Removed events handed on.
  observe::Cell cleared;         ///< Cleared events handed on.
  observe::Cell stored_blocks;   ///< Their blocks.
  observe::Cell removed_blocks;  ///< Their blocks.
};

/// State of one source at one moment.
struct SourceStatus {
  ViewState state = ViewState::Connecting;     ///< State of the view.
  StaleReason reason = StaleReason::None;      ///< Why it is stale.
  Coverage coverage = Coverage::Partial;       ///< How it relates to the engine's cache.
  bool usable = false;                         ///< Worth choosing by.
  std::optional<std::uint64_t> last_sequence;  ///< Of the last batch in the view.
  std::optional<double> seconds_since_event;   ///< Since the last live batch.
};

/// Bounds of a feed.
struct FeedOptions {
  int threads = 1;                                        ///< Threads that receive and decode.
  RecoveryOptions recovery;                               ///< Its `replay` is set per source.
  std::size_t max_message_bytes = std::size_t{32} << 20;  ///< An engine that sends more is cut.
  int receive_high_water = 8192;  ///< Live messages queued per source before the engine's queue.
  /// Replayed messages queued for all sources together, though always 1024 for each. What finds no
  /// room waits at the engine, or is dropped there and asked for again.
  std::size_t replay_messages = 200'000;
  /// Without a connection for so long a source's socket is opened anew, for a host name with its
  /// addresses of the other family; then after as long, and twice that, up to eight times.
  std::chrono::milliseconds reopen{3'000};
};

class FeedSource;

/// One source being followed. Its destructor stops that and waits: the sink is not called any more.
class Subscription {
 public:
  ~Subscription();
  Subscription(const Subscription&) = delete;
  Subscription& operator=(const Subscription&) = delete;

  /// State; any thread.
  SourceStatus status() const;
  /// Totals of the stream; any thread.
  const RecoveryCounters& recovery() const;
  /// Totals of the view; any thread.
  const EventCounters& events() const;
  /// What was dropped of the events, and their kind of hashes; any thread, const members only.
  const EventNormalizer& normalizer() const;
  /// Tells that the engine began a new life, as its discovery noticed. Does not wait.
  void new_instance();
  /// Gives checkpoints as long as this lives. Never null; any thread.
  std::shared_ptr<const CheckpointGiver> checkpoints() const;

 private:
  friend class EventFeed;
  class Thread;
  /// Sources of a feed now.
  using Count = std::atomic<std::size_t>;
  Subscription(std::shared_ptr<Thread> thread, std::shared_ptr<Count> count,
               std::shared_ptr<FeedSource> source);
  std::shared_ptr<Thread> thread_;
  std::shared_ptr<Count> count_;
  std::shared_ptr<FeedSource> source_;
};

/// The threads. Outlives its subscriptions. Members may be called from any one thread, which must
/// not be one of the feed's, so not from inside a sink.
class EventFeed {
 public:
  /// Starts the threads.
  explicit EventFeed(const FeedOptions& options);
  ~EventFeed();
  EventFeed(const EventFeed&) = delete;
  EventFeed& operator=(const EventFeed&) = delete;

  /// Begins to follow a source; `sink` is called by one of the threads, and outlives the result.
  /// Fails for a malformed endpoint and where sockets or descriptors run out. An engine that cannot
  /// be reached is no failure but a state. With `from`, the view behind `sink` is already as it was
  /// then; only for sources with a replay endpoint, which confirms or refutes it.
  Result<std::unique_ptr<Subscription>> subscribe(const SourceSpec& spec, EventSink& sink,
                                                  const std::optional<Checkpoint>& from = {});

 private:
  FeedOptions options_;
  std::unique_ptr<net::zmq::Context> context_;
  std::shared_ptr<Subscription::Count> sources_;
  std::vector<std::shared_ptr<Subscription::Thread>> threads_;
};

}  // namespace fairlead::kv
