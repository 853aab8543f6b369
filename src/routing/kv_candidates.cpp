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

// With more targets to weigh than this, or no more in all, weighing all is as quick.
constexpr std::size_t kMostWeighed = 64;

bool contains(std::span<const std::uint64_t> ids, std::uint64_t id) {
  return std::ranges::find(ids, id) != ids.end();
}

}  // namespace

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
    if (request.rank && !has_rank(*request.rank)) {
      return fail(ErrorCode::InvalidRequest, fmt::format("no worker has rank {}", *request.rank),
                  "x-dynamo-dp-rank");
    }
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

}  // namespace fairlead::routing
