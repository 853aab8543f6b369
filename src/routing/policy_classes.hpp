#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

// Policy classes: which waiting requests share a queue, in what order each class serves its own,
// and when it makes requests wait. Read once from the policy file; immutable then.

namespace fairlead::routing {

/// Order of the requests of one class, after their strict priority.
enum class QueuePolicy : std::uint8_t {
  Fcfs,  ///< Earliest first; a priority of p counts as p seconds earlier.
  Lcfs,  ///< Latest first; a priority of p counts as p seconds later.
  Wspt,  ///< Most (1 + priority) per uncached token first.
};

/// Parses `fcfs`, `lcfs` or `wspt`.
std::optional<QueuePolicy> parse_queue_policy(std::string_view text);

/// One queue and its rules. Limits are multiplied by the number of workers.
struct PolicyClass {
  std::string name;                                          ///< Unique in its profile.
  QueuePolicy policy = QueuePolicy::Fcfs;                    ///< Order within.
  std::uint32_t quantum = 1;                                 ///< Uncached tokens per turn, not 0.
  std::optional<std::uint64_t> prefill_busy_threshold = {};  ///< Prefill tokens of a busy target.
  /// The same as a multiple of the engine's tokens per step. Either makes a target busy.
  std::optional<double> prefill_busy_threshold_frac = {};
  std::optional<double> busy_worker_ratio = {};  ///< Share that must be busy; unset = all.
  std::optional<std::uint64_t> request_queue_limit_per_worker = {};        ///< Requests.
  std::optional<std::uint64_t> raw_isl_token_queue_limit_per_worker = {};  ///< Prompt tokens.
  std::optional<std::uint64_t> cached_token_queue_limit_per_worker = {};   ///< Cached tokens.

  /// False when no threshold is set: requests of the class never wait.
  bool queues() const { return prefill_busy_threshold || prefill_busy_threshold_frac; }
};

/// True when a target with so many prefill tokens booked is busy for a class.
/// `max_batched_tokens` is its engine's; 0 = it names none, which counts as 10,000,000.
bool target_busy(const PolicyClass& policy_class, std::int64_t prefill_tokens,
                 std::uint64_t max_batched_tokens);
/// True when so many busy ones of the targets that a request may go to make it wait. Never when
/// there is no such target: the choice then says why.
bool pool_busy(const PolicyClass& policy_class, std::size_t busy, std::size_t eligible);

/// What the flags say for models that the policy file does not cover.
struct QueueOptions {
  std::optional<double> threshold = {};    ///< --router-queue-threshold: multiple of the engine's
                                           ///< tokens per step; unset = nothing waits.
  QueuePolicy policy = QueuePolicy::Fcfs;  ///< --router-queue-policy.
  std::size_t limit = 8192;                ///< --router-queue-limit: requests that may wait for one
                                           ///< worker set, all classes together.
};

/// InvalidRequest, naming the flag as `param`, when a value is out of range.
Result<> validate(const QueueOptions& options);

/// The classes of one model and how a request gets its own.
class PolicyProfile {
 public:
  /// One class `default` by the flags; every request is of it.
  static PolicyProfile single(const QueueOptions& options);

  /// In the order of the file. Never empty.
  std::span<const PolicyClass> classes() const { return classes_; }
  /// Index of a request's class. `requested` is the client's header: the name of a class without
  /// family and bucket is that class; the name of a family, or else the default one, and the bucket
  /// of `uncached_tokens` give the class. Other names, those of classes with a family too, count as
  /// no header.
  std::size_t classify(std::string_view requested, std::uint32_t uncached_tokens) const;

 private:
  friend class PolicyReader;
  using Indices = std::map<std::string, std::size_t, std::less<>>;

  std::vector<PolicyClass> classes_;
  Indices explicit_;                      // classes without family, by name
  Indices families_;                      // rows of table_, by name
  std::size_t default_family_ = 0;        // row
  std::vector<std::uint32_t> floors_{0};  // of buckets: columns of table_
  std::vector<std::size_t> table_;        // class by family and bucket
};

/// All profiles of a process.
class PolicyConfig {
 public:
  /// Bound of the policy file in bytes.
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

  /// No file: all models have the one class of the flags, which must be valid.
  explicit PolicyConfig(const QueueOptions& options);
  /// Reads the text of a policy file, YAML or JSON. Strict: InvalidRequest with one line that names
  /// the field for anything unknown, missing, of the wrong type, out of range, repeated or not
  /// fitting together.
  static Result<PolicyConfig> parse(std::string_view text, const QueueOptions& options);

  /// The profile of a model: its own, else that of the file's root, else the flags'.
  const std::shared_ptr<const PolicyProfile>& profile(std::string_view model) const;

 private:
  using Profile = std::shared_ptr<const PolicyProfile>;

  Profile others_;
  std::map<std::string, Profile, std::less<>> models_;
};

}  // namespace fairlead::routing
