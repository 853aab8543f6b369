#include "fleet/flag_cards.hpp"

#include <fmt/format.h>

namespace fairlead::fleet {
namespace {

Card card_of(const NamedEngine& engine, Role role) {
  Card card;
  card.component = role == Role::Prefill ? "prefill" : "backend";
  card.instance_id = fmt::format("{:x}", worker_id(engine.endpoint.url));
  card.backend = engine.backend;
  card.endpoint = engine.endpoint;
  card.role = role;
  return card;
}

}  // namespace

std::vector<Card> flag_cards(std::span<const NamedEngine> engines,
                             std::span<const NamedEngine> prefill_engines) {
  std::vector<Card> cards;
  cards.reserve(engines.size() + prefill_engines.size());
  const Role role = prefill_engines.empty() ? Role::Aggregated : Role::Decode;
  for (const NamedEngine& engine : engines) {
    Card& card = cards.emplace_back(card_of(engine, role));
    if (role == Role::Decode) {
      card.needs = {{Role::Prefill}};
    }
  }
  for (const NamedEngine& engine : prefill_engines) {
    cards.emplace_back(card_of(engine, Role::Prefill)).needs = {{Role::Decode}};
  }
  return cards;
}

}  // namespace fairlead::fleet
