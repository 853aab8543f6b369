#pragma once

#include <map>
#include <optional>

#include "net/reactor.hpp"
#include "observe/metrics.hpp"

namespace fairlead::serving {

/// Notices that decode engines compute prompts again instead of taking over what prefill engines
/// hand them: a connector that is set up wrong costs twice and fails nobody. Belongs to one
/// reactor.
class RemoteKvWatch {
 public:
  /// So long without a single cache that was used is worth a warning, and so long until the next.
  static constexpr net::Duration kSpan = std::chrono::minutes(1);

  /// A decode leg of the model that `shard` counts has ended; it had `used` some of the cache.
  /// True when it is time to warn.
  bool note(const observe::ModelShard& shard, bool used, net::TimePoint now) {
    std::optional<net::TimePoint>& since = unused_since_[&shard];
    if (used) {
      since.reset();
      return false;
    }
    if (!since) {
      since = now;
      return false;
    }
    if (now - *since < kSpan) {
      return false;
    }
    since = now;
    return true;
  }

 private:
  std::map<const observe::ModelShard*, std::optional<net::TimePoint>> unused_since_;
};

}  // namespace fairlead::serving
