#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fairlead::fleet {

/// A public name that a model wants.
struct NameClaim {
  std::string name;   ///< Primary name or alias.
  std::string owner;  ///< Who wants it: unique per model, the same through all snapshots.
  std::string what;   ///< For people: `model`, `alias`, `adapter`.
};

/// Public names are given out first come, first served: who holds one keeps it for as long as it
/// wants it, whatever others ask for, as primary name or as alias.
class NameClaims {
 public:
  /// Forgets what was granted in this round, keeps who held what in the last.
  void begin_round();
  /// Says that a claim will be made in this round, so that its former holder keeps the name. All
  /// announcements come before the first `take`.
  void announce(const NameClaim& claim);
  /// Takes the name unless another owner holds it. A refusal that is new goes to `errors`.
  bool take(const NameClaim& claim, std::vector<std::string>& errors);
  /// Who holds a name in this round; empty when nobody does.
  std::string_view holder(std::string_view name) const;

 private:
  std::map<std::string, std::string, std::less<>> held_;         // name → owner
  std::map<std::string, std::string, std::less<>> former_;       // of the last round
  std::set<std::pair<std::string, std::string>> refused_;        // (name, owner), logged
  std::set<std::pair<std::string, std::string>> still_refused_;  // of this round
};

}  // namespace fairlead::fleet
