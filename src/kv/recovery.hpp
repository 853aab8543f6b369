#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "observe/metrics.hpp"

// Keeps the view of one engine's cache equal to what the engine announced, over a stream that may
// lose batches, break, and begin again. Pure: sockets, decoding and the clock belong to the caller.
//
// What the protocol gives: batches are numbered from 0 by each life of a publisher; a subscriber
// gets each number at most once, ascending, with holes where something was dropped; an answer to a
// replay request repeats what the publisher still buffers from a number on, and an end marker.
//
// Invariants:
// - Batches reach the host in ascending order, each number once between two clears.
// - `cursor_` is the number that comes next. Batches at or above it wait in `pending_`, which is
//   bounded; none below it is kept.
// - `anchor_` is the last batch before the cursor. A publisher that still has that number with the
//   same bytes is the same publisher; this is asked whenever it might be another one.
// - A view that was taken over from elsewhere is as one whose connection broke: in doubt.
// - Silence proves nothing. Only an answer that begins above the cursor proves a loss.

namespace fairlead::kv {

/// What can be said about one source's view.
enum class ViewState : std::uint8_t {
  Connecting,  ///< No connection yet, not for long.
  Replaying,   ///< History or a gap is being fetched.
  Live,        ///< The view follows the engine.
  Stale,       ///< The view may be wrong; `StaleReason` says why.
  NoEvents,    ///< Connected, and the engine has announced nothing so far.
};

/// Name for logs, metrics and documents.
std::string_view name(ViewState state);

/// Why a view is stale.
enum class StaleReason : std::uint8_t {
  None,           ///< It is not.
  CannotConnect,  ///< The endpoint was never reached.
  Disconnected,   ///< The connection broke and is not back.
  Unconfirmed,    ///< It is back, but without replay the next batch must show if anything was lost.
  ReplaySilent,   ///< The replay endpoint does not answer.
  BufferFull,     ///< More live batches came during a replay than are held; they are replayed too.
  Undecodable,    ///< Several batches in a row could not be decoded.
  WrongRank,      ///< Several batches in a row were of another data-parallel rank.
  Unstable,  ///< The sequence went back again and again, as with two publishers at one address.
};

/// One phrase for logs and `/health`; empty for `None`.
std::string_view describe(StaleReason reason);

/// How a view that is not stale relates to the engine's cache.
enum class Coverage : std::uint8_t {
  Complete,  ///< Everything announced since the engine's start was applied.
  Partial,   ///< Early history is missing: blocks may be unknown, none is wrong.
  Doubtful,  ///< Later batches were lost: blocks may be unknown, and some may be gone already.
};

/// Name for logs, metrics and documents.
std::string_view name(Coverage coverage);

/// Where in its engine's stream a view stands, and what it has been through.
struct StreamPoint {
  std::uint64_t sequence = 0;              ///< Of the last batch in the view.
  std::uint64_t fingerprint = 0;           ///< XXH3 of that batch's bytes.
  Coverage coverage = Coverage::Complete;  ///< How the view relates to the engine's cache.
  // Since the view was empty:
  std::uint64_t batches = 0;  ///< Applied.
  std::uint64_t stored = 0;   ///< Blocks they stored.
  std::uint64_t removed = 0;  ///< Blocks they removed.
  std::uint64_t lost = 0;     ///< Batches that are known to be missing.
  /// Equality of all.
  bool operator==(const StreamPoint&) const = default;
};

/// What became of one batch.
struct Applied {
  /// Outcome.
  enum class Outcome : std::uint8_t {
    Done,         ///< Applied.
    Undecodable,  ///< Nothing of it was applied.
    WrongRank,    ///< Of another rank; nothing of it was applied.
  };
  Outcome outcome = Outcome::Done;  ///< Outcome.
  std::uint64_t stored = 0;         ///< Blocks it stored.
  std::uint64_t removed = 0;        ///< Blocks it removed.
  bool cleared = false;             ///< It emptied the cache: nothing before it matters any more.
};

/// What a recovery tells its owner to do. Called from inside its methods; must not call back.
class RecoveryHost {
 public:
  virtual ~RecoveryHost() = default;
  /// Applies one batch to the view.
  virtual Applied apply(std::uint64_t sequence, std::string_view payload) = 0;
  /// Forgets everything of the source.
  virtual void clear() = 0;
  /// Asks for a replay from `start` on; false when that could not even be tried.
  virtual bool request_replay(std::uint64_t start) = 0;
  /// Abandons the request: what is still answered to it must not arrive.
  virtual void abandon_replay() = 0;
  /// A live batch showed that others are missing.
  virtual void gap_detected(std::uint64_t expected, std::uint64_t got) = 0;
};

/// Bounds and delays of a recovery.
struct RecoveryOptions {
  /// Unit of all delays.
  using Duration = std::chrono::milliseconds;
  bool replay = true;                                ///< The source has a replay endpoint.
  std::size_t buffer_batches = 4096;                 ///< Batches held during a replay.
  std::size_t buffer_bytes = std::size_t{32} << 20;  ///< Their bytes.
  Duration connect_timeout{10'000};                  ///< Until an unreachable source is stale.
  Duration replay_timeout{5'000};  ///< Silence that ends a replay without a result.
  Duration hole_timeout{250};    ///< Likewise once the answer has holes: its end may be lost, too.
  Duration first_backoff{100};   ///< Before the second attempt; doubles.
  Duration max_backoff{10'000};  ///< Its bound.
  int attempts = 3;              ///< Replays without any progress until a gap is given up.
  Duration settle_check{1'000};  ///< Silence after a batch until a check.
  Duration idle_check{10'000};   ///< Between checks of a silent source.
  Duration max_idle_check{300'000};  ///< Likewise while checks are not answered.
  Duration restart_memory{60'000};   ///< Restarts closer than this count as a row.
};

/// Totals of a recovery. Written by its thread, read by any.
struct RecoveryCounters {
  observe::Cell batches;          ///< Applied.
  observe::Cell gaps;             ///< Holes seen in the live sequence.
  observe::Cell lost_batches;     ///< Known to be missing for good.
  observe::Cell duplicates;       ///< Ignored, since applied or held before.
  observe::Cell replays;          ///< Replay requests.
  observe::Cell replay_timeouts;  ///< Of these, ended by silence without any progress.
  observe::Cell given_up;         ///< Gaps or histories that no replay gave.
  observe::Cell partial_starts;   ///< Histories that began above 0.
  observe::Cell restarts;         ///< Other lives of the engine that were noticed.
  observe::Cell clears;           ///< Views dropped, for restarts or for losses.
  observe::Cell decode_errors;    ///< Batches that could not be decoded.
  observe::Cell wrong_rank;       ///< Batches of another rank.
  observe::Cell malformed;        ///< Messages that are no batch.
  observe::Cell overflows;        ///< Live batches not held because the buffer was full.
};

/// The state machine of one source. One thread; only the counters may be read by others.
class Recovery {
 public:
  /// Of the caller's clock.
  using TimePoint = std::chrono::steady_clock::time_point;

  /// The sequence number of end markers; never a batch's.
  static constexpr std::uint64_t kEndMarker = UINT64_MAX;

  /// Begins to connect at `now`. With `from`, the host's view is already as it was at that point;
  /// it is used once the engine has confirmed that it published that batch, and dropped when it did
  /// not. Without replay nothing can be confirmed: `from` must be empty then.
  Recovery(const RecoveryOptions& options, RecoveryHost& host, TimePoint now,
           const std::optional<StreamPoint>& from = {});

  /// The subscription's connection is up, for the first time or again.
  void connected(TimePoint now);
  /// It broke.
  void disconnected(TimePoint now);
  /// A batch of the live stream.
  void live(std::uint64_t sequence, std::string_view payload, TimePoint now);
  /// A message of the replay's answer: a batch, or with no payload and `kEndMarker` its end.
  void replayed(std::uint64_t sequence, std::string_view payload, TimePoint now);
  /// A message on either socket that has not the shape of a batch.
  void malformed() { counters_.malformed.add(1); }
  /// The engine is known to have begun a new life.
  void new_instance(TimePoint now);
  /// Time passed. To be called at `deadline`, after everything received was handed in.
  void tick(TimePoint now);
  /// When `tick` has something to do; the maximum when only events matter.
  TimePoint deadline() const;

  /// State of the view.
  ViewState state() const;
  /// Why it is stale.
  StaleReason reason() const;
  /// How it relates to the engine's cache.
  Coverage coverage() const { return coverage_; }
  /// The view is worth using: it follows the engine, or is behind only for the repair of a gap.
  bool usable() const;
  /// Number of the last batch in the view.
  std::optional<std::uint64_t> last_sequence() const;
  /// Where the view stands, if it is worth handing on: it is used, and its last batch is known.
  std::optional<StreamPoint> point() const;
  /// Batches held.
  std::size_t held() const { return pending_.size(); }
  /// Totals.
  const RecoveryCounters& counters() const { return counters_; }

 private:
  enum class Phase : std::uint8_t { Connecting, Disconnected, Waiting, Recovering, Live };
  struct Anchor {
    std::uint64_t sequence = 0;
    std::uint64_t fingerprint = 0;
    bool operator==(const Anchor&) const = default;
  };
  // A request that is being answered.
  struct Request {
    std::optional<Anchor> anchor;  // must come first, until it came
    std::uint64_t cursor = 0;      // when it was sent
    bool first = true;             // it has given no batch so far
    bool progress = false;         // it has given one that was needed
    bool holes = false;
    TimePoint deadline;
  };
  // What a loss without replay is weighed by; since the last clear.
  struct Weights {
    std::uint64_t batches = 0;
    std::uint64_t stored = 0;
    std::uint64_t removed = 0;
    std::uint64_t lost = 0;
  };

  static Anchor anchor_of(std::uint64_t sequence, std::string_view payload);
  void live_in_order(std::uint64_t sequence, std::string_view payload, TimePoint now);
  bool apply(std::uint64_t sequence, std::string_view payload, bool retry);
  void hold(std::uint64_t sequence, std::string_view payload, bool live);
  void drain(bool retry);
  bool gap_left() const;
  bool confirm(std::uint64_t sequence, std::string_view payload, TimePoint now);
  void replay_ended(TimePoint now);
  void settle(TimePoint now, bool progress);
  void prove_loss(std::uint64_t sequence);
  void count_lost(std::uint64_t batches);
  void lose(std::uint64_t batches, bool clear);
  void clear_view();
  void drop_pending();
  void restart(TimePoint now);
  void rebuild(TimePoint now);
  void begin(TimePoint now);
  void ask(TimePoint now);
  void unanswered(TimePoint now);
  void wait(TimePoint now, int failures);
  void give_up(TimePoint now);
  void go_live(TimePoint now, std::chrono::milliseconds next_check);
  void cancel_request();

  RecoveryOptions options_;
  RecoveryHost& host_;
  RecoveryCounters counters_;

  Phase phase_ = Phase::Connecting;
  Coverage coverage_ = Coverage::Partial;
  std::uint64_t cursor_ = 0;
  std::optional<Anchor> anchor_;
  std::optional<std::uint64_t> retried_;    // the last undecodable batch that is asked for again
  std::optional<std::uint64_t> last_live_;  // of this life of the publisher
  std::map<std::uint64_t, std::string> pending_;
  std::size_t pending_bytes_ = 0;
  std::optional<Request> request_;
  Weights weights_;

  bool any_next_ = false;      // nothing is known: whatever batch comes next begins the view
  bool doubt_ = false;         // reconnected: it may be another life
  bool reconnected_ = false;   // since the last restart
  bool want_history_ = false;  // the view began without a replay that was not to be had
  bool synced_ = false;        // was live since the last clear
  bool replay_dead_ = false;   // did not answer when it was given up last
  bool buffer_full_ = false;
  bool unstable_ = false;
  bool connect_overdue_ = false;
  int fruitless_ = 0;    // answers in a row that gave nothing though a gap is left
  int unanswered_ = 0;   // requests in a row without answer
  int bad_in_row_ = 0;   // batches in a row that were skipped
  int restart_run_ = 0;  // restarts in a row, on one connection
  StaleReason bad_reason_ = StaleReason::None;
  std::optional<TimePoint> last_restart_;
  TimePoint connect_by_;
  TimePoint retry_at_;
  TimePoint check_at_;
};

}  // namespace fairlead::kv
