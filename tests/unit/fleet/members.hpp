#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fleet/fleet_builder.hpp"

namespace fairlead::fleet::testing {

/// Members that tests change between snapshots.
struct Members {
  std::vector<std::unique_ptr<Member>> owned;
  std::vector<Member*> all;
  int ports = 1000;

  /// One more that is up, of the model `m`.
  Member& add(Role role = Role::Aggregated) {
    auto member = std::make_unique<Member>();
    Card card;
    card.endpoint = *parse_endpoint("10.0.0.1:" + std::to_string(ports));
    card.instance_id = std::to_string(ports++);
    card.role = role;
    member->id = worker_id(card.endpoint.url);
    member->up = true;
    member->info.emplace();
    member->info->model_id = "id";
    member->info->served_model_name = "m";
    member->info->kv_block_size = 16;
    set_card(*member, std::move(card));
    all.push_back(member.get());
    owned.push_back(std::move(member));
    return *owned.back();
  }
  /// Gives a member another card.
  static void set_card(Member& member, Card card) {
    member.key = card.key();
    member.checksum = card.checksum();
    member.card = std::move(card);
  }
  /// Changes a member's card in place.
  template <class Change>
  static void change_card(Member& member, Change&& change) {
    Card card = member.card;
    change(card);
    set_card(member, std::move(card));
  }
  /// Takes a member out.
  void remove(const Member& member) {
    std::erase(all, &member);
    std::erase_if(owned, [&](const auto& other) { return other.get() == &member; });
  }
};

}  // namespace fairlead::fleet::testing
