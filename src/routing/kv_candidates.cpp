#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "routing/kv_weigh.hpp"
#include "routing/router.hpp"

// The part of KvTable that weighs targets and takes one of the cheapest.

namespace fairlead::routing {
namespace {

bool contains(std::span<const std::uint64_t> ids, std::uint64_t id) {
  return std::ranges::find(ids, id) != ids.end();
}

}  // namespace

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

// Whether some worker of the set has the rank, usable or not.
bool KvTable::has_rank(std::uint32_t rank) const {
  const auto places = loads_.places();
  for (std::uint32_t slot = 0; slot < places.size(); ++slot) {
    if (loads_.find(slot, rank)) {
      return true;
    }
  }
  return false;
}

Result<TargetIndex> KvTable::by_scan(const KvRouterConfig& config, const PromptShape& shape,
                                     const RouteRequest& request, const KvRoute& route) {
  const std::vector<bool>* adapter =
      request.adapter.empty() ? nullptr : &loads_.with_adapter(request.adapter);
  const auto targets = loads_.targets();
  const bool any = !adapter && !request.rank && request.excluded.empty() && route.allowed.empty() &&
                   request.required_taints.empty();
  const auto admitted = [&](const KvLoads::Target& target) {
    return any ? target.routable : admits(request, route, adapter, target);
  };
  weighed_.clear();
  bool busy = false;
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  if (config.overlap_score_credit_decay > 0) {
    min_prefill_ = std::numeric_limits<std::int64_t>::max();
    for (const KvLoads::Target& target : targets) {
      if (admitted(target) && !target.overloaded) {
        min_prefill_ = std::min(min_prefill_, target.prefill_tokens);
      }
    }
  }
  for (TargetIndex index = 0; index < targets.size(); ++index) {
    const KvLoads::Target& target = targets[index];
    if (!admitted(target)) {
      continue;
    }
    busy |= target.overloaded;
    if (!target.overloaded) {
      const double factor = route.preferred_taints.empty() ? 1.0 : taints(route, target);
      const double cost = weigh(config, shape, index).cost * factor;
      least = std::min(least, cost);
      most = std::max(most, cost);
      weighed_.emplace_back(index, cost);
    }
  }
  if (weighed_.empty()) {
    if (request.rank && !has_rank(*request.rank)) {
      return fail(ErrorCode::InvalidRequest, fmt::format("no worker has rank {}", *request.rank),
                  "x-dynamo-dp-rank");
    }
    return busy ? fail(ErrorCode::Overloaded, "all workers are busy")
                : fail(ErrorCode::NoWorkers,
                       fmt::format("none of {} workers is usable{}", seen_->workers.size(),
                                   demands_of(request)));
  }
  return config.router_temperature > 0 ? drawn(config.router_temperature, least, most) : cheapest();
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
TargetIndex KvTable::drawn(double temperature, double least, double most) {
  const double range = most - least;
  if (!(range > 0)) {
    return weighed_[random_() % weighed_.size()].target;
  }
  const double scale = 1 / (range * temperature);
  if (!std::isfinite(scale)) {
    return cheapest();
  }
  double total = 0;
  for (Weighed& one : weighed_) {
    one.cost = std::exp((least - one.cost) * scale);
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

}  // namespace fairlead::routing
