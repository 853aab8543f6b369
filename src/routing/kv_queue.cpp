#include <algorithm>
#include <utility>

#include "routing/kv_table.hpp"
#include "routing/kv_waiter.hpp"
#include "routing/router.hpp"

// The part of KvTable that lets requests wait while all workers are busy with prompts.

namespace fairlead::routing {

KvWaiter::~KvWaiter() {
  if (table_) {
    table_->leave(*this);
  }
}

void KvTable::open_queue(std::string_view model, std::shared_ptr<const PolicyProfile> profile,
                         std::size_t limit) {
  const std::lock_guard lock(mutex_);
  if (!queue_) {
    queue_model_ = model;
    waited_.resize(profile->classes().size());
    queue_ =
        std::make_unique<AdmissionQueue>(std::move(profile), limit, AdmissionQueue::Clock::now());
  }
}

// Targets a request may go to, and how many of them are busy for its class.
KvTable::Room KvTable::room_for(const PolicyClass& policy_class, const auto& admitted) const {
  Room room;
  for (const KvLoads::Target& target : loads_.targets()) {
    if (!target.routable || target.overloaded || !admitted(target)) {
      continue;
    }
    ++room.eligible;
    const fleet::Worker& worker = *loads_.places()[target.slot].worker;
    room.busy += target_busy(policy_class, target.prefill_tokens, worker.info.max_batched_tokens);
  }
  return room;
}

QueueDemand KvTable::demand_of(const KvWaiter& waiter, const PromptShape& shape) const {
  std::uint32_t blocks = 0;
  for (std::size_t i = 0; i < touched_count_; ++i) {
    const KvLoads::Target& target = loads_.targets()[touched_[i]];
    if (target.routable && (!waiter.worker_id_ || *waiter.worker_id_ == target.worker_id)) {
      blocks = std::max(blocks, known_[touched_[i]].cached.total());
    }
  }
  QueueDemand demand{.prompt_tokens = shape.tokens,
                     .cached_tokens = std::min(shape.tokens, blocks * shape.block_size),
                     .priority = waiter.hints_.priority,
                     .strict_priority = waiter.hints_.strict_priority};
  demand.policy_class =
      queue_->profile()->classify(waiter.hints_.policy_class, demand.uncached_tokens());
  return demand;
}

// True when the request waits now; under mutex_, after `learn`.
Result<bool> KvTable::has_to_wait(const PromptShape& shape, const RouteRequest& request,
                                  const KvRoute& route, KvWaiter& waiter) {
  const bool tried = waiter.state() == QueueEntry::State::Trying;
  waiter.worker_id_ =
      route.preferred ? std::optional(route.preferred->worker_id) : request.worker_id;
  if (!tried) {
    waiter.required_taints_.assign(request.required_taints.begin(), request.required_taints.end());
  }
  const QueueDemand demand = tried ? waiter.demand() : demand_of(waiter, shape);
  const PolicyClass& policy_class = queue_->profile()->classes()[demand.policy_class];
  std::vector<bool> adapter;
  if (!request.adapter.empty()) {
    adapter = loads_.with_adapter(request.adapter);
  }
  const Room room = room_for(policy_class, [&](const KvLoads::Target& target) {
    return (!waiter.worker_id_ || *waiter.worker_id_ == target.worker_id) &&
           admits(request, route, adapter.empty() ? nullptr : &adapter, target);
  });
  const bool behind = !tried && policy_class.queues() && queue_->backlog(demand.policy_class);
  if (room.eligible == 0 || (!behind && !pool_busy(policy_class, room.busy, room.eligible))) {
    return false;
  }
  if (tried) {
    queue_->give_back(waiter);
    if (std::exchange(missed_, false)) {
      let_go();
    }
    return true;
  }
  const std::size_t workers = static_cast<std::size_t>(std::ranges::count_if(
      loads_.places(), [](const KvLoads::Place& place) { return place.worker != nullptr; }));
  if (Result<> added = queue_->add(waiter, demand, waiter.arrival_, workers); !added) {
    return std::unexpected(std::move(added.error()));
  }
  waiter.queued_at_ = AdmissionQueue::Clock::now();
  waiter.table_ = shared_from_this();
  return true;
}

// Lets the request whose turn it is choose again, one at a time: the next one goes when that one is
// booked or gone. Under mutex_, whenever there may be room.
void KvTable::let_go() {
  if (!queue_ || queue_->size() == 0) {
    return;
  }
  if (queue_->trying() > 0) {
    missed_ = true;
    return;
  }
  QueueEntry* const entry = queue_->next([this](const QueueEntry& first) {
    const auto& waiter = static_cast<const KvWaiter&>(first);
    const PolicyClass& policy_class = queue_->profile()->classes()[first.demand().policy_class];
    const Room room = room_for(policy_class, [&](const KvLoads::Target& target) {
      return (!waiter.worker_id_ || *waiter.worker_id_ == target.worker_id) &&
             loads_.places()[target.slot].worker->has_taints(waiter.required_taints_);
    });
    return !pool_busy(policy_class, room.busy, room.eligible);
  });
  if (entry) {
    static_cast<KvWaiter*>(entry)->wake_();
  }
}

// The waiter needs its place no more: it was booked, or refused for another reason.
void KvTable::served(KvWaiter& waiter, bool booked) {
  if (waiter.state() == QueueEntry::State::Out) {
    return;
  }
  const std::chrono::duration<double> waited = AdmissionQueue::Clock::now() - waiter.queued_at_;
  waited_[waiter.demand().policy_class].add(waited.count());
  booked ? queue_->done(waiter) : queue_->remove(waiter);
  let_go();
}

// A request that waited for another worker set gives its place there up.
void KvTable::leave_other(KvWaiter& waiter) const {
  if (waiter.table_ && waiter.table_.get() != this) {
    std::exchange(waiter.table_, nullptr)->leave(waiter);
  }
}

void KvTable::dissolve() {
  const std::lock_guard lock(mutex_);
  while (QueueEntry* const entry = queue_ ? queue_->next() : nullptr) {
    static_cast<KvWaiter*>(entry)->wake_();
  }
}

void KvTable::leave(KvWaiter& waiter) {
  const std::lock_guard lock(mutex_);
  served(waiter, false);
}

QueueStats KvTable::queue_stats() const {
  const std::lock_guard lock(mutex_);
  QueueStats out;
  if (queue_) {
    out.model = queue_model_;
    out.profile = queue_->profile();
    for (std::size_t i = 0; i < waited_.size(); ++i) {
      const AdmissionQueue::Load& load = queue_->load(i);
      out.classes.push_back({.waiting = load.requests,
                             .queued = load.added,
                             .refused = load.refused,
                             .waited = waited_[i]});
    }
  }
  return out;
}

}  // namespace fairlead::routing
