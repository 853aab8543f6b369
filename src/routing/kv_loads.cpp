#include "routing/kv_loads.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace fairlead::routing {
namespace {

constexpr std::int64_t kBlock = std::int64_t{1} << 20U;
// Bounds of what is kept about a worker and about adapters that were asked for.
constexpr std::uint32_t kMaxRanks = 1024;
constexpr std::size_t kMaxAdapters = 64;

}  // namespace

void KvLoads::sync(const fleet::WorkerSet& set) {
  places_.resize(std::max(places_.size(), set.slot_count));
  std::size_t next = 0;  // workers are listed by ascending slot
  bool changed = false;
  for (std::size_t slot = 0; slot < places_.size(); ++slot) {
    const bool taken = next < set.workers.size() && set.workers[next]->slot == slot;
    Place& place = places_[slot];
    if (!taken) {
      changed |= place.worker != nullptr;
      vacate(place);
      continue;
    }
    const auto& worker = set.workers[next++];
    if (place.worker != worker) {
      occupy(place, worker);
      changed = true;
    }
  }
  if (changed) {
    adapters_.clear();
  }
}

void KvLoads::occupy(Place& place, std::shared_ptr<const fleet::Worker> worker) {
  const std::uint32_t ranks =
      std::clamp<std::uint32_t>(worker->info.data_parallel_size, 1, kMaxRanks);
  const bool same = place.worker && place.worker->id == worker->id &&
                    place.targets.size() == ranks &&
                    place.first_rank == worker->info.data_parallel_start;
  if (!same) {
    vacate(place);
    place.first_rank = worker->info.data_parallel_start;
    const auto slot = static_cast<std::uint32_t>(worker->slot);
    for (std::uint32_t i = 0; i < ranks; ++i) {
      place.targets.push_back(allot(*worker, slot, place.first_rank + i));
    }
    slots_[worker->id] = slot;
  }
  place.worker = std::move(worker);
  decide_routable(place);
}

void KvLoads::decide_routable(const Place& place) {
  const bool tried = place.worker->circuit == fleet::Circuit::HalfOpen && place.trials > 0;
  for (const TargetIndex index : place.targets) {
    targets_[index].routable = place.worker->healthy && !tried;
  }
  update_place(place);
}

// A worker that left and is back finds what still runs on it.
TargetIndex KvLoads::allot(const fleet::Worker& worker, std::uint32_t slot, std::uint32_t rank) {
  const auto former = std::ranges::find_if(retired_, [&](TargetIndex index) {
    return targets_[index].worker_id == worker.id && targets_[index].rank == rank;
  });
  TargetIndex index = 0;
  if (former != retired_.end()) {
    index = *former;
    *former = retired_.back();
    retired_.pop_back();
    targets_[index].retired = false;
    targets_[index].slot = slot;
    return index;
  }
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else {
    index = static_cast<TargetIndex>(targets_.size());
    targets_.emplace_back();
    order_.resize(targets_.size());
  }
  targets_[index] = {};
  targets_[index].worker_id = worker.id;
  targets_[index].slot = slot;
  targets_[index].rank = rank;
  return index;
}

void KvLoads::vacate(Place& place) {
  if (!place.worker) {
    return;
  }
  const auto known = slots_.find(place.worker->id);
  if (known != slots_.end() && known->second == place.worker->slot) {
    slots_.erase(known);
  }
  for (const TargetIndex index : place.targets) {
    Target& target = targets_[index];
    target.routable = target.overloaded = false;
    if (target.requests > 0) {
      target.retired = true;
      retired_.push_back(index);
    } else {
      target = {};
      free_.push_back(index);
    }
    reorder(index);
  }
  place.targets.clear();
  place.trials = 0;
  place.worker.reset();
}

void KvLoads::set_thresholds(const BusyThresholds& thresholds) {
  if (thresholds_ == thresholds) {
    return;
  }
  thresholds_ = thresholds;
  for (const Place& place : places_) {
    update_place(place);
  }
}

void KvLoads::report_used(std::uint64_t worker_id, std::uint32_t rank,
                          std::optional<std::uint64_t> blocks) {
  if (const auto slot = slot_of(worker_id)) {
    if (const auto index = find(*slot, rank)) {
      targets_[*index].used_blocks = blocks;
      update(*index);
    }
  }
}

void KvLoads::set_block_size(std::uint32_t block_size) {
  if (block_size_ != block_size) {
    block_size_ = block_size;
    for (const Place& place : places_) {
      update_place(place);
    }
  }
}

