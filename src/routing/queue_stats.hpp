#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "observe/metrics.hpp"
#include "routing/policy_classes.hpp"

// What the queues of worker sets count, and how it is written.

namespace fairlead::routing {

/// The limit that a refused request met.
enum class QueueLimit : std::uint8_t {
  AllClasses,    ///< Requests of the worker set, whatever their class.
  Requests,      ///< Requests of its class.
  PromptTokens,  ///< Prompt tokens of its class.
  CachedTokens,  ///< Cached tokens of its class.
  kCount,        ///< Number of limits.
};

/// Value of the label `reason`.
std::string_view label(QueueLimit limit);

/// Times that requests waited, as a histogram. Not thread-safe.
class WaitTimes {
 public:
  /// Upper bounds in seconds.
  static constexpr std::array kBounds{0.001, 0.005, 0.01, 0.025, 0.05, 0.1,  0.25, 0.5,
                                      1.0,   2.5,   5.0,  10.0,  30.0, 60.0, 300.0};
  /// Counts one.
  void add(double seconds);
  /// Counts all of the others'.
  void add(const WaitTimes& more);
  /// Writes the samples of a histogram.
  void write(observe::TextWriter& writer, std::string_view labels) const;

 private:
  std::array<std::int64_t, kBounds.size() + 1> counts_{};
  double sum_ = 0;
};

/// What one policy class has seen.
struct QueueClassStats {
  std::uint64_t waiting = 0;  ///< Requests now.
  std::uint64_t queued = 0;   ///< Ever added.
  std::array<std::uint64_t, static_cast<std::size_t>(QueueLimit::kCount)> refused{};  ///< By limit.
  WaitTimes waited;  ///< Of those that left, sent or not.
};

/// State of one worker set's queue.
struct QueueStats {
  std::string model;                             ///< Base model.
  std::shared_ptr<const PolicyProfile> profile;  ///< Names the classes; null: there is no queue.
  std::vector<QueueClassStats> classes;          ///< By class.
};

/// The queues of many worker sets, added up. Not thread-safe.
class QueueReport {
 public:
  /// Adds a set's queue; those that are alike in model and worker type are one in the metrics.
  void add(std::string_view worker_type, const QueueStats& stats);
  /// Writes all families.
  void write(observe::TextWriter& writer) const;

 private:
  using Key = std::pair<std::string_view, std::string>;  // worker type, model

  std::map<Key, QueueStats> queues_;
};

}  // namespace fairlead::routing
