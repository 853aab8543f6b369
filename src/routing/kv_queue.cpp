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

// Who may take it, for those who ask while it sleeps.
void KvWaiter::note(const RouteRequest& request, const KvRoute& route) {
  worker_id_ = request.worker_id;
  rank_ = request.rank;
  bound_ = route.preferred;
  adapter_ = request.adapter;
  excluded_.assign(request.excluded.begin(), request.excluded.end());
  required_taints_.assign(request.required_taints.begin(), request.required_taints.end());
  allowed_.assign(route.allowed.begin(), route.allowed.end());
}

void KvTable::open_queue(std::string_view model, std::shared_ptr<const PolicyProfile> profile,
                         std::size_t limit) {
  const std::lock_guard lock(mutex_);
  if (!queue_) {
    queue_model_ = model;
    waited_.resize(profile->classes().size());
    queued_.resize(profile->classes().size());
    queue_ =
        std::make_unique<AdmissionQueue>(std::move(profile), limit, AdmissionQueue::Clock::now());
  }
}

// Calls `each(index)` for the targets that a request may go to as things are: where its session is
// bound, or all that `pick` would weigh when that is not to be had.
void KvTable::visit_eligible(const RouteRequest& request, const KvRoute& route, const auto& each) {
  if (route.preferred) {
    if (const auto bound = preferred(request, route)) {
      each(*bound);
      return;
    }
  }
  const std::vector<bool>* adapter =
      request.adapter.empty() ? nullptr : &loads_.with_adapter(request.adapter);
  const auto targets = loads_.targets();
  for (TargetIndex index = 0; index < targets.size(); ++index) {
    const KvLoads::Target& target = targets[index];
    if (!target.overloaded && (!request.worker_id || *request.worker_id == target.worker_id) &&
        admits(request, route, adapter, target)) {
      each(index);
    }
  }
}

QueueDemand KvTable::demand_of(const KvWaiter& waiter, const RouteRequest& request,
                               const KvRoute& route, const PromptShape& shape) {
  std::uint32_t blocks = 0;
  if (touched_count_ > 0) {
    visit_eligible(request, route, [&](TargetIndex index) {
      const Known& known = known_[index];
      blocks = std::max(blocks, known.stamp == stamp_ ? known.cached.total() : 0);
    });
  }
  QueueDemand demand{.prompt_tokens = shape.tokens,
                     .cached_tokens = std::min(shape.tokens, blocks * shape.block_size),
                     .priority = waiter.hints_.priority,
                     .strict_priority = waiter.hints_.strict_priority};
  demand.policy_class =
      queue_->profile()->classify(waiter.hints_.policy_class, demand.uncached_tokens());
  return demand;
}

// Of the targets it may go to, how many there are and how many are busy for its class.
KvTable::Room KvTable::room_for(const PolicyClass& policy_class, const RouteRequest& request,
                                const KvRoute& route) {
  Room room;
  visit_eligible(request, route, [&](TargetIndex index) {
    const KvLoads::Target& target = loads_.targets()[index];
    const fleet::Worker& worker = *loads_.places()[target.slot].worker;
    ++room.eligible;
    room.busy += target_busy(policy_class, target.prefill_tokens, worker.info.max_batched_tokens);
  });
  return room;
}

// Whether a request that waits may go now: what `has_to_wait` will say of it if nothing changes.
bool KvTable::may_go(const KvWaiter& waiter) {
  const PolicyClass& policy_class = queue_->profile()->classes()[waiter.demand().policy_class];
  const Room room =
      room_for(policy_class,
               {.worker_id = waiter.worker_id_,
                .excluded = waiter.excluded_,
                .adapter = waiter.adapter_,
                .required_taints = waiter.required_taints_,
                .rank = waiter.rank_},
               {.expected_output = {}, .preferred = waiter.bound_, .allowed = waiter.allowed_});
  return !pool_busy(policy_class, room.busy, room.eligible);
}

// True when the request waits now; under mutex_, after `learn`.
Result<bool> KvTable::has_to_wait(const PromptShape& shape, const RouteRequest& request,
                                  const KvRoute& route, KvWaiter& waiter) {
  waiter.note(request, route);
  if (waiter.state() == QueueEntry::State::Trying) {
    if (may_go(waiter)) {
      return false;
    }
    queue_->give_back(waiter);
    let_go();  // it is not asked for this one again: may_go has said so
    return true;
  }
  const QueueDemand demand = demand_of(waiter, request, route, shape);
  const PolicyClass& policy_class = queue_->profile()->classes()[demand.policy_class];
  const Room room = room_for(policy_class, request, route);
  const bool behind = policy_class.queues() && queue_->backlog(demand.policy_class);
  if (room.eligible == 0 || (!behind && !pool_busy(policy_class, room.busy, room.eligible))) {
    return false;
  }
  const std::size_t workers = static_cast<std::size_t>(std::ranges::count_if(
      loads_.places(), [](const KvLoads::Place& place) { return place.worker != nullptr; }));
  if (Result<> added = queue_->add(waiter, demand, waiter.arrival_, workers); !added) {
    return std::unexpected(std::move(added.error()));
  }
  queued_[demand.policy_class] += std::exchange(waiter.counted_, true) ? 0 : 1;
  waiter.queued_at_ = AdmissionQueue::Clock::now();
  waiter.table_ = shared_from_this();
  return true;
}

// Lets the request whose turn it is choose again, one at a time: the next one goes when that one is
// booked, gone or back in its place. Under mutex_, whenever there may be room.
void KvTable::let_go() {
  if (!queue_ || queue_->size() == 0 || queue_->trying() > 0) {
    return;
  }
  QueueEntry* const entry = queue_->next(
      [this](const QueueEntry& first) { return may_go(static_cast<const KvWaiter&>(first)); });
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
                             .queued = queued_[i],
                             .refused = load.refused,
                             .waited = waited_[i]});
    }
  }
  return out;
}

}  // namespace fairlead::routing
