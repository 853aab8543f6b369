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

// A view that was wrong persistently is tried again after so long, then after twice that, ...
constexpr std::chrono::seconds kFirstDistrust{60};
constexpr std::chrono::seconds kLongestDistrust{960};
// An engine that answers requests but announces nothing for so long is reported.
constexpr std::chrono::seconds kSilence{10};
// Until a source that could not even be tried, for want of descriptors say, is tried again.
constexpr std::chrono::seconds kRetry{10};

TargetState state_of(kv::ViewState state, bool usable) {
  switch (state) {
    case kv::ViewState::Connecting: return TargetState::Connecting;
    case kv::ViewState::Replaying: return usable ? TargetState::Replaying : TargetState::Connecting;
    case kv::ViewState::Live: return TargetState::Live;
    case kv::ViewState::Stale: return TargetState::Stale;
    case kv::ViewState::NoEvents: return TargetState::NoEvents;
  }
  return TargetState::Stale;
}

// True when the index says nothing false of a target.
bool is_live(TargetState state) {
  return state != TargetState::Connecting && state != TargetState::Stale &&
         state != TargetState::Distrusted;
}

const engine::KvEventSource* source_of(const fleet::Worker& worker, std::uint32_t rank) {
  const auto& sources = worker.info.kv_event_sources;
  const auto found = std::ranges::find(sources, rank, &engine::KvEventSource::data_parallel_rank);
  return found == sources.end() ? nullptr : &*found;
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

// How the prompts of a set are cut: as its first worker says that knows, else as the first events
// do.
kv::HashParams KvViews::params_of(const fleet::WorkerSet& set, const Set* known) const {
  kv::HashParams params{.block_size = options_.block_size, .bigram = known && known->bigram};
  for (const auto& worker : set.workers) {
    if (params.block_size == 0) {
      params.block_size = worker->info.kv_block_size;
    }
  }
  if (params.block_size == 0 && known) {
    params.block_size = known->block_size;
  }
  return params;
}

bool KvViews::follow_set(const fleet::WorkerSet& set, TimePoint now) {
  auto known = sets_.find(set.id);
  const kv::HashParams params =
      params_of(set, known == sets_.end() ? nullptr : known->second.get());
  bool changed = false;
  const std::uint32_t learned = known == sets_.end() ? 0 : known->second->block_size;
  if (known != sets_.end() && known->second->caches->params != params) {
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
    made->block_size = learned;
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
           if (found != present.end() && has_rank(*found->second, target->place.rank)) {
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

// Begins to follow the rank's events, or those of another address, or of another life.
void KvViews::follow_source(Set& set, Target& target, const fleet::Worker& worker, TimePoint now) {
  const engine::KvEventSource* source =
      options_.events ? source_of(worker, target.place.rank) : nullptr;
  const std::uint32_t block_size = set.caches->params.block_size;
  const bool fits = worker.info.kv_block_size == 0 || worker.info.kv_block_size == block_size;
  if (!fits &&
      std::exchange(target.warned, Target::Warned::BlockSize) != Target::Warned::BlockSize) {
    log::warn(
        "worker_{} dp_rank={}: its KV blocks have {} tokens, those of its worker set {}: its "
        "events are not followed",
        worker.id, target.place.rank, worker.info.kv_block_size, block_size);
  }
  const engine::KvEventSource wanted = source && fits ? *source : engine::KvEventSource();
  if (target.subscription && wanted == target.source) {
    if (!worker.info.instance_id.empty() &&
        std::exchange(target.instance_id, worker.info.instance_id) != worker.info.instance_id) {
      target.subscription->new_instance();
    }
    return;
  }
  if (target.subscription) {
    drop_source(set, target);
    set.caches->index.clear(target.id);
  }
  if (wanted.endpoint.empty()) {
    // Only an engine that was probed can be said to have none.
    if (options_.events && fits && worker.info.kv_block_size != 0 &&
        target.warned == Target::Warned::Nothing) {
      target.warned = Target::Warned::NoSource;
      log::warn(
          "worker_{} dp_rank={}: its engine publishes no KV events; what was routed to it "
          "lately counts as cached (approximate mode)",
          worker.id, target.place.rank);
    }
    return;
  }
  if (now < target.retry_at) {
    return;
  }
  if (!feed_) {
    kv::FeedOptions feed;
    feed.threads = options_.event_threads;
    feed_ = std::make_unique<kv::EventFeed>(feed);
  }
  target.writer = std::make_unique<kv::IndexWriter>(set.caches->index, target.id);
  auto subscribed =
      feed_->subscribe({.endpoint = wanted.endpoint,
                        .replay_endpoint = wanted.replay_endpoint,
                        .topic = wanted.topic,
                        .rank = target.place.rank,
                        .block_size = block_size,
                        .buffer_steps = wanted.buffer_steps,
                        .check_rank = true,
                        .image_token = std::nullopt,
                        .label = fmt::format("worker_{} dp_rank={}", worker.id, target.place.rank)},
                       *target.writer);
  if (!subscribed) {
    target.writer.reset();
    target.retry_at = now + kRetry;
    retry_at_ = std::min(retry_at_, target.retry_at);
    log::warn("worker_{} dp_rank={}: cannot follow its KV events: {}", worker.id, target.place.rank,
              subscribed.error().message);
    return;
  }
  target.subscription = std::move(*subscribed);
  target.source = wanted;
  target.instance_id = worker.info.instance_id;
  target.since = now;
  target.warned = Target::Warned::Nothing;
}

void KvViews::drop_source(Set& set, Target& target) {
  if (target.subscription) {
    former_->add(target);
    target.subscription.reset();
    target.writer.reset();
  }
  target.source = {};
  set.caches->truth.forgive(target.id);
}

TargetState KvViews::state_of(Set& set, Target& target, TimePoint now) {
  if (!target.subscription) {
    return TargetState::Approximate;
  }
  const kv::SourceStatus status = target.subscription->status();
  const TargetState state = routing::state_of(status.state, status.usable);
  set.bigram |= target.subscription->normalizer().bigram().value_or(false);
  if (target.writer->counters().full.get() > 0 && !std::exchange(set.warned_memory, true)) {
    log::warn(
        "worker_{} dp_rank={}: the index of its worker set has reached {} MiB; what does not fit "
        "counts as not cached; --router-index-limit-mb allows more",
        target.place.worker_id, target.place.rank, options_.index_bytes >> 20U);
  }
  const CacheScore score = set.caches->truth.score(target.id);
  if (state == TargetState::NoEvents && now - target.since > kSilence && score.requests > 0 &&
      target.warned == Target::Warned::Nothing) {
    target.warned = Target::Warned::Silent;
    log::warn(
        "worker_{} dp_rank={}: its engine answers requests and announces no KV events; what "
        "was routed to it lately counts as cached",
        target.place.worker_id, target.place.rank);
  }
  if (state != TargetState::Live && state != TargetState::Replaying) {
    return state;
  }
  if (target.distrusted_until && now < *target.distrusted_until) {
    return TargetState::Distrusted;
  }
  if (score.wrong() && !target.distrusted_until) {
    target.distrust = std::clamp(target.distrust * 2, kFirstDistrust, kLongestDistrust);
    target.distrusted_until = now + target.distrust;
    log::warn(
        "worker_{} dp_rank={}: {:.0f} % of the prompts were cached otherwise than its KV "
        "events say; they do not count for {} s",
        target.place.worker_id, target.place.rank, score.error * 100, target.distrust.count());
    return TargetState::Distrusted;
  }
  if (std::exchange(target.distrusted_until, std::nullopt)) {
    set.caches->truth.forgive(target.id);  // another trial
  } else if (score.recent == kRecentSamples && !score.wrong()) {
    target.distrust = std::chrono::seconds(0);
  }
  return state;
}

std::shared_ptr<const KvSetView> KvViews::Set::make_view() const {
  auto made = std::make_shared<KvSetView>();
  made->caches = caches;
  for (const auto& target : targets) {
    const std::size_t id = target->id;
    if (made->places.size() <= id) {
      made->places.resize(id + 1);
      made->states.resize(id + 1, TargetState::Approximate);
    }
    made->places[id] = target->place;
    made->states[id] = target->state;
    made->by_ref.push_back(target->id);
    made->degraded |= !target->place.live;
  }
  return made;
}

// Brings the set's view up to date; true when it changed.
bool KvViews::refresh(Set& set, TimePoint now) {
  bool changed = !set.view;
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
