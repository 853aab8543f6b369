#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "kv/checkpoint.hpp"
#include "kv/event_batch.hpp"
#include "kv/event_feed.hpp"
#include "kv/event_normalizer.hpp"
#include "kv/recovery.hpp"
#include "net/zmq.hpp"

namespace fairlead::kv {

/// Messages received in one go; a thread's sources share the room.
using MessageRoom = std::array<net::zmq::Message, 16>;

/// One source: its sockets, its recovery, and the way from a payload to the sink. Made by any
/// thread, then used by one; what says so may be read by all.
class FeedSource final : public CheckpointGiver, private RecoveryHost, private EventSink {
 public:
  /// Unit of its deadlines.
  using TimePoint = Recovery::TimePoint;

  /// Opens the live socket and begins to connect, with `from` as of `EventFeed::subscribe`.
  /// `sources` tells how many share the room for replayed messages. All references but `spec` and
  /// `from` outlive the source, or its closing.
  static Result<std::unique_ptr<FeedSource>> open(net::zmq::Context& context,
                                                  const FeedOptions& options,
                                                  const SourceSpec& spec, EventSink& sink,
                                                  const std::atomic<std::size_t>& sources,
                                                  const std::optional<Checkpoint>& from);
  ~FeedSource() override;

  /// Adds its descriptors to an epoll instance, under its own address, and keeps them there.
  void watch(int epoll_fd);
  /// Takes them out again.
  void unwatch();
  /// Handles what was received, but not for long; true when there may be more.
  bool serve(MessageRoom& room);
  /// To be called at `deadline`, after a `serve`; true when `serve` is to be called again.
  bool tick();
  /// When `tick` has something to do.
  TimePoint deadline() const;
  /// The engine began a new life.
  void new_instance();
  /// Ends it when no thread serves it any more: sockets go, and no checkpoint is given from here
  /// on.
  void close();
  std::optional<Checkpoint> checkpoint(const std::function<void()>& read) const override;

  /// State; any thread.
  SourceStatus status() const;
  /// Totals; any thread.
  const RecoveryCounters& recovery_counters() const { return recovery_.counters(); }
  /// Totals; any thread.
  const EventCounters& event_counters() const { return counters_; }
  /// For its totals; any thread.
  const EventNormalizer& normalizer() const { return normalizer_; }

 private:
  FeedSource(net::zmq::Context& context, const FeedOptions& options, const SourceSpec& spec,
             EventSink& sink, const std::atomic<std::size_t>& sources,
             const std::optional<Checkpoint>& from);

  std::unique_lock<std::mutex> lock_view();
  Result<> open_live();
  std::size_t serve_live(MessageRoom& room);
  std::size_t serve_replay(MessageRoom& room);
  bool serve_connection();
  void reopen();
  void epoll(int operation, int fd);
  void publish();
  void report();

  // RecoveryHost
  Applied apply(std::uint64_t sequence, std::string_view payload) override;
  void clear() override;
  bool request_replay(std::uint64_t start) override;
  void abandon_replay() override;
  void gap_detected(std::uint64_t expected, std::uint64_t got) override;
  // EventSink: counts and hands on
  void stored(Tier tier, std::optional<EngineHash> parent,
              std::span<const StoredBlock> blocks) override;
  void removed(Tier tier, std::span<const EngineHash> blocks) override;
  void cleared() override;

  // Log lines of one kind, so many that one per ten seconds says enough.
  struct Limiter {
    std::optional<TimePoint> last;
    std::uint64_t suppressed = 0;
    bool pass(TimePoint now);
  };

  net::zmq::Context& context_;
  const FeedOptions options_;
  const SourceSpec spec_;
  EventSink& sink_;
  const std::atomic<std::size_t>& sources_;
  net::zmq::Family family_ = net::zmq::Family::ByLiteral;
  EventNormalizer normalizer_;
  EventBatch batch_;
  // Held by the thread that serves while it does, so that a checkpoint is taken between two turns.
  mutable std::mutex view_mutex_;
  mutable std::atomic<int> readers_{0};  // that wait for it
  bool closed_ = false;                  // guarded by view_mutex_
  Applied applied_;                      // of the batch that is being applied
  EventCounters counters_;
  Recovery recovery_;

  int epoll_fd_ = -1;
  std::unique_ptr<net::zmq::Socket> live_;
  net::zmq::Monitor* monitor_ = nullptr;  // of live_
  std::unique_ptr<net::zmq::Socket> replay_;
  std::uint64_t replay_number_ = 0;  // of the replay socket
  TimePoint reopen_at_ = TimePoint::max();
  int reopened_ = 0;  // times in a row, without a connection

  // Logging
  StaleReason reported_reason_ = StaleReason::None;
  std::int64_t reported_losses_ = 0;
  std::int64_t reported_restarts_ = 0;
  bool reported_given_up_ = false;
  Limiter gap_lines_;
  Limiter state_lines_;
  Limiter loss_lines_;
  Limiter restart_lines_;
  Limiter decode_lines_;
  Limiter frame_lines_;

  // Read by any thread.
  std::atomic<ViewState> state_{ViewState::Connecting};
  std::atomic<StaleReason> reason_{StaleReason::None};
  std::atomic<Coverage> coverage_{Coverage::Partial};
  std::atomic<bool> usable_{false};
  std::atomic<std::uint64_t> next_sequence_{0};  // 0: none yet
  std::atomic<std::int64_t> last_event_{0};      // of the clock; 0: none yet
};

}  // namespace fairlead::kv
