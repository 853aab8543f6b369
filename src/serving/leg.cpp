#include "serving/leg.hpp"

#include <algorithm>
#include <utility>

namespace fairlead::serving {

Leg::Leg(BookedWorker booked, engine::TokenSink& to) : booked_(std::move(booked)), to_(&to) {}

Leg::~Leg() = default;

Result<> Leg::start(Service& service, const engine::GenerateRequest& request,
                    std::string_view session) {
  started_at_ = net::Reactor::current()->now();
  auto sent = dispatch(service, worker(), request, *this);
  if (!sent) {
    return std::unexpected(std::move(sent.error()));
  }
  client_ = std::move(sent->client);
  stream_ = std::move(sent->stream);
  activity_ = std::move(sent->activity);
  if (const routing::KvDecision* decision = booked_.reservation.decision()) {
    booked_.session = SessionHold(service.sessions(), session, decision->target);
  }
  return {};
}

void Leg::pause() {
  if (stream_) {
    stream_->pause();
  }
}

void Leg::resume() {
  if (stream_) {
    stream_->resume();
  }
}

void Leg::detach(std::move_only_function<void()> freed) {
  to_ = nullptr;
  freed_ = std::move(freed);
  resume();
}

void Leg::told_free() {
  if (auto freed = std::exchange(freed_, {})) {
    freed();
  }
}

void Leg::on_prompt(const engine::PromptInfo& info) {
  activity_.progress(net::Reactor::current()->now());
  if (to_) {
    to_->on_prompt(info);
  }
}

void Leg::on_tokens(const engine::TokenChunk& chunk) {
  activity_.progress(net::Reactor::current()->now());
  if (!chunk.ids.empty()) {
    tokens_seen_ = true;
    booked_.reservation.prefill_complete();
    booked_.reservation.add_output_tokens(static_cast<std::uint32_t>(chunk.ids.size()));
  }
  ended_ |= chunk.finish != nullptr;
  if (to_) {
    to_->on_tokens(chunk);
  } else if (tokens_seen_ || ended_) {
    told_free();
  }
}

bool Leg::on_unfinished(std::size_t bytes) { return !to_ || to_->on_unfinished(bytes); }

void Leg::on_error(Error error) {
  ended_ = true;
  if (to_) {
    to_->on_error(std::move(error));
  } else {
    told_free();
  }
}

PendingReleases::PendingReleases(net::Duration limit)
    : limit_(limit), timer_([this] { sweep(); }) {}

void PendingReleases::keep(std::unique_ptr<Leg> leg, observe::ModelShard& shard,
                           net::TimePoint deadline, observe::ReleaseOutcome then) {
  if (deadline <= net::Reactor::current()->now()) {
    shard.releases[static_cast<std::size_t>(then)].add(1);
    return;
  }
  if (entries_.size() >= kMax) {
    release(0, observe::ReleaseOutcome::Timeout);
  }
  leg->detach([this, raw = leg.get()] { freed(raw); });
  shard.releases_pending.add(1);
  entries_.push_back({.leg = std::move(leg), .shard = &shard, .deadline = deadline, .then = then});
  arm();
}

void PendingReleases::arm() {
  if (!entries_.empty()) {
    timer_.arm_at(std::ranges::min_element(entries_, {}, &Entry::deadline)->deadline);
  }
}

// On the leg's own stack when it was told.
void PendingReleases::release(std::size_t at, observe::ReleaseOutcome outcome) {
  Entry& entry = entries_[at];
  entry.shard->releases_pending.add(-1);
  entry.shard->releases[static_cast<std::size_t>(outcome)].add(1);
  net::Reactor::current()->destroy_later(std::move(entry.leg));
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(at));
}

void PendingReleases::freed(const Leg* leg) {
  const auto found =
      std::ranges::find_if(entries_, [&](const Entry& entry) { return entry.leg.get() == leg; });
  if (found != entries_.end()) {
    release(static_cast<std::size_t>(found - entries_.begin()),
            observe::ReleaseOutcome::Transferred);
  }
}

void PendingReleases::sweep() {
  const net::TimePoint now = net::Reactor::current()->now();
  for (std::size_t i = entries_.size(); i-- > 0;) {
    if (entries_[i].deadline <= now) {
      release(i, entries_[i].then);
    }
  }
  arm();
}

}  // namespace fairlead::serving
