#include "routing/kv_views.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/log.hpp"
#include "routing/kv_views_state.hpp"

namespace fairlead::routing {
namespace {

// How prompts are hashed is not changed again before.
constexpr std::chrono::seconds kCutPause{60};

// True when the index says nothing false of a target.
bool is_live(TargetState state) {
  return state != TargetState::Connecting && state != TargetState::Stale &&
         state != TargetState::Distrusted;
}

}  // namespace

KvViews::KvViews(const KvViewOptions& options, OnChange on_change)
    : options_(options), on_change_(std::move(on_change)), former_(std::make_unique<Totals>()) {}

KvViews::~KvViews() = default;

void KvViews::update(std::shared_ptr<const fleet::Fleet> fleet, TimePoint now) {
  fleet_ = std::move(fleet);
  bool changed = false;
  {
    const std::lock_guard lock(mutex_);
    std::map<std::uint64_t, const fleet::WorkerSet*> sets;
    for (const auto& model : fleet_->models) {
      for (const auto& set : model->worker_sets) {
        sets.emplace(set->id, set.get());
      }
    }
    for (auto it = sets_.begin(); it != sets_.end();) {
      const bool known = sets.contains(it->first);
      if (!known) {
        drop_targets(*it->second, nullptr);
        changed = true;
      }
      it = known ? std::next(it) : sets_.erase(it);
    }
    std::erase_if(blockless_, [&](std::uint64_t id) { return !sets.contains(id); });
    for (const auto& [id, set] : sets) {
      changed |= follow_set(*set, now);
    }
  }
  if (changed) {
    publish();
  }
}

void KvViews::tick(TimePoint now) {
  bool changed = false;
  bool cut_anew = false;
  {
    const std::lock_guard lock(mutex_);
    if (now >= offered_until_) {
      offered_.clear();
    }
    for (const auto& [id, set] : sets_) {
      changed |= refresh(*set, now);
      if (set->learns()) {
        learn_block_size(*set, id);
      }
      cut_anew |=
          set->bigram != set->caches->params.bigram || (set->learns() && set->block_size != 0);
      set->caches->routed.expire(now);
      set->caches->predicted.expire(now);
    }
  }
  if (fleet_ && (cut_anew || now >= retry_at_)) {
    retry_at_ = TimePoint::max();
    update(fleet_, now);
  } else if (changed) {
    publish();
  }
}

// What the first events say that came. Where others say something else these are dropped later,
// with a warning.
void KvViews::learn_block_size(Set& set, std::uint64_t id) {
  for (const auto& target : set.targets) {
    const std::uint32_t learned =
        target->subscription ? target->subscription->normalizer().learned_block_size() : 0;
    if (learned != 0) {
      set.block_size = learned;
      log::info("the KV blocks of worker set {} have {} tokens, as the events of worker_{} say", id,
                learned, target->place.worker_id);
      return;
    }
  }
}

// Tokens per block as an option or the first worker says that knows; 0 = nobody does.
std::uint32_t KvViews::told_block_size(const fleet::WorkerSet& set) const {
  std::uint32_t size = options_.block_size;
  for (const auto& worker : set.workers) {
    size = size == 0 ? worker->info.kv_block_size : size;
  }
  return size;
}

// How the prompts of a set are cut: as it is told, else as the first events say.
kv::HashParams KvViews::params_of(const fleet::WorkerSet& set, const Set* known) const {
  kv::HashParams params{.block_size = told_block_size(set), .bigram = known && known->bigram};
  if (params.block_size == 0 && known) {
    params.block_size = known->block_size;
  }
  for (const auto& worker : set.workers) {
    const auto offered = offered_.lower_bound({worker->id, 0});
    params.bigram |= !known && offered != offered_.end() && offered->first.first == worker->id &&
                     offered->second.bigram;
  }
  return params;
}

bool KvViews::follow_set(const fleet::WorkerSet& set, TimePoint now) {
  auto known = sets_.find(set.id);
  const kv::HashParams params =
      params_of(set, known == sets_.end() ? nullptr : known->second.get());
  bool changed = false;
  const bool anew = known != sets_.end() && known->second->caches->params != params;
  const bool rehashed = anew && known->second->caches->params.bigram != params.bigram;
  if (anew) {
    drop_targets(*known->second, nullptr);
    sets_.erase(known);
    known = sets_.end();
    changed = true;
  }
  if (params.block_size == 0) {
    const bool events = options_.events && std::ranges::any_of(set.workers, [](const auto& worker) {
                          return !worker->info.kv_event_sources.empty();
                        });
    if (set.healthy() > 0 && blockless_.insert(set.id).second) {
      log::warn(
          "the engines of worker set {} do not tell the size of their KV blocks: load alone "
          "decides{}; --kv-cache-block-size names it",
          set.id, events ? " until their first event tells it" : "");
    }
    if (!events) {
      return changed;
    }
  }
  if (known == sets_.end()) {
    auto made = std::make_unique<Set>();
    made->bigram = params.bigram;
    made->block_size = told_block_size(set) == 0 ? params.block_size : 0;
    if (rehashed) {
      made->cut_again_at = now + kCutPause;
    }
    made->caches = std::make_shared<KvCaches>(
        params, kv::IndexOptions{.max_bytes = options_.index_bytes, .max_targets = kMostTargets},
        kv::ApproximateIndexOptions{.ttl = options_.approximate_ttl,
                                    .max_blocks = options_.approximate_blocks},
        kv::ApproximateIndexOptions{.ttl = options_.predicted_ttl,
                                    .max_blocks = options_.approximate_blocks});
    known = sets_.emplace(set.id, std::move(made)).first;
    changed = true;
  }
  Set& own = *known->second;
  changed |= drop_targets(own, &set);
  for (const auto& worker : set.workers) {
    changed |= follow_worker(own, *worker, now);
  }
  if (changed) {
    own.view.reset();  // targets came, went or moved
  }
  return refresh(own, now);
}

// Drops the targets that `workers` has no rank for, or all.
bool KvViews::drop_targets(Set& set, const fleet::WorkerSet* workers) {
  std::map<std::uint64_t, const fleet::Worker*> present;
  if (workers) {
    for (const auto& worker : workers->workers) {
      present.emplace(worker->id, worker.get());
    }
  }
  return std::erase_if(set.targets, [&](const std::unique_ptr<Target>& target) {
           const auto found = present.find(target->place.worker_id);
           if (found != present.end() && found->second->has_rank(target->place.rank)) {
             return false;
           }
           drop_source(set, *target);
           set.caches->index.remove_target(target->id);
           set.caches->routed.remove_target(target->id);
           set.caches->predicted.remove_target(target->id);
           set.caches->truth.forget(target->id);
           return true;
         }) > 0;
}

bool KvViews::follow_worker(Set& set, const fleet::Worker& worker, TimePoint now) {
  bool changed = false;
  for (std::uint32_t i = 0; i < worker.info.data_parallel_size; ++i) {
    const std::uint32_t rank = worker.info.data_parallel_start + i;
    const auto key = std::tuple(worker.id, rank);
    const auto at = std::ranges::lower_bound(set.targets, key, {}, kKeyOf);
    if (at != set.targets.end() && kKeyOf(*at) == key) {
      Target& target = **at;
      changed |=
          std::exchange(target.place.slot, static_cast<std::uint32_t>(worker.slot)) != worker.slot;
      follow_source(set, target, worker, now);
      continue;
    }
    const auto id = set.caches->index.add_target();
    if (!id) {
      if (!std::exchange(set.warned_full, true)) {
        log::warn("more than {} ranks in one worker set: the others are chosen by load alone",
                  kMostTargets);
      }
      return changed;
    }
    auto made = std::make_unique<Target>();
    made->id = *id;
    made->place = {.worker_id = worker.id,
                   .slot = static_cast<std::uint32_t>(worker.slot),
                   .rank = rank,
                   .live = true};
    Target& target = **set.targets.insert(at, std::move(made));
    follow_source(set, target, worker, now);
    changed = true;
  }
  return changed;
}

bool KvViews::Set::most_use_bigrams() const {
  std::ptrdiff_t more = 0;
  for (const auto& target : targets) {
    if (!target->subscription) {
      continue;
    }
    if (const auto pairs = target->subscription->normalizer().bigram()) {
      more += *pairs ? 1 : -1;
    }
  }
  return more == 0 ? caches->params.bigram : more > 0;
}

std::shared_ptr<const KvSetView> KvViews::Set::make_view() const {
  auto made = std::make_shared<KvSetView>();
  made->caches = caches;
  for (const auto& target : targets) {
    const std::size_t id = target->id;
    if (made->places.size() <= id) {
      made->places.resize(id + 1);
      made->states.resize(id + 1, TargetState::Approximate);
      made->checkpoints.resize(id + 1);
    }
    made->places[id] = target->place;
    made->states[id] = target->state;
    made->checkpoints[id] = target->subscription ? target->subscription->checkpoints() : nullptr;
    made->by_ref.push_back(target->id);
    made->degraded |= !target->place.live;
  }
  return made;
}

// Brings the set's view up to date; true when it changed.
bool KvViews::refresh(Set& set, TimePoint now) {
  bool changed = !set.view;
  if (now >= set.cut_again_at) {
    set.bigram = set.most_use_bigrams();
  }
  for (const auto& target : set.targets) {
    const TargetState state = state_of(set, *target, now);
    if (state == std::exchange(target->state, state)) {
      continue;
    }
    changed = true;
    target->place.live = is_live(state);
    if (state == TargetState::Live) {
      set.caches->routed.remove_target(target->id);  // its events know better
    }
  }
  if (changed) {
    set.view = set.make_view();
  }
  return changed;
}

void KvViews::publish() {
  auto views = std::make_shared<KvViewMap>();
  for (const auto& [id, set] : sets_) {
    if (!set->learns()) {
      views->emplace(id, set->view);
    }
  }
  on_change_(std::move(views));
}

}  // namespace fairlead::routing