std::optional<std::uint32_t> KvLoads::slot_of(std::uint64_t worker_id) const {
  const auto found = slots_.find(worker_id);
  return found == slots_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<TargetIndex> KvLoads::find(std::uint32_t slot, std::uint32_t rank) const {
  if (slot >= places_.size()) {
    return std::nullopt;
  }
  const Place& place = places_[slot];
  const std::uint32_t at = rank - place.first_rank;  // wraps when below
  return at < place.targets.size() ? std::optional(place.targets[at]) : std::nullopt;
}

const std::vector<bool>& KvLoads::with_adapter(std::string_view adapter) {
  if (const auto found = adapters_.find(adapter); found != adapters_.end()) {
    return found->second;
  }
  if (adapters_.size() >= kMaxAdapters) {
    adapters_.clear();
  }
  std::vector<bool> have(places_.size());
  for (std::size_t slot = 0; slot < places_.size(); ++slot) {
    have[slot] = places_[slot].worker && places_[slot].worker->has_adapter(adapter);
  }
  return adapters_.emplace(adapter, std::move(have)).first->second;
}

bool KvLoads::beyond(const Target& target, const fleet::Worker& worker) const {
  if (thresholds_.active_decode_blocks && worker.info.total_kv_blocks > 0) {
    const double limit =
        *thresholds_.active_decode_blocks * static_cast<double>(worker.info.total_kv_blocks);
    if (static_cast<double>(target.active_blocks()) > limit ||
        static_cast<double>(target.used_blocks.value_or(0)) > limit) {
      return true;
    }
  }
  if (thresholds_.active_prefill_tokens &&
      target.prefill_tokens > *thresholds_.active_prefill_tokens) {
    return true;
  }
  if (thresholds_.active_prefill_tokens_frac) {
    return static_cast<double>(target.prefill_tokens) >
           *thresholds_.active_prefill_tokens_frac * batch_tokens(worker.info.max_batched_tokens);
  }
  return false;
}

void KvLoads::update(TargetIndex index) {
  const Target& target = targets_[index];
  if (target.routable && (thresholds_.any() || target.overloaded)) {
    update_place(places_[target.slot]);
  } else {
    reorder(index);
  }
}

void KvLoads::update_place(const Place& place) {
  if (!place.worker) {
    return;
  }
  const bool overloaded =
      thresholds_.any() && std::ranges::all_of(place.targets, [&](TargetIndex index) {
        return beyond(targets_[index], *place.worker);
      });
  for (const TargetIndex index : place.targets) {
    targets_[index].overloaded = overloaded;
    reorder(index);
  }
}

void KvLoads::reorder(TargetIndex index) {
  const Target& target = targets_[index];
  if (!target.routable || target.overloaded) {
    order_.set(index, MinTree::kNone);
    return;
  }
  const TargetLoad load{.prefill_tokens = target.prefill_tokens,
                        .active_blocks = target.active_blocks(),
                        .requests = target.requests};
  order_.set(index, evaluate(config_, {.block_size = block_size_}, {}, load).cost);
}

void KvLoads::book(KvBooking& booking, std::span<const kv::SequenceHash> prompt,
                   ActiveSequences::Path& path) {
  Target& target = targets_[booking.target];
  if (!prompt.empty()) {
    const auto added = sequences_.add(prompt, path, booking.target);
    booking.leaf = added.leaf;
    booking.untracked += added.untracked;
    target.blocks += added.fresh;
  }
  target.blocks += booking.untracked;
  target.prefill_tokens += booking.prefill_tokens;
  ++target.requests;
  Place& place = places_[target.slot];
  booking.trial = place.worker && place.worker->circuit == fleet::Circuit::HalfOpen;
  if (booking.trial) {
    ++place.trials;
    decide_routable(place);
  } else {
    update(booking.target);
  }
}

void KvLoads::prefill_complete(KvBooking& booking) {
  targets_[booking.target].prefill_tokens -= std::exchange(booking.prefill_tokens, 0);
  update(booking.target);
}

void KvLoads::grow(KvBooking& booking) {
  Target& target = targets_[booking.target];
  double weight = 1;
  if (booking.expected_output) {
    const double expected = std::max<std::uint32_t>(*booking.expected_output, 1);
    weight = std::max(0.0, 1 - booking.output_tokens / expected);
  }
  // Only the blocks that nobody shares fade, and sharers come and go: the weight of the moment
  // holds until the next block.
  const std::int64_t own =
      booking.untracked +
      (booking.leaf ? ActiveSequences::unshared(booking.leaf, booking.target) : 0);
  const auto scaled = static_cast<std::int64_t>(std::llround(weight * static_cast<double>(kBlock)));
  const std::int64_t now = booking.output_blocks * scaled - own * (kBlock - scaled);
  target.fraction += now - std::exchange(booking.output_weight, now);
  update(booking.target);
}

void KvLoads::release(KvBooking& booking) {
  const TargetIndex index = booking.target;
  Target& target = targets_[index];
  if (booking.leaf) {
    target.blocks -= sequences_.remove(booking.leaf, index);
  }
  target.blocks -= booking.untracked;
  target.prefill_tokens -= booking.prefill_tokens;
  target.fraction -= booking.output_weight;
  --target.requests;
  const bool trial = booking.trial;
  booking = {};
  if (target.retired && target.requests == 0) {
    std::erase(retired_, index);
    target = {};
    free_.push_back(index);
    return;
  }
  if (Place& place = places_[target.slot]; trial && !target.retired && place.trials > 0) {
    --place.trials;
    decide_routable(place);
    return;
  }
  update(index);
}

bool KvLoads::idle() const {
  return std::ranges::all_of(targets_, [](const Target& target) { return target.requests == 0; });
}

}  // namespace fairlead::routing
