#include "fleet/fleet_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fairlead::fleet {
namespace {

/// Ids of worker sets: two per registration of a model.
constexpr std::uint64_t kSetsPerModel = 2;

bool differs(const std::string& a, const std::string& b) {
  return !a.empty() && !b.empty() && a != b;
}

std::shared_ptr<const Worker> make_worker(const Member& member, Role role) {
  auto worker = std::make_shared<Worker>();
  worker->id = member.id;
  worker->endpoint = member.endpoint;
  worker->backend = member.backend;
  worker->role = role;
  worker->slot = member.slot;
  worker->info = *member.info;
  worker->addresses = member.addresses;
  worker->incarnation = member.incarnation;
  worker->healthy = member.up;
  return worker;
}

}  // namespace

FleetBuilder::FleetBuilder(std::string model_name, std::size_t engines, std::size_t prefill_engines)
    : model_name_(std::move(model_name)), engines_(engines), prefill_engines_(prefill_engines) {}

std::shared_ptr<const Fleet> FleetBuilder::build(std::span<Member* const> members,
                                                 std::int64_t unix_seconds) {
  choose_identity(members, unix_seconds);
  for (Member* member : members) {
    member->exclusion = member->info ? difference(*member->info) : std::string();
    if (member->info && member->exclusion.empty() && member->up) {
      learn(*member->info);
    }
  }
  auto fleet = std::make_shared<Fleet>();
  fleet->generation = ++generation_;
  if (identity_) {
    fleet->models.push_back(build_model(members));
  }
  return fleet;
}

/// Keeps the identity while a member of it is up; otherwise takes the first member that is up and
/// has a name.
void FleetBuilder::choose_identity(std::span<Member* const> members, std::int64_t unix_seconds) {
  Member* first = nullptr;
  for (Member* member : members) {
    if (!member->up || !member->info) {
      continue;
    }
    if (identity_ && difference(*member->info).empty()) {
      return;
    }
    const bool named = !model_name_.empty() || !member->info->served_model_name.empty();
    if (!first && named) {
      first = member;
    }
  }
  if (first) {
    adopt(*first->info, unix_seconds);
  }
}

void FleetBuilder::adopt(const engine::EngineInfo& info, std::int64_t unix_seconds) {
  identity_ = Identity{info.model_id, info.served_model_name, info.kv_block_size};
  created_ = unix_seconds;
  ++registrations_;
}

/// Fills what the identity's first engine did not know.
void FleetBuilder::learn(const engine::EngineInfo& info) {
  if (identity_->model_id.empty()) {
    identity_->model_id = info.model_id;
  }
  if (identity_->served_name.empty()) {
    identity_->served_name = info.served_model_name;
  }
  if (identity_->kv_block_size == 0) {
    identity_->kv_block_size = info.kv_block_size;
  }
}

std::string FleetBuilder::difference(const engine::EngineInfo& info) const {
  if (model_name_.empty() && info.served_model_name.empty()) {
    return "it reports no model name, and none was given with --model-name";
  }
  if (!identity_) {
    return {};
  }
  if (differs(info.model_id, identity_->model_id)) {
    return fmt::format("model id `{}` instead of `{}`", info.model_id, identity_->model_id);
  }
  if (model_name_.empty() && differs(info.served_model_name, identity_->served_name)) {
    return fmt::format("served name `{}` instead of `{}`", info.served_model_name,
                       identity_->served_name);
  }
  if (info.kv_block_size != 0 && identity_->kv_block_size != 0 &&
      info.kv_block_size != identity_->kv_block_size) {
    return fmt::format("KV block size {} instead of {}", info.kv_block_size,
                       identity_->kv_block_size);
  }
  return {};
}

std::shared_ptr<const Model> FleetBuilder::build_model(std::span<Member* const> members) const {
  auto model = std::make_shared<Model>();
  model->name = model_name_.empty() ? identity_->served_name : model_name_;
  model->model_id = identity_->model_id;
  model->kv_block_size = identity_->kv_block_size;
  model->created = created_;
  std::uint32_t any_limit = 0;
  for (const Member* member : members) {
    if (!member->info || !member->exclusion.empty()) {
      continue;
    }
    const std::uint32_t limit = member->info->max_model_len;
    if (limit != 0) {
      any_limit = any_limit == 0 ? limit : std::min(any_limit, limit);
      if (member->up) {
        model->context_length =
            model->context_length == 0 ? limit : std::min(model->context_length, limit);
      }
    }
    for (const std::string& alias : member->info->aliases) {
      if (model_name_.empty() && alias != model->name &&
          std::ranges::find(model->aliases, alias) == model->aliases.end()) {
        model->aliases.push_back(alias);
      }
    }
  }
  if (model->context_length == 0) {
    model->context_length = any_limit;
  }
  if (engines_ > 0) {
    model->worker_sets.push_back(build_set(members, false));
  }
  if (prefill_engines_ > 0) {
    model->worker_sets.push_back(build_set(members, true));
  }
  return model;
}

std::shared_ptr<const WorkerSet> FleetBuilder::build_set(std::span<Member* const> members,
                                                         bool prefill) const {
  auto set = std::make_shared<WorkerSet>();
  set->id = (registrations_ - 1) * kSetsPerModel + (prefill ? 2 : 1);
  set->role = prefill ? Role::Prefill : prefill_engines_ > 0 ? Role::Decode : Role::Aggregated;
  set->slot_count = prefill ? prefill_engines_ : engines_;
  for (const Member* member : members) {
    if (member->prefill == prefill && member->info && member->exclusion.empty()) {
      set->workers.push_back(make_worker(*member, set->role));
    }
  }
  std::ranges::sort(set->workers, {},
                    [](const std::shared_ptr<const Worker>& worker) { return worker->slot; });
  return set;
}

}  // namespace fairlead::fleet
