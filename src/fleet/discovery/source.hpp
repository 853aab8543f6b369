#pragma once

#include <functional>
#include <vector>

#include "fleet/card.hpp"

namespace fairlead::fleet {

/// A place that knows which workers exist: flags, a watched folder, later a store or a cluster.
/// Belongs to the control reactor; destroying it ends the watch.
class CardSource {
 public:
  /// Receives all valid cards of the source, each time something changed. Called in the control
  /// reactor, never inside `start`.
  using OnCards = std::function<void(std::vector<Card> cards)>;

  virtual ~CardSource() = default;
  /// Begins to watch, in the current reactor.
  virtual void start(OnCards on_cards) = 0;
};

}  // namespace fairlead::fleet
