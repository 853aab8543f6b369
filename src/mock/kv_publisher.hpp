#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "mock/kv_events.hpp"

namespace fairlead::mock {

/// Where and how events are published.
struct KvPublisherOptions {
  std::string endpoint;                          ///< ZMQ endpoint to bind, e.g. `tcp://HOST:0`.
  std::string replay_endpoint;                   ///< Likewise; empty = no replay.
  std::string topic;                             ///< First frame of every message.
  std::size_t buffer_steps = 10000;              ///< Batches kept for replay.
  std::size_t buffer_bytes = 256 * 1024 * 1024;  ///< Bytes kept for replay.
  std::size_t max_queue = 100000;                ///< Batches waiting for the thread.
  int high_water = 100000;                       ///< Messages queued per subscriber.
  std::uint32_t block_size = 64;                 ///< Tokens per block.
  std::uint32_t rank = 0;                        ///< Data-parallel rank.
  KvEventLayout layout = KvEventLayout::Map;     ///< Event encoding.
  KvEventFlavor flavor = KvEventFlavor::Vllm;    ///< Whose events.
  bool replay_topic = true;                      ///< Replay answers begin with the topic.
  std::uint64_t seed = 0;                        ///< Of the choice which batches are dropped.
};

/// Publishes batches of cache events as vLLM does: PUB frames (topic, 8-byte big-endian sequence,
/// payload), and a ROUTER that repeats buffered batches from a wanted sequence. Encoding and both
/// sockets belong to an own thread; all members here may be called from any one thread.
class KvPublisher {
 public:
  /// Binds and starts the thread. The error names the endpoint.
  static Result<std::unique_ptr<KvPublisher>> start(const KvPublisherOptions& options);
  ~KvPublisher();
  KvPublisher(const KvPublisher&) = delete;
  KvPublisher& operator=(const KvPublisher&) = delete;

  /// Queues one batch; empty ones are ignored. A full queue drops it (logged once).
  void publish(std::vector<KvEvent> events);
  /// Batches are withheld from subscribers with this probability; they keep their sequence and can
  /// still be replayed.
  void set_drop_probability(double probability);

  /// Bound endpoint, as a subscriber on this machine would connect to it or with a wildcard host.
  const std::string& endpoint() const;
  /// Bound replay endpoint; empty without one.
  const std::string& replay_endpoint() const;
  /// Batches taken, which are or will at once be handed to subscribers, or withheld: the number
  /// after the last one's.
  std::uint64_t published() const;
  /// Of these, how many subscribers were handed and replays would bring, if they are still kept.
  std::uint64_t sent() const;

 private:
  class Impl;
  explicit KvPublisher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace fairlead::mock
