#include "routing/kv_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "routing/kv_waiter.hpp"
#include "routing/router.hpp"

namespace fairlead::routing {
namespace {

// With more targets to weigh than this, or no more in all, weighing all is as quick.
constexpr std::size_t kMostWeighed = 64;

bool contains(std::span<const std::uint64_t> ids, std::uint64_t id) {
  return std::ranges::find(ids, id) != ids.end();
}

// `more` reaches further on the device; lower tiers still end where they did.
void extend(CachedBlocks& cached, const kv::Overlap& more) {
  const std::uint32_t host = std::max(cached.device + cached.host, more.device + more.host);
  const std::uint32_t disk = std::max(cached.total(), more.device + more.host + more.disk);
  cached.device = std::max(cached.device, more.device);
  cached.host = host - cached.device;
  cached.disk = std::max(disk, host) - host;
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

// The cheapest so far; among equals each is as likely as any other (reservoir sampling).
struct KvTable::Best {
  TargetIndex target = 0;
  double cost = MinTree::kNone;
  std::uint32_t equals = 0;

  // `weight` targets of this cost, of which `candidate` was drawn.
  void consider(TargetIndex candidate, double value, std::uint32_t weight,
                std::mt19937_64& random) {
    if (value < cost || equals == 0) {
      *this = {.target = candidate, .cost = value, .equals = weight};
    } else if (value == cost) {
      equals += weight;
      if (random() % equals < weight) {
        target = candidate;
      }
    }
  }
};

[[gnu::always_inline]] inline KvTable::Known& KvTable::touch(TargetIndex target) {
  Known& known = known_[target];
  if (known.stamp != stamp_) {
    // Field by field: a copied temporary is read wider than it was written, which stalls.
    known.stamp = stamp_;
    known.cached.device = known.cached.host = known.cached.disk = 0;
    known.confirmed = 0;
    known.prefix = 0;
    known.live = !degraded_;
    touched_[touched_count_++] = target;
  }
  return known;
}

[[gnu::always_inline]] inline TargetLoad KvTable::load_of(TargetIndex index) const {
  const KvLoads::Target& target = loads_.targets()[index];
  const Known& known = known_[index];
  return {.prefill_tokens = target.prefill_tokens,
          .active_blocks = target.active_blocks(),
          .requests = target.requests,
          .active_prefix = known.stamp == stamp_ ? known.prefix : 0,
          .min_prefill_tokens = min_prefill_};
}

[[gnu::always_inline]] inline CostTerms KvTable::weigh(const KvRouterConfig& config,
                                                       const PromptShape& shape,
                                                       TargetIndex index) const {
  const Known& known = known_[index];
  return evaluate(config, shape, known.stamp == stamp_ ? known.cached : CachedBlocks{},
                  load_of(index));
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

// Collects what targets have of the prompt, cached or active.
void KvTable::learn(const KvRouterConfig& config, const KvRoute& route) {
  ++stamp_;
  touched_count_ = 0;
  degraded_ = route.degraded;
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
  path_.clear();
  if (config.track_active_blocks && config.assume_kv_reuse) {
    loads_.sequences().match(route.prompt, path_);
    ActiveSequences::visit(
        path_, [&](TargetIndex target, std::uint32_t depth) { touch(target).prefix = depth; });
  }
}

// True when costs have the shape that the order relies on, and nothing leaves targets out.
bool KvTable::ordered(const KvRouterConfig& config, const RouteRequest& request,
                      const KvRoute& route) const {
  return config.router_temperature == 0 && config.overlap_score_credit_decay == 0 &&
         config.policy == SelectionPolicy::Sum && route.shared_prefix == 0 &&
         config.prefill_load_scale == config_.prefill_load_scale &&
         config.track_prefill_tokens == config_.track_prefill_tokens && !route.explain &&
         !request.rank && request.excluded.empty() && request.adapter.empty() &&
         route.allowed.empty() && request.required_taints.empty() &&
         route.preferred_taints.empty() && touched_count_ <= kMostWeighed &&
         loads_.targets().size() > kMostWeighed;
}

bool KvTable::admits(const RouteRequest& request, const KvRoute& route,
                     const std::vector<bool>* adapter, const KvLoads::Target& target) const {
  if (!target.routable || (request.rank && *request.rank != target.rank) ||
      contains(request.excluded, target.worker_id) || (adapter && !(*adapter)[target.slot]) ||
      (!route.allowed.empty() && !contains(route.allowed, target.worker_id))) {
    return false;
  }
  return loads_.places()[target.slot].worker->has_taints(request.required_taints);
}

double KvTable::taints(const KvRoute& route, const KvLoads::Target& target) const {
  double weight = 0;
  for (const PreferredTaint& taint : route.preferred_taints) {
    weight += loads_.places()[target.slot].worker->has_taint(taint.name) ? taint.weight : 0;
  }
  return taint_factor(weight);
}

// The named worker, at its cheapest rank unless one is named. Nothing else is considered.
Result<TargetIndex> KvTable::pinned(const KvRouterConfig& config, const PromptShape& shape,
                                    const RouteRequest& request, const KvRoute& route) {
  const std::uint64_t id = *request.worker_id;
  const auto slot = loads_.slot_of(id);
  if (!slot) {
    return fail(ErrorCode::NoWorkers, fmt::format("worker {} is not in routing", id));
  }
  if (request.rank && !loads_.find(*slot, *request.rank)) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("worker {} has no rank {}", id, *request.rank), "x-dynamo-dp-rank");
  }
  const KvLoads::Place& place = loads_.places()[*slot];
  std::vector<bool> adapter;
  if (!request.adapter.empty()) {
    adapter.resize(loads_.places().size());
    adapter[*slot] = place.worker->has_adapter(request.adapter);
  }
  Best best;
  bool overloaded = false;
  for (const TargetIndex target : place.targets) {
    const KvLoads::Target& state = loads_.targets()[target];
    if (admits(request, route, adapter.empty() ? nullptr : &adapter, state)) {
      overloaded = state.overloaded;
      best.consider(target, weigh(config, shape, target).cost, 1, random_);
    }
  }
  if (best.equals == 0) {
    return fail(ErrorCode::NoWorkers,
                fmt::format("worker {} is not usable for this request{}", id, demands_of(request)));
  }
  if (overloaded) {
    return fail(ErrorCode::Overloaded, fmt::format("worker {} is busy", id));
  }
  return best.target;
}

std::optional<TargetIndex> KvTable::preferred(const RouteRequest& request, const KvRoute& route) {
  const auto slot = loads_.slot_of(route.preferred->worker_id);
  const auto target = slot ? loads_.find(*slot, route.preferred->rank) : std::nullopt;
  if (!target) {
    return std::nullopt;
  }
  const KvLoads::Target& state = loads_.targets()[*target];
  const std::vector<bool>* adapter =
      request.adapter.empty() ? nullptr : &loads_.with_adapter(request.adapter);
  RouteRequest any_rank = request;  // the binding beats a named rank
  any_rank.rank.reset();
  return !state.overloaded && admits(any_rank, route, adapter, state) ? target : std::nullopt;
}

std::optional<TargetIndex> KvTable::by_order(const KvRouterConfig& config,
                                             const PromptShape& shape) {
  const MinTree& order = loads_.order();
  const double least = order.least();
  if (least == MinTree::kNone) {
    return std::nullopt;
  }
  Best best;
  std::uint32_t among_least = 0;
  for (const TargetIndex target : std::span(touched_).first(touched_count_)) {
    if (order.at(target) == MinTree::kNone) {
      continue;
    }
    among_least += order.at(target) == least ? 1 : 0;
    best.consider(target, weigh(config, shape, target).cost, 1, random_);
  }
  // Targets weighed above take part in the order as if they had nothing of the prompt. They cannot
  // cost more than that, so when the least of the order is one of them it hides nothing better.
  const std::uint32_t others = order.sharing() - among_least;
  if (others == 0) {
    return best.target;
  }
  const auto weighed = [&](TargetIndex target) { return known_[target].stamp == stamp_; };
  TargetIndex drawn =
      static_cast<TargetIndex>(order.pick(static_cast<std::uint32_t>(random_() % order.sharing())));
  for (int attempt = 0; weighed(drawn) && attempt < 16; ++attempt) {
    drawn = static_cast<TargetIndex>(
        order.pick(static_cast<std::uint32_t>(random_() % order.sharing())));
  }
  for (std::uint32_t nth = 0; weighed(drawn); ++nth) {  // few others: one of them, in turn
    drawn = static_cast<TargetIndex>(order.pick(nth));
  }
  best.consider(drawn, weigh(config, shape, drawn).cost, others, random_);
  return best.target;
}

Result<TargetIndex> KvTable::by_scan(const KvRouterConfig& config, const PromptShape& shape,
                                     const RouteRequest& request, const KvRoute& route) {
  const std::vector<bool>* adapter =
      request.adapter.empty() ? nullptr : &loads_.with_adapter(request.adapter);
  const auto targets = loads_.targets();
  weighed_.clear();
  bool busy = false;
  if (config.overlap_score_credit_decay > 0) {
    min_prefill_ = std::numeric_limits<std::int64_t>::max();
    for (const KvLoads::Target& target : targets) {
      if (admits(request, route, adapter, target) && !target.overloaded) {
        min_prefill_ = std::min(min_prefill_, target.prefill_tokens);
      }
    }
  }
  for (TargetIndex index = 0; index < targets.size(); ++index) {
    const KvLoads::Target& target = targets[index];
    if (!admits(request, route, adapter, target)) {
      continue;
    }
    busy |= target.overloaded;
    if (!target.overloaded) {
      const double factor = route.preferred_taints.empty() ? 1.0 : taints(route, target);
      weighed_.emplace_back(index, weigh(config, shape, index).cost * factor);
    }
  }
  if (weighed_.empty()) {
    return busy ? fail(ErrorCode::Overloaded, "all workers are busy")
                : fail(ErrorCode::NoWorkers,
                       fmt::format("none of {} workers is usable{}", seen_->workers.size(),
                                   demands_of(request)));
  }
  return config.router_temperature > 0 ? drawn(config.router_temperature) : cheapest();
}

// All that would do for the request if it named no worker and had no session.
void KvTable::explain(const KvRouterConfig& config, const PromptShape& shape,
                      const RouteRequest& request, const KvRoute& route) {
  const std::vector<bool>* adapter =
      request.adapter.empty() ? nullptr : &loads_.with_adapter(request.adapter);
  for (TargetIndex index = 0; index < loads_.targets().size(); ++index) {
    const KvLoads::Target& target = loads_.targets()[index];
    if (!admits(request, route, adapter, target)) {
      continue;
    }
    const Known& known = known_[index];
    const bool has = known.stamp == stamp_;
    CandidateCost& out = route.explain->emplace_back(
        CandidateCost{.target = {.worker_id = target.worker_id, .rank = target.rank},
                      .cached = has ? known.cached : CachedBlocks{},
                      .load = load_of(index),
                      .terms = weigh(config, shape, index),
                      .overloaded = target.overloaded,
                      .stale = has ? !known.live : degraded_});
    if (!route.preferred_taints.empty()) {
      out.terms.cost *= taints(route, target);
    }
  }
}

TargetIndex KvTable::cheapest() {
  Best best;
  for (const Weighed& one : weighed_) {
    best.consider(one.target, one.cost, 1, random_);
  }
  return best.target;
}

// Likelier the cheaper: exp(-(cost - least) / (range · temperature)).
TargetIndex KvTable::drawn(double temperature) {
  const auto [low, high] = std::ranges::minmax(weighed_, {}, &Weighed::cost);
  const double least = low.cost;
  const double range = high.cost - least;
  if (!(range > 0)) {
    return weighed_[random_() % weighed_.size()].target;
  }
  double total = 0;
  for (Weighed& one : weighed_) {
    one.cost = std::exp(-(one.cost - least) / range / temperature);
    total += one.cost;
  }
  double left = std::uniform_real_distribution<double>(0, total)(random_);
  for (const Weighed& one : weighed_) {
    left -= one.cost;
    if (left < 0) {
      return one.target;
    }
  }
  return weighed_.back().target;
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
                          .full_blocks = static_cast<std::uint32_t>(route.prompt.size()),
                          .block_size = loads_.block_size(),
                          .shared_prefix = route.shared_prefix};
  min_prefill_ = 0;
  learn(config, route);
  if (!waiter || !queue_) {
    return pick(config, shape, request, route, book);
  }
  const Result<bool> waits = has_to_wait(shape, request, route, *waiter);
  if (!waits) {
    return std::unexpected(waits.error());
  }
  if (*waits) {
    return Picked();
  }
  auto picked = pick(config, shape, request, route, book);
  served(*waiter, picked.has_value());
  return picked;
}

// Under mutex_, after `learn`.
Result<KvTable::Picked> KvTable::pick(const KvRouterConfig& config, const PromptShape& shape,
                                      const RouteRequest& request, const KvRoute& route,
                                      bool book) {
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
      if (ordered(config, request, route)) {
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
    const bool shares = config.track_active_blocks && config.assume_kv_reuse;
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

void KvTable::report_used(std::uint64_t worker_id, std::uint32_t rank, std::uint64_t blocks) {
  const std::lock_guard lock(mutex_);
  loads_.report_used(worker_id, rank, blocks);
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
