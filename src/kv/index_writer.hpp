#pragma once

#include <optional>
#include <span>

#include "kv/event_normalizer.hpp"
#include "kv/index.hpp"
#include "observe/metrics.hpp"

namespace fairlead::kv {

/// Writes what one source's events mean into one target of an index. One thread writes; the
/// counters may be read by any.
class IndexWriter final : public EventSink {
 public:
  /// Stored events by how they ended.
  struct Counters {
    observe::Cell stored;          ///< Whole.
    observe::Cell unknown_parent;  ///< Dropped: the target does not hold the parent.
    observe::Cell full;            ///< Cut short for want of memory.
    observe::Cell unknown_target;  ///< Dropped: the target is gone.
  };

  /// `index` outlives the writer; `target` is one of its targets.
  IndexWriter(KvIndex& index, TargetId target) : index_(index), target_(target) {}

  void stored(Tier tier, std::optional<EngineHash> parent,
              std::span<const StoredBlock> blocks) override;
  void removed(Tier tier, std::span<const EngineHash> blocks) override;
  void cleared() override;

  /// Where it writes.
  TargetId target() const { return target_; }
  /// Totals.
  const Counters& counters() const { return counters_; }

 private:
  KvIndex& index_;
  TargetId target_;
  Counters counters_;
};

}  // namespace fairlead::kv
