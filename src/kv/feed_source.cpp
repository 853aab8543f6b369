#include "kv/feed_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "kv/event_decoder.hpp"

namespace fairlead::kv {
namespace {

using Clock = std::chrono::steady_clock;
using net::zmq::Message;

constexpr std::size_t kMessagesPerTurn = 64;
constexpr std::chrono::milliseconds kTurn{2};
constexpr std::chrono::seconds kLogInterval{10};

std::optional<std::uint64_t> read_big_endian(std::string_view bytes) {
  if (bytes.size() != sizeof(std::uint64_t)) {
    return std::nullopt;
  }
  std::uint64_t value = 0;
  for (const char c : bytes) {
    value = value << 8 | static_cast<unsigned char>(c);
  }
  return value;
}

RecoveryOptions recovery_options(const FeedOptions& options, const SourceSpec& spec) {
  RecoveryOptions result = options.recovery;
  result.replay = !spec.replay_endpoint.empty();
  return result;
}

}  // namespace

bool FeedSource::Limiter::pass(TimePoint now) {
  if (last && now - *last < kLogInterval) {
    ++suppressed;
    return false;
  }
  last = now;
  suppressed = 0;
  return true;
}

FeedSource::FeedSource(net::zmq::Context& context, const FeedOptions& options,
                       const SourceSpec& spec, EventSink& sink,
                       const std::atomic<std::size_t>& sources,
                       const std::optional<Checkpoint>& from)
    : context_(context),
      options_(options),
      spec_(spec),
      sink_(sink),
      sources_(sources),
      normalizer_(NormalizerOptions{.block_size = spec.block_size,
                                    .rank = spec.rank,
                                    .label = spec.label,
                                    .image_token = spec.image_token}),
      recovery_(recovery_options(options, spec), *this, Clock::now(),
                from ? std::optional(from->point) : std::nullopt) {
  if (from) {
    normalizer_.restore(from->memory);
  }
}

FeedSource::~FeedSource() { unwatch(); }

Result<std::unique_ptr<FeedSource>> FeedSource::open(net::zmq::Context& context,
                                                     const FeedOptions& options,
                                                     const SourceSpec& spec, EventSink& sink,
                                                     const std::atomic<std::size_t>& sources,
                                                     const std::optional<Checkpoint>& from) {
  std::unique_ptr<FeedSource> source(new FeedSource(context, options, spec, sink, sources, from));
  if (auto opened = source->open_live(); !opened) {
    return std::unexpected(opened.error());
  }
  return source;
}

// For the thread that serves. It comes back at once when there is much to serve, so it lets readers
// go first.
std::unique_lock<std::mutex> FeedSource::lock_view() {
  while (readers_.load(std::memory_order_relaxed) > 0) {
    std::this_thread::yield();
  }
  return std::unique_lock(view_mutex_);
}

std::optional<Checkpoint> FeedSource::checkpoint(const std::function<void()>& read) const {
  readers_.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(view_mutex_);
  readers_.fetch_sub(1, std::memory_order_relaxed);
  const auto point = closed_ ? std::nullopt : recovery_.point();
  if (!point) {
    return std::nullopt;
  }
  read();
  return Checkpoint{.point = *point, .memory = normalizer_.memory()};
}

bool FeedSource::serve(MessageRoom& room) {
  const auto lock = lock_view();
  const TimePoint end = Clock::now() + kTurn;
  std::size_t handled = 0;
  bool more = true;
  // Only when nothing is left in any socket do their descriptors tell of what comes.
  while (more && handled < kMessagesPerTurn && Clock::now() < end) {
    const std::size_t replayed = serve_replay(room);
    const std::size_t live = serve_live(room);
    const bool connection = serve_connection();
    handled += replayed + live;
    more = replayed != 0 || live != 0 || connection;
  }
  publish();
  return more;
}

bool FeedSource::serve_connection() {
  bool any = false;
  while (const auto event = monitor_->next()) {
    any = true;
    if (*event == net::zmq::ConnectionEvent::Up) {
      reopen_at_ = TimePoint::max();
      reopened_ = 0;
      recovery_.connected(Clock::now());
    } else {
      reopen_at_ = Clock::now() + options_.reopen;
      recovery_.disconnected(Clock::now());
    }
  }
  return any;
}

std::size_t FeedSource::serve_live(MessageRoom& room) {
  std::size_t count = 0;
  while (count < room.size() && live_->receive(room[count])) {
    ++count;
  }
  if (count == 0) {
    return 0;
  }
  // A connection is reported before what comes through it. So what was received belongs to the
  // connections seen here, or to an earlier one.
  serve_connection();
  const TimePoint now = Clock::now();
  for (std::size_t i = 0; i < count; ++i) {
    const Message& message = room[i];
    const auto sequence = message.size() == 3 ? read_big_endian(message[1]) : std::nullopt;
    if (sequence) {
      recovery_.live(*sequence, message[2], now);
      continue;
    }
    recovery_.malformed();
    if (frame_lines_.pass(now)) {
      log::warn("KV events of {}: a message of {} frames is no batch", spec_.label, message.size());
    }
  }
  last_event_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  return count;
}

std::size_t FeedSource::serve_replay(MessageRoom& room) {
  std::size_t count = 0;
  while (replay_ && count < room.size() && replay_->receive(room[count])) {
    ++count;
  }
  const std::uint64_t number = replay_number_;
  for (std::size_t i = 0; i < count && replay_ && number == replay_number_; ++i) {
    const Message& message = room[i];
    // (empty, sequence, payload), or with the topic before the sequence.
    const std::size_t frames = message.size();
    const bool shaped = (frames == 3 || frames == 4) && message[0].empty();
    const auto sequence = shaped ? read_big_endian(message[frames - 2]) : std::nullopt;
    if (sequence) {
      recovery_.replayed(*sequence, message[frames - 1], Clock::now());
    } else {
      recovery_.malformed();
    }
  }
  return count;
}

bool FeedSource::tick() {
  const auto lock = lock_view();
  const TimePoint now = Clock::now();
  const std::int64_t replays = recovery_.counters().replays.get();
  // A socket signals what arrives once it was read in vain, and sending may take the signal of what
  // arrived in the meantime.
  const bool reopened = now >= reopen_at_;
  if (reopened) {
    reopen();
  }
  if (now >= recovery_.deadline()) {
    recovery_.tick(now);
  }
  publish();
  return reopened || recovery_.counters().replays.get() != replays;
}

FeedSource::TimePoint FeedSource::deadline() const {
  return std::min(recovery_.deadline(), reopen_at_);
}

void FeedSource::new_instance() {
  const auto lock = lock_view();
  recovery_.new_instance(Clock::now());
  publish();
}

Applied FeedSource::apply(std::uint64_t sequence, std::string_view payload) {
  applied_ = {};
  if (auto decoded = decode_batch(payload, batch_); !decoded) {
    applied_.outcome = Applied::Outcome::Undecodable;
    if (decode_lines_.pass(Clock::now())) {
      log::warn("KV events of {}: batch {}: {}", spec_.label, sequence, decoded.error().message);
    }
    return applied_;
  }
  if (spec_.check_rank && batch_.rank && *batch_.rank != spec_.rank) {
    applied_.outcome = Applied::Outcome::WrongRank;
    if (decode_lines_.pass(Clock::now())) {
      log::warn("KV events of {}: batch {} is of rank {}, not {}", spec_.label, sequence,
                *batch_.rank, spec_.rank);
    }
    return applied_;
  }
  normalizer_.apply(batch_, *this);
  return applied_;
}

void FeedSource::stored(Tier tier, std::optional<EngineHash> parent,
                        std::span<const StoredBlock> blocks) {
  applied_.stored += blocks.size();
  counters_.stored.add(1);
  counters_.stored_blocks.add(static_cast<std::int64_t>(blocks.size()));
  sink_.stored(tier, parent, blocks);
}

void FeedSource::removed(Tier tier, std::span<const EngineHash> blocks) {
  applied_.removed += blocks.size();
  counters_.removed.add(1);
  counters_.removed_blocks.add(static_cast<std::int64_t>(blocks.size()));
  sink_.removed(tier, blocks);
}

void FeedSource::cleared() {
  applied_ = {.cleared = true};
  counters_.cleared.add(1);
  sink_.cleared();
}

void FeedSource::clear() {
  normalizer_.reset();
  sink_.cleared();
}

void FeedSource::gap_detected(std::uint64_t expected, std::uint64_t got) {
  const std::uint64_t suppressed = gap_lines_.suppressed;
  if (gap_lines_.pass(Clock::now())) {
    log::warn("Gap detected: expected seq {}, got {} ({}{})", expected, got, spec_.label,
              suppressed == 0 ? "" : fmt::format("; {} more before this", suppressed));
  }
}

void FeedSource::publish() {
  const auto last = recovery_.last_sequence();
  state_.store(recovery_.state(), std::memory_order_relaxed);
  reason_.store(recovery_.reason(), std::memory_order_relaxed);
  coverage_.store(recovery_.coverage(), std::memory_order_relaxed);
  next_sequence_.store(last ? *last + 1 : 0, std::memory_order_relaxed);
  usable_.store(recovery_.usable(), std::memory_order_release);
  report();
}

void FeedSource::report() {
  const TimePoint now = Clock::now();
  const RecoveryCounters& counters = recovery_.counters();
  const bool replaying = recovery_.state() == ViewState::Replaying;
  if (const std::int64_t restarts = counters.restarts.get();
      restarts != reported_restarts_ && restart_lines_.pass(now)) {
    reported_restarts_ = restarts;
    log::info("KV events of {}: the engine began anew, and so does the view of its cache",
              spec_.label);
  }
  if (const std::int64_t lost = counters.lost_batches.get();
      lost != reported_losses_ && !replaying && loss_lines_.pass(now)) {
    log::warn("KV events of {}: {} batches are lost for good; the view of its cache is {}",
              spec_.label, lost - reported_losses_, name(recovery_.coverage()));
    reported_losses_ = lost;
  }
  if (counters.given_up.get() != 0 && !std::exchange(reported_given_up_, true)) {
    log::warn("KV events of {}: {} gave no replay; going on without what was missed", spec_.label,
              spec_.replay_endpoint);
  }
  const StaleReason reason = recovery_.reason();
  if (replaying || reason == reported_reason_) {
    return;
  }
  if (reason == StaleReason::CannotConnect) {
    log::warn(
        "KV events of {}: cannot connect to {}: what its cache holds is unknown (an engine listens "
        "only if its endpoint has a wildcard, as in tcp://*:5557)",
        spec_.label, spec_.endpoint);
  } else if (!state_lines_.pass(now)) {
    return;
  } else if (reason != StaleReason::None) {
    log::warn("KV events of {}: the view of its cache is stale: {}", spec_.label, describe(reason));
  } else {
    log::info("KV events of {}: the view of its cache is {} again", spec_.label,
              name(recovery_.state()));
  }
  reported_reason_ = reason;
}

SourceStatus FeedSource::status() const {
  SourceStatus status;
  status.usable = usable_.load(std::memory_order_acquire);
  status.state = state_.load(std::memory_order_relaxed);
  status.reason = reason_.load(std::memory_order_relaxed);
  status.coverage = coverage_.load(std::memory_order_relaxed);
  if (const std::uint64_t next = next_sequence_.load(std::memory_order_relaxed); next != 0) {
    status.last_sequence = next - 1;
  }
  if (const std::int64_t last = last_event_.load(std::memory_order_relaxed); last != 0) {
    status.seconds_since_event =
        std::chrono::duration<double>(Clock::now().time_since_epoch() - Clock::duration(last))
            .count();
  }
  return status;
}

}  // namespace fairlead::kv
