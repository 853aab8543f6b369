#include "routing/session_affinity.hpp"

namespace fairlead::routing {
namespace {

constexpr std::size_t kMaxSessionBytes = 256;

}  // namespace

void SessionAffinity::erase(Bindings::iterator binding) {
  by_session_.erase(binding->session);
  (binding->running > 0 ? held_ : idle_).erase(binding);
}

void SessionAffinity::expire(Clock::time_point now) {
  while (!idle_.empty() && now - idle_.front().idle_since >= ttl_) {
    erase(idle_.begin());
  }
}

std::optional<TargetRef> SessionAffinity::find(std::string_view session, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  expire(now);
  const auto found = by_session_.find(session);
  return found == by_session_.end() || found->second->dropped
             ? std::nullopt
             : std::optional(found->second->target);
}

bool SessionAffinity::begin(std::string_view session, TargetRef target, Clock::time_point now) {
  if (session.empty() || session.size() > kMaxSessionBytes) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  expire(now);
  if (const auto found = by_session_.find(session); found != by_session_.end()) {
    Binding& binding = *found->second;
    if (binding.dropped) {
      binding.target = target;
      binding.dropped = false;
    }
    if (binding.running++ == 0) {
      held_.splice(held_.end(), idle_, found->second);
    }
    return true;
  }
  if (by_session_.size() >= capacity_) {
    if (idle_.empty()) {
      return false;
    }
    erase(idle_.begin());
  }
  held_.push_back({.session = std::string(session), .target = target, .running = 1});
  by_session_.emplace(held_.back().session, std::prev(held_.end()));
  return true;
}

void SessionAffinity::end(std::string_view session, bool failed, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const auto found = by_session_.find(session);
  if (found == by_session_.end() || found->second->running == 0) {
    return;
  }
  const auto binding = found->second;
  binding->dropped |= failed;
  if (--binding->running > 0) {
    return;
  }
  binding->idle_since = now;
  idle_.splice(idle_.end(), held_, binding);
  if (binding->dropped) {
    erase(binding);
  }
}

void SessionAffinity::forget_worker(std::uint64_t worker_id) {
  const std::lock_guard lock(mutex_);
  for (auto binding = idle_.begin(); binding != idle_.end();) {
    const auto next = std::next(binding);
    if (binding->target.worker_id == worker_id) {
      erase(binding);
    }
    binding = next;
  }
  for (Binding& binding : held_) {
    binding.dropped |= binding.target.worker_id == worker_id;
  }
}

std::size_t SessionAffinity::size() const {
  const std::lock_guard lock(mutex_);
  return by_session_.size();
}

}  // namespace fairlead::routing
