#include <xxhash.h>

#include <algorithm>

#include "kv/recovery.hpp"

// What a recovery does to the view, and what it says about it; recovery.cpp decides when.

namespace fairlead::kv {
namespace {

constexpr int kBadRun = 3;              // skipped batches in a row that make a view stale
constexpr double kPhantomShare = 0.25;  // of a view, expected, from which it is worth nothing

constexpr std::uint64_t kLargestLoss = std::uint64_t{1} << 40;  // counted for one hole

}  // namespace

std::string_view name(ViewState state) {
  switch (state) {
    case ViewState::Connecting: return "connecting";
    case ViewState::Replaying: return "replaying";
    case ViewState::Live: return "live";
    case ViewState::Stale: return "stale";
    case ViewState::NoEvents: return "no_events";
  }
  return "";
}

std::string_view describe(StaleReason reason) {
  switch (reason) {
    case StaleReason::None: return "";
    case StaleReason::CannotConnect: return "cannot connect";
    case StaleReason::Disconnected: return "disconnected";
    case StaleReason::Unconfirmed: return "reconnected, waiting for a batch that shows no loss";
    case StaleReason::ReplaySilent: return "the replay endpoint does not answer";
    case StaleReason::BufferFull: return "more batches arrive than are held during a replay";
    case StaleReason::Undecodable: return "batches cannot be decoded";
    case StaleReason::WrongRank: return "batches are of another data-parallel rank";
    case StaleReason::Unstable: return "the sequence goes back again and again";
  }
  return "";
}

std::string_view name(Coverage coverage) {
  switch (coverage) {
    case Coverage::Complete: return "complete";
    case Coverage::Partial: return "partial";
    case Coverage::Doubtful: return "doubtful";
  }
  return "";
}

Recovery::Anchor Recovery::anchor_of(std::uint64_t sequence, std::string_view payload) {
  return {sequence, XXH3_64bits(payload.data(), payload.size())};
}

// Applies the batch at the cursor and moves on. False, with the cursor left, when the batch could
// not be decoded and a replay may do better.
bool Recovery::apply(std::uint64_t sequence, std::string_view payload, bool retry) {
  const Applied applied = host_.apply(sequence, payload);
  switch (applied.outcome) {
    case Applied::Outcome::Undecodable:
      counters_.decode_errors.add(1);
      if (retry && options_.replay && bad_in_row_ < kBadRun && retried_ != sequence) {
        retried_ = sequence;
        return false;
      }
      lose(1, false);
      bad_reason_ = StaleReason::Undecodable;
      ++bad_in_row_;
      break;
    case Applied::Outcome::WrongRank:
      counters_.wrong_rank.add(1);
      bad_reason_ = StaleReason::WrongRank;
      ++bad_in_row_;
      break;
    case Applied::Outcome::Done:
      counters_.batches.add(1);
      bad_in_row_ = 0;
      if (applied.cleared) {
        weights_ = {};
        coverage_ = Coverage::Complete;
        want_history_ = false;
      }
      ++weights_.batches;
      weights_.stored += applied.stored;
      weights_.removed += applied.removed;
      break;
  }
  cursor_ = sequence + 1;
  if (options_.replay) {
    anchor_ = anchor_of(sequence, payload);
  }
  return true;
}

void Recovery::hold(std::uint64_t sequence, std::string_view payload, bool live) {
  if (pending_.contains(sequence)) {
    counters_.duplicates.add(1);
    return;
  }
  // What is replayed may take half, so that live batches find room.
  const std::size_t share = live ? 1 : 2;
  if (pending_.size() >= options_.buffer_batches / share ||
      pending_bytes_ + payload.size() > options_.buffer_bytes / share) {
    // Not lost: a further replay gives it again.
    if (live) {
      counters_.overflows.add(1);
      buffer_full_ = true;
    }
    return;
  }
  pending_bytes_ += payload.size();
  pending_.emplace(sequence, payload);
}

// Applies what is held and follows on the cursor.
void Recovery::drain(bool retry) {
  while (!pending_.empty() && pending_.begin()->first <= cursor_) {
    const auto batch = pending_.extract(pending_.begin());
    pending_bytes_ -= batch.mapped().size();
    if (batch.key() < cursor_) {
      counters_.duplicates.add(1);
    } else if (!apply(batch.key(), batch.mapped(), retry)) {
      return;
    }
  }
}

bool Recovery::gap_left() const {
  return !any_next_ && (!pending_.empty() || (last_live_ && *last_live_ >= cursor_));
}

// The answer begins above the cursor: the publisher has dropped what lies between. A view that was
// built before might hold blocks whose removal was lost, so it is built from the answer alone.
void Recovery::prove_loss(std::uint64_t sequence) {
  while (cursor_ < sequence) {
    std::uint64_t next = sequence;
    if (!pending_.empty()) {
      next = std::min(next, pending_.begin()->first);
    }
    if (cursor_ == 0) {
      counters_.partial_starts.add(1);
      coverage_ = Coverage::Partial;
    } else {
      count_lost(next - cursor_);
      clear_view();
    }
    cursor_ = next;
    anchor_.reset();
    drain(false);
  }
}

void Recovery::count_lost(std::uint64_t batches) {
  batches = std::min(batches, kLargestLoss);
  counters_.lost_batches.add(static_cast<std::int64_t>(batches));
  weights_.lost += batches;
}

// Batches are gone and no replay gives them. A lost removal leaves a block that is not there, until
// a request makes it true or the copy's count is dropped with the view; a dropped view never learns
// the hot blocks again, since an engine does not announce what it keeps. So the view stays until
// the removals that were probably lost make up a good part of it.
void Recovery::lose(std::uint64_t batches, bool clear) {
  count_lost(batches);
  const double per_batch = weights_.batches == 0 ? 0
                                                 : static_cast<double>(weights_.removed) /
                                                       static_cast<double>(weights_.batches);
  const double phantoms = per_batch * static_cast<double>(weights_.lost);
  const double blocks =
      std::max(0.0, static_cast<double>(weights_.stored) - static_cast<double>(weights_.removed));
  anchor_.reset();
  if (clear || phantoms > blocks * kPhantomShare) {
    clear_view();
  } else {
    coverage_ = weights_.batches == 0 ? Coverage::Partial : Coverage::Doubtful;
  }
}

void Recovery::clear_view() {
  counters_.clears.add(1);
  host_.clear();
  weights_ = {};
  anchor_.reset();
  retried_.reset();
  coverage_ = Coverage::Partial;
  synced_ = false;
}

void Recovery::drop_pending() {
  pending_.clear();
  pending_bytes_ = 0;
  last_live_.reset();
}

StaleReason Recovery::reason() const {
  if (phase_ == Phase::Connecting) {
    return connect_overdue_ ? StaleReason::CannotConnect : StaleReason::None;
  }
  if (phase_ == Phase::Disconnected) {
    return StaleReason::Disconnected;
  }
  if (bad_in_row_ >= kBadRun) {
    return bad_reason_;
  }
  if (unstable_) {
    return StaleReason::Unstable;
  }
  if (phase_ == Phase::Live) {
    return doubt_ ? StaleReason::Unconfirmed : StaleReason::None;
  }
  if (buffer_full_) {
    return StaleReason::BufferFull;
  }
  return unanswered_ > 0 ? StaleReason::ReplaySilent : StaleReason::None;
}

ViewState Recovery::state() const {
  if (reason() != StaleReason::None) {
    return ViewState::Stale;
  }
  switch (phase_) {
    case Phase::Connecting: return ViewState::Connecting;
    case Phase::Disconnected: return ViewState::Stale;
    case Phase::Waiting:
    case Phase::Recovering: return ViewState::Replaying;
    case Phase::Live: return any_next_ || cursor_ == 0 ? ViewState::NoEvents : ViewState::Live;
  }
  return ViewState::Stale;
}

bool Recovery::usable() const {
  return reason() == StaleReason::None &&
         (phase_ == Phase::Live ||
          (synced_ && (phase_ == Phase::Waiting || phase_ == Phase::Recovering)));
}

std::optional<std::uint64_t> Recovery::last_sequence() const {
  return any_next_ || cursor_ == 0 ? std::nullopt : std::optional(cursor_ - 1);
}

std::optional<StreamPoint> Recovery::point() const {
  if (!anchor_ || doubt_ || !usable()) {
    return std::nullopt;
  }
  return StreamPoint{.sequence = anchor_->sequence,
                     .fingerprint = anchor_->fingerprint,
                     .coverage = coverage_,
                     .batches = weights_.batches,
                     .stored = weights_.stored,
                     .removed = weights_.removed,
                     .lost = weights_.lost};
}

}  // namespace fairlead::kv
