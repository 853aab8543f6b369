#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "fleet/worker.hpp"
#include "routing/active_sequences.hpp"
#include "routing/cost.hpp"
#include "routing/min_tree.hpp"

namespace fairlead::routing {

/// From when on a worker gets no further requests; each check is off until set. A worker is
/// overloaded when every rank of it is beyond some threshold.
struct BusyThresholds {
  /// Share of a rank's KV blocks, 0 to 1: those its engine reports in use, or those booked here.
  std::optional<double> active_decode_blocks = {};
  std::optional<std::int64_t> active_prefill_tokens = {};  ///< Tokens queued for prefill.
  /// The same as a multiple of the engine's tokens per step (10,000,000 when it names none).
  std::optional<double> active_prefill_tokens_frac = {};
  bool operator==(const BusyThresholds&) const = default;
  /// True when some check is on.
  bool any() const {
    return active_decode_blocks || active_prefill_tokens || active_prefill_tokens_frac;
  }
};

/// An engine's tokens per step, for thresholds that are multiples of it. One that names none (0)
/// takes so much that it is never beyond them.
inline double batch_tokens(std::uint64_t reported) {
  constexpr double kUnknown = 10'000'000;
  return reported > 0 ? static_cast<double>(reported) : kUnknown;
}

/// What becomes of thresholds. Absent: stays as it is; present without a value: no such threshold.
struct ThresholdChange {
  std::optional<std::optional<double>> active_decode_blocks = {};         ///< See BusyThresholds.
  std::optional<std::optional<std::int64_t>> active_prefill_tokens = {};  ///< Likewise.
  std::optional<std::optional<double>> active_prefill_tokens_frac = {};   ///< Likewise.
  bool operator==(const ThresholdChange&) const = default;
};

/// What one running request has booked at its target.
struct KvBooking {
  TargetIndex target = 0;                        ///< Where.
  ActiveSequences::Node* leaf = nullptr;         ///< Its prompt among the active ones.
  std::uint32_t untracked = 0;                   ///< Prompt blocks counted without it.
  std::int64_t prefill_tokens = 0;               ///< Until its prefill is complete.
  std::int64_t output_weight = 0;                ///< Of its own blocks, see KvLoads.
  std::uint32_t prompt_tokens = 0;               ///< For block boundaries of its output.
  std::uint32_t block_size = 0;                  ///< Likewise.
  std::uint32_t output_tokens = 0;               ///< So far.
  std::uint32_t output_blocks = 0;               ///< Booked for them.
  std::optional<std::uint32_t> expected_output;  ///< Tokens.
  bool trial = false;                            ///< Let through by a half-open circuit.
};

/// Load of every target of one worker set, kept by booking. Not thread-safe: its owner locks.
///
/// Weights below 1 (blocks that only one request uses fade as it nears its expected length) are
/// kept in units of 2⁻²⁰ blocks, so that what is taken back is exactly what was booked.
class KvLoads {
 public:
  /// One rank of one worker.
  struct Target {
    std::uint64_t worker_id = 0;      ///< Its worker; 0 = not in use.
    std::uint32_t slot = 0;           ///< Its worker's.
    std::uint32_t rank = 0;           ///< Data-parallel rank.
    std::uint32_t requests = 0;       ///< Running.
    bool routable = false;            ///< Its worker is in the set and healthy, and is not being
                                      ///< tried by another request.
    bool overloaded = false;          ///< Its worker is.
    bool retired = false;             ///< Its worker left; freed when the last request ends.
    std::int64_t prefill_tokens = 0;  ///< Of prompts not computed yet.
    std::int64_t blocks = 0;          ///< Of prompts, each once.
    std::int64_t fraction = 0;        ///< 2⁻²⁰ blocks: outputs, less what prompts have faded.
    std::optional<std::uint64_t> used_blocks = {};  ///< As the engine reports, if it does.

    /// Blocks occupied, outputs and weights included.
    std::int64_t active_blocks() const {
      return blocks + ((fraction + (std::int64_t{1} << 19U)) >> 20U);
    }
  };
  /// A worker of the set.
  struct Place {
    std::shared_ptr<const fleet::Worker> worker;  ///< Null when the slot is empty.
    std::uint32_t first_rank = 0;                 ///< Of the worker.
    std::vector<TargetIndex> targets;             ///< By rank from there on.
    std::uint32_t trials = 0;                     ///< Running ones; see KvBooking.
  };

  /// Costs are ordered as `config` has them.
  explicit KvLoads(const KvRouterConfig& config) : config_(config) {}

  /// Follows a snapshot of the set: O(workers) when it changed.
  void sync(const fleet::WorkerSet& set);
  /// From when on workers are overloaded.
  void set_thresholds(const BusyThresholds& thresholds);
  /// Blocks in use as an engine reports them, or nothing any more; ignored for unknown targets.
  void report_used(std::uint64_t worker_id, std::uint32_t rank,
                   std::optional<std::uint64_t> blocks);
  /// Tokens per block, for the order by cost.
  void set_block_size(std::uint32_t block_size);

  /// All targets, retired and free ones included.
  std::span<const Target> targets() const { return targets_; }
  /// Workers by slot.
  std::span<const Place> places() const { return places_; }
  /// The slot of a worker of the set.
  std::optional<std::uint32_t> slot_of(std::uint64_t worker_id) const;
  /// The target of a rank, or nothing.
  std::optional<TargetIndex> find(std::uint32_t slot, std::uint32_t rank) const;
  /// Targets that may be taken, by the cost of a request without a prompt.
  const MinTree& order() const { return order_; }
  /// The prompts that run.
  const ActiveSequences& sequences() const { return sequences_; }
  /// Tokens per block.
  std::uint32_t block_size() const { return block_size_; }
  /// By slot, whether the worker has an adapter. Valid until the next `sync`.
  const std::vector<bool>& with_adapter(std::string_view adapter);

  /// Books a request: prompt blocks that no other request at the target has, `booking.untracked`
  /// and `booking.prefill_tokens`. `path` is the prompt's and becomes invalid.
  void book(KvBooking& booking, std::span<const kv::SequenceHash> prompt,
            ActiveSequences::Path& path);
  /// Its prompt is computed.
  void prefill_complete(KvBooking& booking);
  /// Books its output up to now.
  void grow(KvBooking& booking);
  /// Gives everything back.
  void release(KvBooking& booking);
  /// True when no request runs.
  bool idle() const;

 private:
  TargetIndex allot(const fleet::Worker& worker, std::uint32_t slot, std::uint32_t rank);
  void occupy(Place& place, std::shared_ptr<const fleet::Worker> worker);
  void vacate(Place& place);
  void decide_routable(const Place& place);
  bool beyond(const Target& target, const fleet::Worker& worker) const;
  void update(TargetIndex index);
  void update_place(const Place& place);
  void reorder(TargetIndex index);

  KvRouterConfig config_;
  BusyThresholds thresholds_;
  std::uint32_t block_size_ = 16;
  std::vector<Target> targets_;
  std::vector<TargetIndex> free_;
  std::vector<TargetIndex> retired_;
  std::vector<Place> places_;
  std::unordered_map<std::uint64_t, std::uint32_t> slots_;
  std::map<std::string, std::vector<bool>, std::less<>> adapters_;
  MinTree order_;
  ActiveSequences sequences_;
};

}  // namespace fairlead::routing
