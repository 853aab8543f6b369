#include "fleet/fleet_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace fairlead::fleet {
namespace {

std::uint32_t smaller_known(std::uint32_t a, std::uint32_t b) {
  return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
}

std::string adapter_owner(const std::string& base, const std::string& name) {
  return fmt::format("`{}` of `{}`", name, base);
}

}  // namespace

FleetBuilder::FleetBuilder(std::string model_name, net::Duration succession_after,
                           bool decode_alone)
    : model_name_(std::move(model_name)),
      succession_after_(succession_after),
      decode_alone_(decode_alone) {}

BuiltFleet FleetBuilder::build(std::span<Member* const> members, net::TimePoint now,
                               std::int64_t unix_seconds) {
  BuiltFleet out;
  choose_groups(members, now, out);
  gather_drafts();
  for (auto& [name, draft] : drafts_) {
    fill(name, draft, unix_seconds);
    gather_adapters(draft);
  }
  auto fleet = std::make_shared<Fleet>();
  fleet->generation = ++generation_;
  claim_names(out.errors);
  add_base_models(*fleet, out.errors);
  add_adapters(*fleet, unix_seconds, out.errors);
  forget_the_gone(*fleet);
  out.fleet = std::move(fleet);
  return out;
}

const std::string& FleetBuilder::name_of(const Member& member) const {
  if (!member.card.display_name.empty()) {
    return member.card.display_name;
  }
  return model_name_.empty() ? member.info->served_model_name : model_name_;
}

/// Excludes a member; the reason is an error when it is new.
void FleetBuilder::leave_out(Member& member, std::string_view why, std::string reason,
                             std::vector<std::string>& errors) const {
  const std::string line = fmt::format("{}\n{}", member.key, reason);
  if (!left_out_.contains(line)) {
    errors.push_back(fmt::format("engine left out: {} endpoint={} reason=\"{}\"", why,
                                 member.card.endpoint.url, reason));
  }
  member.exclusion = std::move(reason);
}

/// What each probed member does, and with whom it is to be interchangeable.
FleetBuilder::Grouped FleetBuilder::sort_members(std::span<Member* const> members,
                                                 std::vector<std::string>& errors) {
  Grouped grouped;
  std::set<std::string> left_out;
  for (Member* member : members) {
    member->exclusion.clear();
    if (!member->info) {
      continue;
    }
    member->duty = duty_of(member->card, member->checksum, *member->info, decode_alone_);
    const std::string& name = name_of(*member);
    if (name.empty()) {
      leave_out(*member, "it has no name",
                "it reports no model name, and none was given with --model-name", errors);
    } else if (!member->duty.contradiction.empty()) {
      leave_out(*member, "its role is not the one it was named for", member->duty.contradiction,
                errors);
    } else {
      GroupKey key{.model = name, .name_space = member->card.name_space, .role = member->duty.role};
      grouped[std::move(key)].push_back(member);
      continue;
    }
    left_out.insert(fmt::format("{}\n{}", member->key, member->exclusion));
  }
  left_out_ = std::move(left_out);
  return grouped;
}

/// Takes out whoever could not hand over to its peers. Where only one of both roles is there yet
/// nobody is judged.
void FleetBuilder::choose_peers(const Grouped& grouped, std::span<Member* const> members,
                                net::TimePoint now, BuiltFleet& out) {
  std::map<std::pair<std::string, std::string>, std::vector<Member*>> pairs;
  for (const auto& [key, of_group] : grouped) {
    if (key.role == Role::Prefill && grouped.contains({key.model, key.name_space, Role::Decode})) {
      pairs[{key.model, key.name_space}] = {};
    }
  }
  std::erase_if(pairings_, [&](const auto& entry) { return !pairs.contains(entry.first); });
  for (Member* member : pairs.empty() ? std::span<Member* const>() : members) {
    if (!member->info || !member->exclusion.empty() || member->duty.role == Role::Aggregated) {
      continue;
    }
    if (const auto pair = pairs.find({name_of(*member), member->card.name_space});
        pair != pairs.end()) {
      pair->second.push_back(member);
    }
  }
  for (const auto& [key, of_pair] : pairs) {
    Pairing& pairing = pairings_.try_emplace(key, key.first, key.second).first->second;
    pairing.choose(of_pair, now, succession_after_, out.errors);
    if (const auto at = pairing.succession_at(); at && (!out.again_at || *at < *out.again_at)) {
      out.again_at = at;
    }
  }
}

