#include "fleet/cohort.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "fleet/succession.hpp"

namespace fairlead::fleet {
namespace {

std::vector<std::string> adapters_of(const Member& member) {
  std::vector<std::string> names = member.info->lora_adapters;
  for (const Card& card : member.adapters) {
    names.push_back(card.lora_name);
  }
  std::ranges::sort(names);
  const auto repeated = std::ranges::unique(names);
  names.erase(repeated.begin(), repeated.end());
  return names;
}

std::shared_ptr<const Worker> make_worker(const Member& member, std::size_t slot) {
  auto worker = std::make_shared<Worker>();
  worker->id = member.id;
  worker->endpoint = member.card.endpoint;
  worker->backend = member.card.backend;
  worker->role = member.duty.role;
  worker->capabilities = member.info->capabilities.without(member.card.denied);
  worker->slot = slot;
  worker->card_key = member.key;
  worker->info = known_info(member);
  worker->adapters = adapters_of(member);
  worker->taints = member.card.taints;
  worker->addresses = member.addresses;
  worker->incarnation = member.incarnation;
  worker->healthy = member.up && !member.barred;
  worker->circuit = member.circuit;
  worker->activity = member.activity;
  return worker;
}

}  // namespace

engine::EngineInfo known_info(const Member& member) {
  engine::EngineInfo info = *member.info;
  const auto fill = [](auto& told, std::uint32_t named) { told = told != 0 ? told : named; };
  fill(info.kv_block_size, member.card.kv_block_size);
  fill(info.total_kv_blocks, member.card.total_kv_blocks);
  fill(info.max_batched_tokens, member.card.max_batched_tokens);
  return info;
}

Group::Identity Group::identity_of(const Member& member) {
  Identity out{.checksum = member.duty.checksum, .likeness = likeness_of(member)};
  if (member.duty.role == Role::Aggregated) {
    out.likeness.maker.clear();
  }
  return out;
}

std::string Group::difference(const Identity& other) const {
  std::string out = fleet::difference(incumbent_->likeness, other.likeness);
  return out.empty() && incumbent_->checksum != other.checksum ? "its card differs" : out;
}

void Group::adopt(const Member& member, std::uint64_t& fresh_id) {
  incumbent_ = identity_of(member);
  set_id_ = fresh_id++;
  slots_.clear();
  slot_taken_.clear();
  reported_.clear();
}

void Group::keep_or_replace_incumbent(std::span<Member* const> members, net::TimePoint now,
                                      net::Duration succession_after, std::uint64_t& fresh_id) {
  const Succession succession = find_successor(
      members,
      [this](const Member& member) {
        return incumbent_ && difference(identity_of(member)).empty();
      },
      now, succession_after);
  succession_at_ = succession.later;
  if (succession.extinct) {
    incumbent_.reset();
  }
  if (succession.heir) {
    adopt(*succession.heir, fresh_id);
  }
}

void Group::reject(Member& member, std::string reason, std::vector<std::string>& errors) {
  const Identity identity = identity_of(member);
  std::string cohort = fmt::format("{}\n{}\n{}\n{}", identity.checksum, identity.likeness.maker,
                                   identity.likeness.model_id, identity.likeness.kv_block_size);
  if (member.up && !reported_.contains(cohort) && !rejected_.contains(cohort)) {
    errors.push_back(
        fmt::format("engine left out: the workers of a set must be alike endpoint={} reason=\"{}\" "
                    "model={} namespace=\"{}\" role={} incumbent={} rejected={} instance={}",
                    member.card.endpoint.url, reason, key_.model, key_.name_space,
                    role_name(key_.role), incumbent_->checksum, identity.checksum, member.key));
  }
  if (member.up || reported_.contains(cohort)) {
    rejected_.insert(std::move(cohort));
  }
  member.exclusion = std::move(reason);
}

void Group::choose(std::span<Member* const> members, net::TimePoint now,
                   net::Duration succession_after, std::uint64_t& fresh_id,
                   std::vector<std::string>& errors) {
  keep_or_replace_incumbent(members, now, succession_after, fresh_id);
  committed_.clear();
  for (Member* member : members) {
    member->exclusion.clear();
    if (!incumbent_) {
      continue;  // none of them was ever up under its present card
    }
    const Identity identity = identity_of(*member);
    if (std::string reason = difference(identity); !reason.empty()) {
      reject(*member, std::move(reason), errors);
      continue;
    }
    committed_.push_back(member);
    if (member->up) {  // fill what the first one did not know
      incumbent_->likeness.fill(identity.likeness);
    }
  }
  // A cohort that went away and comes back is news.
  reported_ = std::exchange(rejected_, {});
  std::set<WorkerId> ids;
  for (const Member* member : members) {
    ids.insert(member->id);
  }
  std::erase_if(slots_, [&](const auto& entry) {
    const bool gone = !ids.contains(entry.first);
    if (gone) {
      slot_taken_[entry.second] = false;
    }
    return gone;
  });
}

std::size_t Group::slot_of(WorkerId id) {
  if (const auto found = slots_.find(id); found != slots_.end()) {
    return found->second;
  }
  const auto free = std::ranges::find(slot_taken_, false);
  const auto slot = static_cast<std::size_t>(free - slot_taken_.begin());
  if (free == slot_taken_.end()) {
    slot_taken_.push_back(true);
  } else {
    *free = true;
  }
  slots_.emplace(id, slot);
  return slot;
}

std::shared_ptr<const WorkerSet> Group::build_set() {
  auto set = std::make_shared<WorkerSet>();
  set->id = set_id_;
  set->name_space = key_.name_space;
  set->role = key_.role;
  set->dispensable = dispensable_;
  set->checksum = incumbent_->checksum;
  if (!committed_.empty()) {
    set->needs = committed_.front()->duty.needs;
  }
  for (const Member* member : committed_) {
    set->workers.push_back(make_worker(*member, slot_of(member->id)));
  }
  set->slot_count = slot_taken_.size();
  std::ranges::sort(set->workers, {},
                    [](const std::shared_ptr<const Worker>& worker) { return worker->slot; });
  return set;
}

}  // namespace fairlead::fleet
