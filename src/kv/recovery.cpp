#include "kv/recovery.hpp"

#include <algorithm>

namespace fairlead::kv {
namespace {

constexpr int kRestartRun = 3;  // restarts in a row that are no restarts any more

std::chrono::milliseconds doubled(std::chrono::milliseconds first, int times,
                                  std::chrono::milliseconds bound) {
  auto delay = first;
  for (int i = 0; i < times && delay < bound; ++i) {
    delay *= 2;
  }
  return std::min(delay, bound);
}

}  // namespace

Recovery::Recovery(const RecoveryOptions& options, RecoveryHost& host, TimePoint now,
                   const std::optional<StreamPoint>& from)
    : options_(options), host_(host), connect_by_(now + options.connect_timeout) {
  if (from && options.replay) {
    cursor_ = from->sequence + 1;
    anchor_ = {.sequence = from->sequence, .fingerprint = from->fingerprint};
    coverage_ = from->coverage;
    weights_ = {.batches = from->batches,
                .stored = from->stored,
                .removed = from->removed,
                .lost = from->lost};
  }
}

void Recovery::connected(TimePoint now) {
  if (phase_ != Phase::Connecting && phase_ != Phase::Disconnected) {
    disconnected(now);
  }
  const bool first = phase_ == Phase::Connecting;
  connect_overdue_ = false;
  reconnected_ = !first;
  phase_ = Phase::Waiting;
  if (any_next_ || cursor_ == 0) {
    // Nothing is known yet, and what is held may be of a former life.
    drop_pending();
    begin(now);
  } else if (!options_.replay) {
    doubt_ = true;
    phase_ = Phase::Live;
  } else if (!anchor_) {
    clear_view();
    rebuild(now);
  } else {
    doubt_ = true;
    ask(now);
  }
}

void Recovery::disconnected(TimePoint /*now*/) {
  if (phase_ == Phase::Connecting || phase_ == Phase::Disconnected) {
    return;
  }
  cancel_request();
  phase_ = Phase::Disconnected;
  fruitless_ = 0;
  unanswered_ = 0;
}

void Recovery::new_instance(TimePoint now) {
  // Usually the sequence has shown it already; what came since must not be dropped.
  const bool noticed = last_restart_ && now - *last_restart_ < options_.restart_memory;
  if (phase_ != Phase::Connecting && !noticed) {
    restart(now);
  }
}

// Without replay: whatever comes next begins the view. Otherwise: everything from 0 on.
void Recovery::begin(TimePoint now) {
  cursor_ = 0;
  doubt_ = false;
  if (!options_.replay) {
    any_next_ = true;
    coverage_ = Coverage::Partial;
    phase_ = Phase::Live;
    return;
  }
  any_next_ = false;
  want_history_ = false;
  coverage_ = Coverage::Complete;
  ask(now);
}

void Recovery::live(std::uint64_t sequence, std::string_view payload, TimePoint now) {
  if (sequence == kEndMarker) {
    malformed();
    return;
  }
  if (phase_ == Phase::Connecting) {
    connected(now);
  }
  if (last_live_ && sequence <= *last_live_) {
    restart(now);
  }
  last_live_ = sequence;
  if (phase_ == Phase::Live || (phase_ == Phase::Disconnected && !options_.replay)) {
    live_in_order(sequence, payload, now);
  } else if (sequence < cursor_) {
    counters_.duplicates.add(1);
  } else {
    hold(sequence, payload, true);
    if (!doubt_ && phase_ != Phase::Disconnected) {
      drain(true);
    }
  }
}

void Recovery::live_in_order(std::uint64_t sequence, std::string_view payload, TimePoint now) {
  if (any_next_) {
    any_next_ = false;
    cursor_ = sequence;
    coverage_ = sequence == 0 ? Coverage::Complete : Coverage::Partial;
  }
  if (sequence < cursor_) {
    // A replay may have given it before. If that goes on, the replay was of another publisher: the
    // check that is due then shows it.
    counters_.duplicates.add(1);
    return;
  }
  check_at_ = now + options_.settle_check;
  if (sequence > cursor_) {
    counters_.gaps.add(1);
    host_.gap_detected(cursor_, sequence);
    if (options_.replay) {
      hold(sequence, payload, true);
      phase_ = Phase::Recovering;
      if (!request_) {
        ask(now);
      }
      return;
    }
    lose(sequence - cursor_, doubt_);
    cursor_ = sequence;
  }
  doubt_ = false;
  if (!apply(sequence, payload, true)) {
    phase_ = Phase::Recovering;
    if (!request_) {
      ask(now);
    }
  }
}

void Recovery::replayed(std::uint64_t sequence, std::string_view payload, TimePoint now) {
  const bool end = sequence == kEndMarker;
  if (!request_ || end != payload.empty()) {
    malformed();
    return;
  }
  if (end) {
    replay_ended(now);
    return;
  }
  request_->deadline = now + (request_->holes ? options_.hole_timeout : options_.replay_timeout);
  if (request_->anchor && !confirm(sequence, payload, now)) {
    return;
  }
  if (any_next_) {
    any_next_ = false;
    want_history_ = false;
    coverage_ = Coverage::Complete;
  }
  if (sequence < cursor_) {
    request_->first = false;
    counters_.duplicates.add(1);
    return;
  }
  if (sequence > cursor_ && request_->first) {
    prove_loss(sequence);
  }
  request_->first = false;
  if (sequence > cursor_) {
    // The publisher's queue to us was full; what is missing is still to be had.
    request_->holes = true;
    request_->deadline = now + options_.hole_timeout;
    hold(sequence, payload, false);
    return;
  }
  request_->progress = true;
  if (sequence == cursor_) {
    apply(sequence, payload, false);
  }
  drain(true);
}

// The answer must begin with the last known batch. True when `sequence` is to be looked at further.
bool Recovery::confirm(std::uint64_t sequence, std::string_view payload, TimePoint now) {
  const Anchor anchor = *request_->anchor;
  if (sequence < anchor.sequence) {
    return false;
  }
  if (sequence == anchor.sequence) {
    if (anchor_of(sequence, payload) != anchor) {
      restart(now);
      return false;
    }
    request_->anchor.reset();
    request_->first = false;
    doubt_ = false;
    drain(true);
    return false;
  }
  request_->anchor.reset();
  if (doubt_) {
    // The publisher has moved on beyond what it keeps. Whether it is the same one cannot be known,
    // but its buffer begins here.
    doubt_ = false;
    drop_pending();
    if (sequence > cursor_) {
      count_lost(sequence - cursor_);
    }
    clear_view();
    cursor_ = sequence;
  }
  return true;
}

void Recovery::replay_ended(TimePoint now) {
  const Request request = *request_;
  request_.reset();
  unanswered_ = 0;
  replay_dead_ = false;
  if (request.anchor) {
    // It does not even have the last batch we know: its sequence began anew.
    restart(now);
    return;
  }
  if (any_next_) {
    any_next_ = false;
    want_history_ = false;
    coverage_ = Coverage::Complete;
  }
  if (want_history_) {
    want_history_ = false;
    clear_view();
    rebuild(now);
    return;
  }
  drain(true);
  settle(now, request.progress);
}

void Recovery::settle(TimePoint now, bool progress) {
  if (!gap_left()) {
    const bool idle = phase_ == Phase::Live && !progress;
    go_live(now, idle ? options_.idle_check : options_.settle_check);
  } else if (progress) {
    fruitless_ = 0;
    phase_ = Phase::Recovering;
    ask(now);
  } else if (++fruitless_ >= options_.attempts) {
    give_up(now);
  } else {
    wait(now, fruitless_);
  }
}

void Recovery::restart(TimePoint now) {
  counters_.restarts.add(1);
  clear_view();
  // An engine may well crash again and again, but then its connection breaks in between.
  const bool row = last_restart_ && !reconnected_ && now - *last_restart_ < options_.restart_memory;
  restart_run_ = row ? restart_run_ + 1 : 1;
  reconnected_ = false;
  last_restart_ = now;
  unstable_ = restart_run_ >= kRestartRun;
  rebuild(now);
}

// Begins anew after the view was cleared.
void Recovery::rebuild(TimePoint now) {
  cancel_request();
  drop_pending();
  cursor_ = 0;
  any_next_ = false;
  want_history_ = false;
  fruitless_ = 0;
  unanswered_ = 0;
  bad_in_row_ = 0;
  buffer_full_ = false;
  if (phase_ == Phase::Disconnected) {
    doubt_ = false;
    any_next_ = !options_.replay;
  } else if (options_.replay && unstable_) {
    doubt_ = false;
    coverage_ = Coverage::Complete;
    wait(now, restart_run_);
  } else {
    phase_ = Phase::Waiting;
    begin(now);
  }
}

void Recovery::ask(TimePoint now) {
  // In doubt and in checks, and when an answer contradicted the stream, first of all whether the
  // publisher is the one we know.
  const bool confirm = doubt_ || phase_ == Phase::Live || fruitless_ > 0;
  Request request;
  request.cursor = cursor_;
  request.deadline = now + options_.replay_timeout;
  std::uint64_t start = cursor_;
  if (confirm && anchor_) {
    request.anchor = anchor_;
    start = anchor_->sequence;
  }
  if (phase_ != Phase::Live) {
    phase_ = Phase::Recovering;
  }
  counters_.replays.add(1);
  if (host_.request_replay(start)) {
    request_ = request;
  } else {
    unanswered(now);
  }
}

void Recovery::unanswered(TimePoint now) {
  counters_.replay_timeouts.add(1);
  ++unanswered_;
  if (phase_ == Phase::Live) {
    check_at_ = now + doubled(options_.idle_check, unanswered_, options_.max_idle_check);
  } else if (unanswered_ >= (replay_dead_ ? 1 : options_.attempts)) {
    replay_dead_ = true;
    give_up(now);
  } else {
    wait(now, unanswered_);
  }
}

void Recovery::wait(TimePoint now, int failures) {
  phase_ = Phase::Waiting;
  retry_at_ = now + doubled(options_.first_backoff, failures - 1, options_.max_backoff);
}

// Goes on without what no replay gave.
void Recovery::give_up(TimePoint now) {
  counters_.given_up.add(1);
  if (cursor_ == 0) {
    want_history_ = true;
    coverage_ = Coverage::Partial;
    any_next_ = pending_.empty();
    if (!any_next_) {
      cursor_ = pending_.begin()->first;
    }
  }
  while (gap_left()) {
    const std::uint64_t next = pending_.empty() ? *last_live_ + 1 : pending_.begin()->first;
    if (next > cursor_) {
      lose(next - cursor_, doubt_);
      cursor_ = next;
    }
    doubt_ = false;
    drain(false);
  }
  go_live(now, doubled(options_.idle_check, unanswered_, options_.max_idle_check));
}

void Recovery::go_live(TimePoint now, std::chrono::milliseconds next_check) {
  phase_ = Phase::Live;
  fruitless_ = 0;
  buffer_full_ = false;
  synced_ = true;
  check_at_ = now + next_check;
}

void Recovery::cancel_request() {
  if (request_) {
    request_.reset();
    host_.abandon_replay();
  }
}

void Recovery::tick(TimePoint now) {
  if (unstable_ && now - *last_restart_ >= options_.restart_memory) {
    unstable_ = false;
    restart_run_ = 0;
  }
  if (phase_ == Phase::Connecting) {
    connect_overdue_ = connect_overdue_ || now >= connect_by_;
  } else if (request_) {
    if (now >= request_->deadline) {
      const bool progress = request_->progress;
      cancel_request();
      if (progress) {
        ask(now);
      } else {
        unanswered(now);
      }
    }
  } else if ((phase_ == Phase::Waiting && now >= retry_at_) ||
             (phase_ == Phase::Live && options_.replay && now >= check_at_)) {
    ask(now);
  }
}

Recovery::TimePoint Recovery::deadline() const {
  if (phase_ == Phase::Connecting) {
    return connect_overdue_ ? TimePoint::max() : connect_by_;
  }
  if (request_) {
    return request_->deadline;
  }
  if (phase_ == Phase::Waiting) {
    return retry_at_;
  }
  const TimePoint check = phase_ == Phase::Live && options_.replay ? check_at_ : TimePoint::max();
  return unstable_ ? std::min(check, *last_restart_ + options_.restart_memory) : check;
}

}  // namespace fairlead::kv