/// Sorts the members into groups and lets each decide who serves.
void FleetBuilder::choose_groups(std::span<Member* const> members, net::TimePoint now,
                                 BuiltFleet& out) {
  Grouped grouped = sort_members(members, out.errors);
  choose_peers(grouped, members, now, out);
  for (auto& [key, of_group] : grouped) {
    std::erase_if(of_group, [](const Member* member) { return !member->exclusion.empty(); });
  }
  std::erase_if(grouped, [](const auto& entry) { return entry.second.empty(); });
  std::erase_if(groups_, [&](const auto& entry) { return !grouped.contains(entry.first); });
  for (const auto& [key, of_group] : grouped) {
    auto& group = groups_[key];
    if (!group) {
      group = std::make_unique<Group>(key, decode_alone_ && key.role == Role::Prefill);
    }
    group->choose(of_group, now, succession_after_, next_set_id_, out.errors);
    if (const auto at = group->succession_at(); at && (!out.again_at || *at < *out.again_at)) {
      out.again_at = at;
    }
  }
}

/// One draft per model that has a serving group; sets in the order of their ids, so that the oldest
/// comes first.
void FleetBuilder::gather_drafts() {
  drafts_.clear();
  for (const auto& [key, group] : groups_) {
    if (group->serves()) {
      drafts_[key.model].groups.push_back(group.get());
    }
  }
  for (auto& [name, draft] : drafts_) {
    std::ranges::sort(draft.groups, {}, &Group::set_id);
    if (std::ranges::find(order_, name) == order_.end()) {
      order_.push_back(name);
    }
  }
}

std::vector<std::string> FleetBuilder::aliases_of(const Draft& draft) const {
  std::vector<std::string> out;
  const auto add = [&](const std::vector<std::string>& aliases) {
    for (const std::string& alias : aliases) {
      if (!alias.empty() && alias != draft.model->name &&
          std::ranges::find(out, alias) == out.end()) {
        out.push_back(alias);
      }
    }
  };
  for (const Group* group : draft.groups) {
    for (const Member* member : group->committed()) {
      add(member->card.aliases);
      if (member->card.display_name.empty() && model_name_.empty()) {
        add(member->info->aliases);
      }
    }
  }
  return out;
}

void FleetBuilder::fill(const std::string& name, Draft& draft, std::int64_t unix_seconds) {
  auto model = std::make_shared<Model>();
  model->name = name;
  model->created = registered(name, unix_seconds);
  std::uint32_t any_limit = 0;
  for (Group* group : draft.groups) {
    if (model->model_id.empty()) {
      model->model_id = group->model_id();
    }
    if (model->kv_block_size == 0) {
      model->kv_block_size = group->kv_block_size();
    }
    for (const Member* member : group->committed()) {
      const std::uint32_t limit =
          smaller_known(member->info->max_model_len, member->card.context_length);
      any_limit = smaller_known(any_limit, limit);
      if (member->up) {
        model->context_length = smaller_known(model->context_length, limit);
      }
      if (model->source_path.empty()) {
        model->source_path = member->card.source_path;
      }
      if (model->default_sampling.is_null()) {
        model->default_sampling = member->card.default_sampling;
      }
    }
    model->worker_sets.push_back(group->build_set());
  }
  if (model->context_length == 0) {
    model->context_length = any_limit;
  }
  draft.model = std::move(model);
  draft.model->aliases = aliases_of(draft);
}

