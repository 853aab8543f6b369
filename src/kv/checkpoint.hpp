#pragma once

#include <functional>
#include <optional>

#include "kv/event_normalizer.hpp"
#include "kv/recovery.hpp"

namespace fairlead::kv {

/// What a source knows besides the blocks, at one moment between two batches. With the blocks held
/// at that moment another process can go on following the source's engine from there.
struct Checkpoint {
  StreamPoint point;        ///< Where the view stands.
  NormalizerMemory memory;  ///< What was learned of the engine.
};

/// Gives checkpoints of a source while it lives, and nothing afterwards. Any thread.
class CheckpointGiver {
 public:
  virtual ~CheckpointGiver() = default;
  /// Calls `read` at a moment between two batches, for reading the blocks, and returns what belongs
  /// to it. Nothing, with `read` not called, when the view is not worth handing on.
  virtual std::optional<Checkpoint> checkpoint(const std::function<void()>& read) const = 0;
};

}  // namespace fairlead::kv
