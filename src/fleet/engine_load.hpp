#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/client.hpp"
#include "fleet/endpoint.hpp"
#include "net/reactor.hpp"
#include "net/task.hpp"
#include "observe/metrics.hpp"

namespace fairlead::fleet {

/// Counts of all questions about engines' load. Written by the control thread, read by any.
class EngineLoadCounters {
 public:
  /// Counts one that was answered, or was not.
  void add(bool answered) { (answered ? answered_ : failed_).add(1); }
  /// How many were answered.
  std::int64_t answered() const { return answered_.get(); }
  /// How many were not.
  std::int64_t failed() const { return failed_.get(); }
  /// Appends `engine_load_polls_total`.
  void collect(observe::TextWriter& writer) const;

 private:
  observe::Cell answered_;
  observe::Cell failed_;
};

/// Whether and how engines are asked how full their KV caches are.
struct EngineLoadOptions {
  net::Duration interval = std::chrono::seconds(1);  ///< Between two questions to one engine.
  net::Duration timeout = std::chrono::seconds(2);   ///< For one answer.
  int most_failures = 3;  ///< After so many in a row the last answer is forgotten.
  /// Whether somebody wants to know, asked before each question; null: nobody ever does.
  std::function<bool()> wanted;
  /// Told the KV blocks in use at a rank; nothing when that is not known any more.
  std::function<void(WorkerId, std::uint32_t rank, std::optional<std::uint64_t> blocks)> report;
  /// Where questions are counted; shared with whoever reports it.
  std::shared_ptr<EngineLoadCounters> counters = std::make_shared<EngineLoadCounters>();
};

/// What one engine says of its load. Belongs to the control reactor; `options` outlive it.
class EngineLoad {
 public:
  /// Of the worker `id`.
  EngineLoad(const EngineLoadOptions& options, WorkerId id) : options_(options), id_(id) {}

  /// True when an engine of this kind is to be asked now.
  bool wanted(const engine::EngineClient& client) const {
    return client.reports_kv_usage() && options_.wanted && options_.wanted();
  }
  /// Asks once and reports the blocks of each rank, of `total_blocks` per rank.
  net::Task<> ask(engine::EngineClient& client, std::uint64_t total_blocks);
  /// Nothing that was reported counts any more.
  void forget();

 private:
  const EngineLoadOptions& options_;
  WorkerId id_;
  int failures_ = 0;                  // in a row
  std::vector<std::uint32_t> ranks_;  // that were reported
  std::uint64_t forgotten_ = 0;       // how often, so that a late answer is not reported
};

}  // namespace fairlead::fleet
