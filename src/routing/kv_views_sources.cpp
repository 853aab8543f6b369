#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "routing/kv_views_state.hpp"

// How one target's events are followed, and what is thought of them.

namespace fairlead::routing {
namespace {

// A view that was wrong persistently is tried again after so long, then after twice that, ...
constexpr std::chrono::seconds kFirstDistrust{60};
constexpr std::chrono::seconds kLongestDistrust{960};
// An engine that answers requests but announces nothing for so long is reported.
constexpr std::chrono::seconds kSilence{10};
// Until a source that could not even be tried, for want of descriptors say, is tried again.
constexpr std::chrono::seconds kRetry{10};
// Views of a peer are kept so long for workers that are not followed yet.
constexpr std::chrono::seconds kOfferLife{120};

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

const engine::KvEventSource* source_of(const fleet::Worker& worker, std::uint32_t rank) {
  const auto& sources = worker.info.kv_event_sources;
  const auto found = std::ranges::find(sources, rank, &engine::KvEventSource::data_parallel_rank);
  return found == sources.end() ? nullptr : &*found;
}

}  // namespace

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
  const std::optional<kv::Checkpoint> from =
      wanted.replay_endpoint.empty() || set.learns() ? std::nullopt : take_over(set, target);
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
                       *target.writer, from);
  if (!subscribed) {
    target.writer.reset();
    set.caches->index.clear(target.id);
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
  target.taken_over = from.has_value();
  set.view.reset();
}

// Fills the target with what a peer knew; where that stands in the engine's stream.
std::optional<kv::Checkpoint> KvViews::take_over(Set& set, Target& target) {
  const auto found = offered_.find({target.place.worker_id, target.place.rank});
  const kv::HashParams& params = set.caches->params;
  // A view that does not fit stays: the set may be cut anew by what its engines say.
  if (found == offered_.end() || found->second.block_size != params.block_size ||
      found->second.bigram != params.bigram) {
    return std::nullopt;
  }
  const auto offered = offered_.extract(found);
  std::optional<kv::Checkpoint> from = offered.mapped().checkpoint;
  if (set.caches->index.restore(target.id, offered.mapped().blocks) != kv::StoreOutcome::Stored &&
      from) {
    from->point.coverage = kv::Coverage::Partial;  // no room for all of it
  }
  return from;
}

void KvViews::offer(std::vector<kv::DumpedTarget> views, TimePoint now) {
  const std::lock_guard lock(mutex_);
  offered_until_ = now + kOfferLife;
  offered_.clear();
  for (kv::DumpedTarget& view : views) {
    if (view.checkpoint) {
      const std::pair key(view.worker_id, view.rank);
      offered_.insert_or_assign(key, std::move(view));
    }
  }
}

bool KvViews::settled() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::none_of(sets_, [](const auto& entry) {
    return std::ranges::any_of(entry.second->targets, [](const auto& target) {
      return target->taken_over && target->state == TargetState::Connecting;
    });
  });
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
  if (target.writer->counters().full.get() > 0 && !std::exchange(set.warned_memory, true)) {
    log::warn(
        "worker_{} dp_rank={}: the index of its worker set has reached {} MiB; what does not fit "
        "counts as not cached; --router-index-limit-mb allows more",
        target.place.worker_id, target.place.rank, options_.index_bytes >> 20U);
  }
  const bool pairs = set.bigram;
  if (const bool own = target.subscription->normalizer().bigram().value_or(pairs); own != pairs) {
    if (std::exchange(target.warned, Target::Warned::Hashing) != Target::Warned::Hashing) {
      log::warn(
          "worker_{} dp_rank={}: its KV blocks are {}, unlike those of most of its worker set: "
          "its events do not count",
          target.place.worker_id, target.place.rank,
          pairs ? "of single tokens" : "of pairs of tokens (EAGLE)");
    }
    return TargetState::Stale;
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

}  // namespace fairlead::routing
