#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "kv/target_set.hpp"

namespace fairlead::routing {

/// Prompt tokens of one request, as they were believed to be cached and as they were.
struct CacheSample {
  std::uint32_t prompt = 0;     ///< All of them.
  std::uint32_t confirmed = 0;  ///< Cached by the engine's events; without events `believed`.
  std::uint32_t believed = 0;   ///< Cached by events or by what was routed lately.
  std::uint32_t actual = 0;     ///< As the engine reports.
};

/// How well a target's view agrees with its engine.
struct CacheScore {
  std::uint64_t requests = 0;         ///< Compared.
  std::uint64_t prompt_tokens = 0;    ///< Theirs.
  std::uint64_t believed_tokens = 0;  ///< Sum of `believed`.
  std::uint64_t actual_tokens = 0;    ///< Sum of `actual`.
  double error = 0;                   ///< Share of the prompt that was wrong, of the last requests.
  std::uint32_t recent = 0;           ///< Requests in `error`, at most `kRecentSamples`.

  /// True when the view was wrong persistently.
  bool wrong() const;
};

/// Requests over which the error is averaged.
inline constexpr std::uint32_t kRecentSamples = 32;
/// Share of prompts from which on a view is wrong.
inline constexpr double kWrongShare = 0.2;

/// Compares what was believed to be cached with what engines report, per target. Thread-safe.
class KvTruth {
 public:
  /// One request has told how much of its prompt was cached. Wrong are confirmed tokens that were
  /// not there and tokens there that nobody knew of. What was only routed lately and is not there
  /// is no error where there are events: the engine may have been computing it at that very time.
  void note(kv::TargetId target, const CacheSample& sample);
  /// What is known of a target.
  CacheScore score(kv::TargetId target) const;
  /// Forgets a target, for its id goes to another one.
  void forget(kv::TargetId target);
  /// Begins the average anew; the totals stay.
  void forgive(kv::TargetId target);

 private:
  mutable std::mutex mutex_;
  std::vector<CacheScore> scores_;  // by target
};

}  // namespace fairlead::routing
