#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ranges>
#include <span>

#include "routing/kv_weigh.hpp"
#include "routing/router.hpp"

// The part of KvTable that finds a cheapest target without weighing all.

namespace fairlead::routing {
namespace {

// With more targets to weigh than this, or no more in all, weighing all is as quick.
constexpr std::size_t kMostWeighed = 64;
// Targets that are drawn in search of one that has much of the prompt.
constexpr int kDraws = 4;
// Nothing within this of a bound is ruled out by it: sums of fractions are rounded.
constexpr double kRounding = 1e-6;

CachedBlocks blocks_of(const kv::Overlap& overlap) {
  return {.device = overlap.device, .host = overlap.host, .disk = overlap.disk};
}

// How far each tier reaches, and the tiers above it.
struct Reach {
  std::uint32_t device = 0;
  std::uint32_t host = 0;
  std::uint32_t disk = 0;

  Reach() = default;
  explicit Reach(const CachedBlocks& blocks)
      : device(blocks.device), host(blocks.device + blocks.host), disk(blocks.total()) {}
  void extend(const Reach& other) {
    device = std::max(device, other.device);
    host = std::max(host, other.host);
    disk = std::max(disk, other.disk);
  }
  bool covers(const Reach& other) const {
    return other.device <= device && other.host <= host && other.disk <= disk;
  }
};

// An overlap as one vector of four: each look at a large fleet goes over all of them.
using Lanes [[gnu::vector_size(sizeof(kv::Overlap))]] = std::uint32_t;

// The greatest of each member; that of `target` means nothing.
Lanes greatest(std::span<const kv::Overlap> overlaps) {
  const auto widen = [](Lanes& most, const kv::Overlap& overlap) {
    const auto lanes = std::bit_cast<Lanes>(overlap);
    most = lanes > most ? lanes : most;
  };
  Lanes even{};
  Lanes odd{};
  std::size_t i = 0;
  for (; i + 1 < overlaps.size(); i += 2) {
    widen(even, overlaps[i]);
    widen(odd, overlaps[i + 1]);
  }
  if (i < overlaps.size()) {
    widen(even, overlaps[i]);
  }
  return even > odd ? even : odd;
}

// How far the farthest of each tier reach in a list, and whether there is more than the device.
struct Farthest {
  Reach reach;
  bool tiers = false;

