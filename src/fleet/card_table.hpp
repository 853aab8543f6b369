#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/card.hpp"

namespace fairlead::fleet {

/// True when the cards say the same, capabilities and all.
bool same_content(const Card& a, const Card& b);
/// The same, whatever their taints: these may change in one life of a worker.
bool same_but_taints(const Card& a, const Card& b);

/// The cards of all sources, and which of them count. A card whose key or engine another live card
/// has already does not; it is taken up when the other one goes.
///
/// A card that appears anew under its key with other content stands for another life of its worker:
/// the former one is over and the new one begins in the same step. A source that lists its cards
/// cannot tell a change from a removal and a return, so both are treated alike.
class CardTable {
 public:
  /// What a new list of cards changes.
  struct Change {
    std::vector<std::string> gone;     ///< Keys of cards that no longer count.
    std::vector<Card> joined;          ///< Base cards that now count, in order.
    std::vector<Card> changed;         ///< Base cards with other content under the same key and
                                       ///< for the same engine; in order.
    std::vector<std::string> refused;  ///< New reasons to ignore a card, one line each.
    bool adapters = false;             ///< Adapter cards are not what they were.

    /// True when nothing changes.
    bool empty() const { return gone.empty() && joined.empty() && changed.empty() && !adapters; }
  };

  /// Replaces the cards of one source.
  Change set(std::string_view source, std::vector<Card> cards);
  /// The adapter cards of a live base card, in the order of their keys.
  std::vector<Card> adapters_of(const std::string& base_key) const;

 private:
  struct Live {
    std::string source;
    Card card;
  };
  void refuse(const Card& card, std::string reason, Change& change);
  void index(std::string_view source, std::vector<Card> cards, Change& change);
  void drop_the_gone(Change& change);
  void take_the_rest(Change& change);

  std::map<std::string, std::map<std::string, Card>, std::less<>> adapters_;  // source → key
  std::map<std::string, std::vector<Card>, std::less<>> bases_;               // source → in order
  std::map<std::string, Live> live_;                                          // by key
  std::map<std::string, std::string> engines_;                                // url → live key
  std::set<std::string> refused_;  // lines of this and the last time
  std::set<std::string> still_refused_;
};

}  // namespace fairlead::fleet
