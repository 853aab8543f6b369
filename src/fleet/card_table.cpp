#include "fleet/card_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fairlead::fleet {
namespace {

bool same_files(const Card& a, const Card& b) {
  return std::ranges::equal(a.files, b.files, [](const CardFile& left, const CardFile& right) {
    return left.name == right.name && left.checksum == right.checksum;
  });
}

}  // namespace

bool same_but_taints(const Card& a, const Card& b) {
  return a.key() == b.key() && a.backend == b.backend && a.endpoint == b.endpoint &&
         a.display_name == b.display_name && a.aliases == b.aliases &&
         a.source_path == b.source_path && a.role == b.role && a.needs == b.needs &&
         a.context_length == b.context_length && a.kv_block_size == b.kv_block_size &&
         a.total_kv_blocks == b.total_kv_blocks && a.max_batched_tokens == b.max_batched_tokens &&
         a.denied == b.denied && a.lora_name == b.lora_name &&
         a.max_gpu_lora_count == b.max_gpu_lora_count && same_files(a, b) &&
         json::dump(a.default_sampling) == json::dump(b.default_sampling);
}

bool same_content(const Card& a, const Card& b) {
  return same_but_taints(a, b) && a.taints == b.taints;
}

CardTable::Change CardTable::set(std::string_view source, std::vector<Card> cards) {
  Change change;
  still_refused_.clear();
  index(source, std::move(cards), change);
  drop_the_gone(change);
  take_the_rest(change);
  refused_ = std::exchange(still_refused_, {});
  return change;
}

std::vector<Card> CardTable::adapters_of(const std::string& base_key) const {
  std::vector<Card> out;
  const auto live = live_.find(base_key);
  if (live == live_.end()) {
    return out;
  }
  if (const auto found = adapters_.find(live->second.source); found != adapters_.end()) {
    const auto& cards = found->second;
    for (auto card = cards.lower_bound(base_key);
         card != cards.end() && card->first.starts_with(base_key); ++card) {
      if (card->second.base_key() == base_key) {
        out.push_back(card->second);
      }
    }
  }
  return out;
}

void CardTable::refuse(const Card& card, std::string reason, Change& change) {
  std::string line =
      fmt::format("card ignored: {} card={} endpoint={}", reason, card.key(), card.endpoint.url);
  if (!refused_.contains(line) && !still_refused_.contains(line)) {
    change.refused.push_back(line);
  }
  still_refused_.insert(std::move(line));
}

/// Sorts a source's cards into base and adapter cards.
void CardTable::index(std::string_view source, std::vector<Card> cards, Change& change) {
  std::map<std::string, Card> adapters;
  std::vector<Card> bases;
  for (Card& card : cards) {
    if (card.is_adapter()) {
      adapters.insert_or_assign(card.key(), std::move(card));
    } else {
      bases.push_back(std::move(card));
    }
  }
  auto& former = adapters_[std::string(source)];
  change.adapters = !std::ranges::equal(former, adapters, [](const auto& a, const auto& b) {
    return same_content(a.second, b.second);
  });
  former = std::move(adapters);
  bases_[std::string(source)] = std::move(bases);
}

/// Live cards that are no longer listed, or are listed for another engine, make room first.
void CardTable::drop_the_gone(Change& change) {
  std::map<std::string, const Card*> listed;  // source and key
  for (const auto& [source, cards] : bases_) {
    for (const Card& card : cards) {
      listed.try_emplace(source + '\n' + card.key(), &card);
    }
  }
  std::erase_if(live_, [&](const auto& entry) {
    const auto found = listed.find(entry.second.source + '\n' + entry.first);
    const bool stays = found != listed.end() &&
                       found->second->endpoint == entry.second.card.endpoint &&
                       found->second->backend == entry.second.card.backend;
    if (!stays) {
      engines_.erase(entry.second.card.endpoint.url);
      change.gone.push_back(entry.first);
    }
    return !stays;
  });
}

void CardTable::take_the_rest(Change& change) {
  for (const auto& [source, cards] : bases_) {
    std::set<std::string> seen;
    for (const Card& card : cards) {
      const std::string key = card.key();
      const auto live = live_.find(key);
      if (!seen.insert(key).second || (live != live_.end() && live->second.source != source)) {
        refuse(card, "another card has its key", change);
        continue;
      }
      if (live != live_.end()) {
        if (!same_content(live->second.card, card)) {
          live->second.card = card;
          change.changed.push_back(card);
        }
        continue;
      }
      if (card.endpoint.url.empty()) {
        refuse(card, "it names no engine", change);
        continue;
      }
      if (const auto [engine, free] = engines_.emplace(card.endpoint.url, key); !free) {
        refuse(card, fmt::format("card {} has its engine", engine->second), change);
        continue;
      }
      live_.emplace(key, Live{source, card});
      change.joined.push_back(card);
    }
  }
}

}  // namespace fairlead::fleet
