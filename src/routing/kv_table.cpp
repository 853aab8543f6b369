#include "routing/kv_table.hpp"

#include <algorithm>
#include <utility>

#include "routing/kv_waiter.hpp"
#include "routing/kv_weigh.hpp"
#include "routing/router.hpp"

namespace fairlead::routing {
namespace {

// A prompt that was not hashed takes up as much room.
std::uint32_t full_blocks(const KvRoute& route, std::uint32_t block_size) {
  return route.prompt.empty() ? route.prompt_tokens / block_size
                              : static_cast<std::uint32_t>(route.prompt.size());
}

}  // namespace

std::string_view reason_name(PickReason reason) {
  switch (reason) {
    case PickReason::Mode: return "mode";
    case PickReason::Pinned: return "pinned";
    case PickReason::Affinity: return "affinity";
    case PickReason::Overlap: return "overlap";
    case PickReason::LeastLoaded: return "least_loaded";
    case PickReason::Sampled: return "sampled";
    case PickReason::StaleView: return "stale_view";
    case PickReason::kCount: break;
  }
  return "mode";
}

KvTable::KvTable(const KvRouterConfig& config, std::uint64_t seed)
    : config_(config), loads_(config), random_(seed) {}

void KvTable::follow(const std::shared_ptr<const fleet::WorkerSet>& set) {
  if (seen_ != set) {
    loads_.sync(*set);
    seen_ = set;
  }
  if (known_.size() < loads_.targets().size()) {
    known_.resize(loads_.targets().size());
    touched_.resize(loads_.targets().size());
  }
}

std::optional<TargetIndex> KvTable::place_of(const KvRoute& route, kv::TargetId id) const {
  if (id >= route.places.size()) {
    return std::nullopt;
  }
  const TargetPlace& place = route.places[id];
  const auto target = loads_.find(place.slot, place.rank);
  return target && loads_.targets()[*target].worker_id == place.worker_id ? target : std::nullopt;
}

// A new choice, of which nothing is known yet but the running prompts that begin alike.
void KvTable::begin(const KvRouterConfig& config, const KvRoute& route) {
  ++stamp_;
  touched_count_ = 0;
  degraded_ = route.degraded;
  min_prefill_ = 0;
  path_.clear();
  if (config.track_active_blocks && config.assume_kv_reuse) {
    loads_.sequences().match(route.prompt, path_);
  }
}

// Collects what targets have of the prompt, cached or active.
void KvTable::learn(const KvRoute& route) {
  ++stamp_;
  touched_count_ = 0;
  if (degraded_) {
    for (std::size_t id = 0; id < route.places.size(); ++id) {
      if (!route.places[id].live) {
        continue;
      }
      if (const auto target = place_of(route, static_cast<kv::TargetId>(id))) {
        touch(*target).live = true;
      }
    }
  }
  for (const kv::Overlap& overlap : route.overlaps) {
    const auto target = place_of(route, overlap.target);
    if (target && route.places[overlap.target].live) {
      Known& known = touch(*target);
      known.cached.device = overlap.device;
      known.cached.host = overlap.host;
      known.cached.disk = overlap.disk;
      known.confirmed = overlap.device;
    }
  }
  for (const kv::Overlap& overlap : route.predicted) {
    if (const auto target = place_of(route, overlap.target)) {
      extend(touch(*target).cached, overlap);
    }
  }
  ActiveSequences::visit(
      path_, [&](TargetIndex target, std::uint32_t depth) { touch(target).prefix = depth; });
}

Result<KvTable::Picked> KvTable::choose(const std::shared_ptr<const fleet::WorkerSet>& set,
                                        const RouteRequest& request, const KvRoute& route,
                                        bool book, KvWaiter* waiter) {
  KvRouterConfig config = config_;
  if (route.overrides) {
    auto applied = apply(config_, *route.overrides);
    if (!applied) {
      return std::unexpected(applied.error());
    }
    config = *applied;
  }
  if (waiter) {
    leave_other(*waiter);
  }
  const std::lock_guard lock(mutex_);
  follow(set);
  if (route.block_size > 0) {
    loads_.set_block_size(route.block_size);
  }
  const PromptShape shape{.tokens = route.prompt_tokens,
                          .full_blocks = full_blocks(route, loads_.block_size()),
                          .block_size = loads_.block_size(),
                          .shared_prefix = route.shared_prefix};
  begin(config, route);
  const bool queued = waiter && queue_;
  const bool free = !route.preferred && !request.worker_id && !queued;
  const bool skims = free && ordered(config, request, route) && crowded(route);
  if (!skims) {
    learn(route);
  }
  if (!queued) {
    return pick(config, shape, request, route, book, skims);
  }
  const Result<bool> waits = has_to_wait(shape, request, route, *waiter);
  if (!waits) {
    return std::unexpected(waits.error());
  }
  if (*waits) {
    return Picked();
  }
  auto picked = pick(config, shape, request, route, book, false);
  served(*waiter, picked.has_value());
  return picked;
}

// Under mutex_, after `learn` unless `skims`.
Result<KvTable::Picked> KvTable::pick(const KvRouterConfig& config, const PromptShape& shape,
                                      const RouteRequest& request, const KvRoute& route, bool book,
                                      bool skims) {
  std::optional<TargetIndex> target;
  PickReason reason = PickReason::Affinity;
  if (route.preferred) {
    target = preferred(request, route);
  }
  if (!target) {
    Result<TargetIndex> found = TargetIndex{0};
    if (request.worker_id) {
      reason = PickReason::Pinned;
      found = pinned(config, shape, request, route);
    } else {
      reason = config.router_temperature > 0 ? PickReason::Sampled : PickReason::LeastLoaded;
      if (skims) {
        target = by_reference(config, shape, route);
        if (!target) {
          learn(route);
        }
      }
      if (!target && ordered(config, request, route)) {
        target = by_order(config, shape);
      }
      if (!target) {  // also says why there is none
        found = by_scan(config, shape, request, route);
      }
    }
    if (!found) {
      return std::unexpected(found.error());
    }
    target = target ? target : *found;
  }
  if (route.explain) {
    explain(config, shape, request, route);
  }
  const KvLoads::Target& state = loads_.targets()[*target];
  Picked out;
  out.worker = loads_.places()[state.slot].worker;
  KvDecision& decision = out.decision;
  const bool has = known_[*target].stamp == stamp_;
  if (has) {
    decision.cached = known_[*target].cached;
    decision.confirmed_blocks = known_[*target].confirmed;
  }
  decision.terms = weigh(config, shape, *target);
  if (reason == PickReason::LeastLoaded) {
    reason = config.overlap_score_credit > 0 && decision.terms.effective_blocks > 0
                 ? PickReason::Overlap
             : (has ? !known_[*target].live : degraded_) ? PickReason::StaleView
                                                         : PickReason::LeastLoaded;
  }
  decision.reason = reason;
  decision.target = {.worker_id = state.worker_id, .rank = state.rank};
  decision.total_blocks = (shape.tokens + shape.block_size - 1) / shape.block_size;
  decision.cached_tokens = static_cast<std::uint32_t>(cached_tokens(decision.terms, shape));
  decision.prefill_tokens = config.track_prefill_tokens ? shape.tokens - decision.cached_tokens : 0;
  if (book) {
    ++picks_[static_cast<std::size_t>(reason)];
    out.booking = {.target = *target,
                   .prefill_tokens = decision.prefill_tokens,
                   .prompt_tokens = shape.tokens,
                   .block_size = shape.block_size,
                   .expected_output = route.expected_output};
    const bool shares =
        config.track_active_blocks && config.assume_kv_reuse && !route.prompt.empty();
    out.booking.untracked = config.track_active_blocks && !shares ? shape.full_blocks : 0;
    loads_.book(out.booking, shares ? route.prompt : std::span<const kv::SequenceHash>{}, path_);
  }
  return out;
}

void KvTable::prefill_complete(KvBooking& booking) {
  const std::lock_guard lock(mutex_);
  loads_.prefill_complete(booking);
  let_go();
}

void KvTable::grow(KvBooking& booking) {
  const std::lock_guard lock(mutex_);
  loads_.grow(booking);
}

void KvTable::release(KvBooking& booking) {
  const std::lock_guard lock(mutex_);
  loads_.release(booking);
  let_go();
}

void KvTable::set_thresholds(const BusyThresholds& thresholds) {
  const std::lock_guard lock(mutex_);
  loads_.set_thresholds(thresholds);
  let_go();
}

void KvTable::report_used(std::uint64_t worker_id, std::uint32_t rank,
                          std::optional<std::uint64_t> blocks) {
  const std::lock_guard lock(mutex_);
  loads_.report_used(worker_id, rank, blocks);
  let_go();
}

void KvTable::retain(const std::shared_ptr<const fleet::WorkerSet>& set) {
  const std::lock_guard lock(mutex_);
  follow(set);
  let_go();
}

bool KvTable::idle() const {
  const std::lock_guard lock(mutex_);
  return loads_.idle() && (!queue_ || queue_->size() == 0);
}

PickCounts KvTable::picks() const {
  const std::lock_guard lock(mutex_);
  return picks_;
}

std::size_t KvTable::active_nodes() const {
  const std::lock_guard lock(mutex_);
  return loads_.sequences().nodes();
}

}  // namespace fairlead::routing