/// Cards name an adapter for the public and say where its files are; what only an engine reports
/// is public under the engine's name.
void FleetBuilder::gather_adapters(Draft& draft) const {
  std::set<std::string> named_by_cards;
  for (const Group* group : draft.groups) {
    for (const Member* member : group->committed()) {
      for (const Card& card : member->adapters) {
        const std::string& name = card.display_name.empty() ? card.lora_name : card.display_name;
        named_by_cards.insert(card.lora_name);
        draft.adapters.try_emplace(name, Adapter{.lora_name = card.lora_name,
                                                 .source_path = card.source_path,
                                                 .aliases = card.aliases});
      }
    }
  }
  for (const Group* group : draft.groups) {
    for (const Member* member : group->committed()) {
      const engine::EngineInfo& info = *member->info;
      for (std::size_t i = 0; i < info.lora_adapters.size(); ++i) {
        const std::string& lora = info.lora_adapters[i];
        if (!lora.empty() && !named_by_cards.contains(lora)) {
          std::string path = i < info.lora_paths.size() ? info.lora_paths[i] : std::string();
          draft.adapters.try_emplace(
              lora, Adapter{.lora_name = lora, .source_path = std::move(path), .aliases = {}});
        }
      }
    }
  }
}

/// First everybody who held a name says that it still wants it, then names are given out: primary
/// names before aliases before adapters, each in order of registration.
void FleetBuilder::claim_names(std::vector<std::string>& errors) {
  names_.begin_round();
  std::erase_if(order_, [&](const std::string& name) { return !drafts_.contains(name); });
  for (const auto& [name, draft] : drafts_) {
    names_.announce({name, name, "model"});
    for (const std::string& alias : draft.model->aliases) {
      names_.announce({alias, name, "alias"});
    }
    for (const auto& [adapter, details] : draft.adapters) {
      names_.announce({adapter, adapter_owner(name, adapter), "adapter"});
      for (const std::string& alias : details.aliases) {
        names_.announce({alias, adapter_owner(name, adapter), "alias"});
      }
    }
  }
  for (const std::string& name : order_) {
    Draft& draft = drafts_.at(name);
    draft.refused = !names_.take({name, name, "model"}, errors);
    if (!draft.refused) {
      continue;
    }
    for (Group* group : draft.groups) {
      for (Member* member : group->committed()) {
        member->exclusion =
            fmt::format("the name `{}` is held by the model `{}`", name, names_.holder(name));
      }
    }
  }
}

void FleetBuilder::add_base_models(Fleet& fleet, std::vector<std::string>& errors) {
  for (const std::string& name : order_) {
    Draft& draft = drafts_.at(name);
    if (draft.refused) {
      continue;
    }
    std::erase_if(draft.model->aliases, [&](const std::string& alias) {
      return !names_.take({alias, name, "alias"}, errors);
    });
    fleet.models.push_back(draft.model);
  }
}

void FleetBuilder::add_adapters(Fleet& fleet, std::int64_t unix_seconds,
                                std::vector<std::string>& errors) {
  for (const std::string& base : order_) {
    Draft& draft = drafts_.at(base);
    if (draft.refused) {
      continue;
    }
    for (const auto& [name, details] : draft.adapters) {
      const std::string owner = adapter_owner(base, name);
      if (!names_.take({name, owner, "adapter"}, errors)) {
        continue;
      }
      auto model = std::make_shared<Model>(*draft.model);
      model->name = name;
      model->base_name = base;
      model->lora_name = details.lora_name;
      model->source_path = details.source_path;
      model->created = registered(owner, unix_seconds);
      model->aliases.clear();
      for (const std::string& alias : details.aliases) {
        if (alias != name && names_.take({alias, owner, "alias"}, errors)) {
          model->aliases.push_back(alias);
        }
      }
      fleet.models.push_back(std::move(model));
    }
  }
}

std::int64_t FleetBuilder::registered(const std::string& owner, std::int64_t unix_seconds) {
  return created_.try_emplace(owner, unix_seconds).first->second;
}

void FleetBuilder::forget_the_gone(const Fleet& fleet) {
  std::set<std::string> owners;
  for (const auto& model : fleet.models) {
    owners.insert(model->base_name.empty() ? model->name
                                           : adapter_owner(model->base_name, model->name));
  }
  std::erase_if(created_, [&](const auto& entry) { return !owners.contains(entry.first); });
  drafts_.clear();
}

}  // namespace fairlead::fleet