  explicit Farthest(std::span<const kv::Overlap> overlaps) {
    const Lanes most = greatest(overlaps);
    reach = Reach({.device = most[offsetof(kv::Overlap, device) / sizeof(std::uint32_t)]});
    tiers = (most[offsetof(kv::Overlap, host) / sizeof(std::uint32_t)] |
             most[offsetof(kv::Overlap, disk) / sizeof(std::uint32_t)]) != 0;
    if (tiers) {
      for (const kv::Overlap& overlap : overlaps) {
        reach.extend(Reach(blocks_of(overlap)));
      }
    }
  }
};

}  // namespace

// True when costs have the shape that the order relies on, and nothing leaves targets out.
bool KvTable::ordered(const KvRouterConfig& config, const RouteRequest& request,
                      const KvRoute& route) const {
  return config.router_temperature == 0 && config.overlap_score_credit_decay == 0 &&
         config.policy == SelectionPolicy::Sum && route.shared_prefix == 0 &&
         config.prefill_load_scale == config_.prefill_load_scale &&
         config.track_prefill_tokens == config_.track_prefill_tokens && !route.explain &&
         !request.rank && request.excluded.empty() && request.adapter.empty() &&
         route.allowed.empty() && request.required_taints.empty() &&
         route.preferred_taints.empty() && loads_.targets().size() > kMostWeighed;
}

// True when more targets may have something of the prompt than are weighed one by one.
bool KvTable::crowded(const KvRoute& route) const {
  return route.overlaps.size() + route.predicted.size() > kMostWeighed ||
         ActiveSequences::spread(path_, kMostWeighed) > kMostWeighed;
}

// The id of a target in both lists of overlaps.
std::optional<kv::TargetId> KvTable::id_of(const KvRoute& route, TargetIndex target) {
  const KvLoads::Target& state = loads_.targets()[target];
  const auto is_it = [&state](const TargetPlace& place) {
    return place.worker_id == state.worker_id && place.rank == state.rank &&
           place.slot == state.slot;
  };
  if (ids_.size() <= target) {
    ids_.resize(loads_.targets().size());
  }
  if (const kv::TargetId former = ids_[target];
      former < route.places.size() && is_it(route.places[former])) {
    return former;
  }
  const auto found = std::ranges::find_if(route.places, is_it);
  if (found == route.places.end()) {
    return std::nullopt;
  }
  return ids_[target] = static_cast<kv::TargetId>(found - route.places.begin());
}

// Collects what one target has of the prompt: what `learn` would.
void KvTable::learn_of(const KvRoute& route, TargetIndex target) {
  Known& known = touch(target);
  if (const auto id = id_of(route, target)) {
    const bool live = route.places[*id].live;
    known.live = known.live || live;
    if (const std::size_t at = overlaps_.find(*id); live && at < route.overlaps.size()) {
      known.cached = blocks_of(route.overlaps[at]);
      known.confirmed = known.cached.device;
    }
    if (const std::size_t at = predicted_.find(*id); at < route.predicted.size()) {
      extend(known.cached, route.predicted[at]);
    }
  }
  known.prefix = ActiveSequences::depth(path_, target);
}

// With few targets that have something of the prompt: weighs those, and one of the others.
std::optional<TargetIndex> KvTable::by_order(const KvRouterConfig& config,
                                             const PromptShape& shape) {
  const MinTree& order = loads_.order();
  const double least = order.least();
  if (least == MinTree::kNone || touched_count_ > kMostWeighed) {
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
  TargetIndex drawn = draw_least();
  for (int attempt = 0; weighed(drawn) && attempt < 16; ++attempt) {
    drawn = draw_least();
  }
  for (std::uint32_t nth = 0; weighed(drawn); ++nth) {  // few others: one of them, in turn
    drawn = static_cast<TargetIndex>(order.pick(nth));
  }
  best.consider(drawn, weigh(config, shape, drawn).cost, others, random_);
  return best.target;
}

// One of those that share the least of the order.
TargetIndex KvTable::draw_least() {
  const MinTree& order = loads_.order();
  return static_cast<TargetIndex>(
      order.pick(static_cast<std::uint32_t>(random_() % order.sharing())));
}

// With many that have something of the prompt. A target drawn from the least of the order, the
// reference, is as cheap as all that have no more of the prompt than it has, and among those of its
// cost each is as likely to be the reference. So only targets that have more are left to weigh, and
// of those only such as the order does not rule out. Nothing when that does not decide: the
// reference costs as much as one that has more, many are left, or costs have not the shape.
std::optional<TargetIndex> KvTable::by_reference(const KvRouterConfig& config,
                                                 const PromptShape& shape, const KvRoute& route) {
  const MinTree& order = loads_.order();
  const double least = order.least();
  if (least == MinTree::kNone || !config.track_prefill_tokens || config.overlap_score_credit == 0) {
    return std::nullopt;
  }
  const Farthest confirmed(route.overlaps);
  const Farthest predicted(route.predicted);
  Reach most = confirmed.reach;
  most.extend(predicted.reach);
  const bool tiers_differ = config.overlap_score_credit > config.host_cache_hit_weight &&
                            config.host_cache_hit_weight > config.disk_cache_hit_weight &&
                            config.disk_cache_hit_weight > 0;
  // What a block on the device takes off a cost; on other tiers it is less.
  const double worth = config.prefill_load_scale * config.overlap_score_credit +
                       config.recompute_weight * std::min(config.overlap_score_credit, 1.0);
  if (((confirmed.tiers || predicted.tiers) && !tiers_differ) || !(worth > 0)) {
    return std::nullopt;
  }
  overlaps_.reset(route.overlaps);
  predicted_.reset(route.predicted);
  const std::uint32_t deepest = path_.empty() ? 0 : path_.back().matched;

  TargetIndex reference = 0;
  CostTerms terms;
  for (int attempt = 0; attempt < kDraws; ++attempt) {
    const TargetIndex drawn = draw_least();
    learn_of(route, drawn);
    const CostTerms drawn_terms = weigh(config, shape, drawn);
    if (attempt == 0 || drawn_terms.cost < terms.cost) {
      reference = drawn;
      terms = drawn_terms;
    }
    if (order.sharing() == 1 ||
        (Reach(known_[reference].cached).covers(most) && known_[reference].prefix >= deepest)) {
      break;
    }
  }
  if (terms.raw_prefill < terms.credit ||
      terms.effective_blocks * shape.block_size > shape.tokens) {
    return std::nullopt;  // it has more of the prompt than shows in its cost
  }
  const Reach reach(known_[reference].cached);
  const std::uint32_t prefix = known_[reference].prefix;
  if (reach.covers(most) && prefix >= deepest) {
    return reference;
  }
  ++stamp_;
  touched_count_ = 0;
  learn_of(route, reference);

  // At most `spare` above the least of the order, less what it saves, is a target that may be as
  // cheap as the best so far.
  const double nothing = evaluate(config, shape, {}, {}).cost;
  Best best;
  const auto may_do = [&](TargetIndex target, std::uint32_t cached, std::uint32_t active) {
    const double cheapest = order.at(target) + nothing - worth * cached - active;
    const double limit = std::min(best.cost, terms.cost);
    return cheapest <= limit + kRounding * (1 + limit);
  };
  const auto try_it = [&](TargetIndex target) {
    if (known_[target].stamp != stamp_) {
      learn_of(route, target);
      best.consider(target, weigh(config, shape, target).cost, 1, random_);
    }
    return touched_count_ <= kMostWeighed;
  };
  const auto try_list = [&](std::span<const kv::Overlap> list, const Farthest& other) {
    for (const kv::Overlap& overlap : std::views::reverse(list)) {  // mostly the longest first
      if (const Reach own(blocks_of(overlap)); !reach.covers(own)) {
        const auto target = place_of(route, overlap.target);
        if (target && may_do(*target, std::max(own.disk, other.reach.disk), deepest) &&
            !try_it(*target)) {
          return false;
        }
      }
    }
    return true;
  };
  if ((!reach.covers(confirmed.reach) && !try_list(route.overlaps, predicted)) ||
      (!reach.covers(predicted.reach) && !try_list(route.predicted, confirmed))) {
    return std::nullopt;
  }
  for (const ActiveSequences::Step& step : std::views::reverse(path_)) {
    if (step.matched <= prefix) {
      break;
    }
    for (const ActiveSequences::Node::Use& use : step.node->uses()) {
      // Those that have more than the reference cached, too, are behind us.
      if (may_do(use.target, reach.disk, step.matched) && !try_it(use.target)) {
        return std::nullopt;
      }
    }
  }
  if (best.cost == terms.cost) {
    return std::nullopt;
  }
  return best.cost < terms.cost ? best.target : reference;
}

}  // namespace fairlead::routing
