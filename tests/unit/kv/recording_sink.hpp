#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kv/event_decoder.hpp"
#include "kv/event_normalizer.hpp"

namespace fairlead::kv::testing {

/// Remembers what it was told.
struct RecordingSink : EventSink {
  /// One call.
  struct Call {
    std::string what;                  ///< `stored`, `removed` or `cleared`.
    Tier tier = Tier::Device;          ///< Not of `cleared`.
    std::optional<EngineHash> parent;  ///< Of `stored`.
    std::vector<StoredBlock> blocks;   ///< Of `stored`.
    std::vector<EngineHash> hashes;    ///< Of `removed`.
  };

  void stored(Tier tier, std::optional<EngineHash> parent,
              std::span<const StoredBlock> blocks) override {
    calls.push_back({"stored", tier, parent, {blocks.begin(), blocks.end()}, {}});
  }
  void removed(Tier tier, std::span<const EngineHash> blocks) override {
    calls.push_back({"removed", tier, {}, {}, {blocks.begin(), blocks.end()}});
  }
  void cleared() override { calls.push_back({"cleared", Tier::Device, {}, {}, {}}); }

  std::vector<Call> calls;  ///< In order.
};

}  // namespace fairlead::kv::testing
