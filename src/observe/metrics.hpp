#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

// Metrics without shared writers: every reactor writes its own shard with relaxed atomics, a scrape
// adds the shards up. Names and labels follow the Prometheus conventions of the frontend's docs.

namespace fairlead::observe {

/// API endpoints, the closed set of the label `endpoint`.
enum class Endpoint : std::uint8_t {
  Completions,      ///< Generates.
  ChatCompletions,  ///< Generates.
  Tokenize,         ///< Answered without an engine, never as a stream.
  Detokenize,       ///< Likewise.
  kCount,           ///< Number of endpoints.
};
/// The label `request_type`.
enum class RequestType : std::uint8_t { Unary, Stream, kCount };

/// What choosing a worker by KV cache consists of: `router_overhead_*_ms`.
enum class RouterStep : std::uint8_t {
  BlockHashing,  ///< Block and sequence hashes of the prompt.
  FindMatches,   ///< Looking them up in the indexes.
  Scheduling,    ///< Choice and booking.
  Total,         ///< All of it, with what lies between.
  kCount,        ///< Number of steps.
};

/// What moved to another engine: the label `migration_type`.
enum class MigrationType : std::uint8_t {
  NewRequest,      ///< Nothing had been output.
  OngoingRequest,  ///< It went on from what had been output.
  kCount,          ///< Number of types.
};
/// How a move ended: the label `outcome` of model_migration_duration_seconds.
enum class MigrationOutcome : std::uint8_t {
  Success,    ///< Output went on.
  Failure,    ///< The request failed.
  Cancelled,  ///< The client left.
  kCount,     ///< Number of outcomes.
};
/// What became of a decode leg that was read on for its KV transfer's sake.
enum class ReleaseOutcome : std::uint8_t {
  Transferred,  ///< The engine had what it came for, or ended the request itself.
  Timeout,      ///< It took too long and was aborted.
  Settled,      ///< It was aborted when the engine surely had it.
  kCount,       ///< Likewise.
};

/// Label value of an endpoint.
std::string_view label(Endpoint endpoint);
/// Label value of a request type.
std::string_view label(RequestType type);

/// A number with one writer and any readers.
class Cell {
 public:
  /// Adds; the writer's thread only.
  void add(std::int64_t amount) {
    value_.store(value_.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  /// Reads; any thread.
  std::int64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> value_{0};
};

/// Histogram of one shard over fixed upper bounds.
class Histogram {
 public:
  /// `bounds` ascend and outlive the histogram; an implicit last bucket takes the rest.
  explicit Histogram(std::span<const double> bounds);
  /// Counts `value` `times` times; the writer's thread only.
  void observe(double value, std::int64_t times = 1);
  /// Upper bounds.
  std::span<const double> bounds() const { return bounds_; }
  /// Observations in bucket `i` alone (not cumulative); `i` may be `bounds().size()`.
  std::int64_t count(std::size_t i) const { return counts_[i].get(); }
  /// Sum of all values.
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  std::span<const double> bounds_;
  std::unique_ptr<Cell[]> counts_;
  std::atomic<double> sum_{0};
};

/// Everything one reactor counts about one model.
struct ModelShard {
  ModelShard();
  /// Rows of the tables below.
  static constexpr std::size_t kEndpoints = static_cast<std::size_t>(Endpoint::kCount);
  /// Their columns.
  static constexpr std::size_t kTypes = static_cast<std::size_t>(RequestType::kCount);
  /// Results: 0 is success, the others are 1 + ErrorCode.
  static constexpr std::size_t kResults = 1 + static_cast<std::size_t>(kErrorCodeCount);
  /// A table by endpoint and type.
  template <class T>
  using PerEndpoint = std::array<std::array<T, kTypes>, kEndpoints>;

  PerEndpoint<Cell> started;                        ///< requests_started_total.
  PerEndpoint<std::array<Cell, kResults>> results;  ///< requests_total.
  PerEndpoint<Cell> cancelled;                      ///< model_cancellation_total.
  std::array<Cell, kEndpoints> rejected;            ///< model_rejection_total.
  Cell inflight;                                    ///< inflight_requests, active_requests.
  Cell queued;                                      ///< queued_requests: no token yet.
  Cell output_tokens;                               ///< output_tokens_total.
  Cell logprobs_missing;                            ///< logprobs_missing_total.
  /// model_migration_total, by MigrationType.
  std::array<Cell, static_cast<std::size_t>(MigrationType::kCount)> migrations;
  Cell migration_too_long;  ///< model_migration_max_seq_len_exceeded_total.
  Cell prefill_bypassed;    ///< disaggregation_bypassed_total.
  Cell releases_pending;    ///< disaggregation_releases_pending.
  /// disaggregation_releases_total, by ReleaseOutcome.
  std::array<Cell, static_cast<std::size_t>(ReleaseOutcome::kCount)> releases;
  Histogram duration;       ///< request_duration_seconds.
  Histogram input_length;   ///< input_sequence_tokens.
  Histogram output_length;  ///< output_sequence_tokens.
  Histogram cached_length;  ///< cached_tokens.
  Histogram kv_hit_rate;    ///< router_kv_hit_rate.
  /// router_overhead_*_ms, by RouterStep.
  std::array<Histogram, static_cast<std::size_t>(RouterStep::kCount)> router_overhead;
  /// model_migration_duration_seconds, by MigrationType and MigrationOutcome.
  std::array<std::array<Histogram, static_cast<std::size_t>(MigrationOutcome::kCount)>,
             static_cast<std::size_t>(MigrationType::kCount)>
      migration_duration;
  Histogram ttft;         ///< time_to_first_token_seconds.
  Histogram inter_token;  ///< inter_token_latency_seconds.
};

/// Appends the text format: `family` once per metric, then its samples.
class TextWriter {
 public:
  /// Appends to `out`; every family name gets `prefix` and an underscore in front.
  TextWriter(std::string& out, std::string prefix) : out_(out), prefix_(std::move(prefix)) {}
  /// Starts a family: `type` is counter, gauge or histogram.
  void family(std::string_view name, std::string_view type, std::string_view help);
  /// One sample of the current family; `labels` like `model="x"`, already escaped; may be empty.
  void sample(std::string_view labels, double value, std::string_view suffix = {});
  /// The samples of one histogram of the current family; `labels` are not empty. `counts` are those
  /// of each bucket alone, with one more than there are upper `bounds`.
  void histogram(std::string_view labels, std::span<const double> bounds,
                 std::span<const std::int64_t> counts, double sum);
  /// Escapes a label value.
  static std::string escape(std::string_view value);

 private:
  std::string& out_;
  std::string prefix_;
  std::string name_;
};

/// All metrics of the process. Thread-safe unless said otherwise.
class Registry {
 public:
  /// `prefix` is sanitised to the legal characters; `shards` is the number of reactors. `kv`: what
  /// only routing by KV cache counts is written, too.
  Registry(std::string_view prefix, std::size_t shards, bool kv = false);

  /// The shard of a model for one reactor, made on first use. Callers use only names of served
  /// models (plus `kUnknownModel`), so clients cannot create series. The reference stays valid.
  ModelShard& shard(std::string_view model, std::size_t reactor);
  /// Label of requests whose model does not exist.
  static constexpr std::string_view kUnknownModel = "unknown";

  /// Adds a source of further families, called at each scrape in the scraping thread.
  void add_collector(std::function<void(TextWriter&)> collector);
  /// The text format, version 0.0.4.
  std::string render() const;

 private:
  using Shards = std::vector<std::unique_ptr<ModelShard>>;

  std::string prefix_;
  std::size_t shard_count_;
  bool kv_;
  mutable std::mutex mutex_;
  std::map<std::string, Shards, std::less<>> models_;         // guarded by mutex_
  std::vector<std::function<void(TextWriter&)>> collectors_;  // guarded by mutex_
};

/// One request's life in the metrics of its reactor: started and in flight from construction to
/// destruction. Without `finish` it counts as cancelled by the client.
class RequestScope {
 public:
  /// `now` in seconds of any monotonic clock; later calls use the same clock.
  RequestScope(ModelShard& shard, Endpoint endpoint, RequestType type, double now);
  RequestScope(const RequestScope&) = delete;
  RequestScope& operator=(const RequestScope&) = delete;
  ~RequestScope();

  /// Prompt length, once known.
  void prompt(std::size_t tokens, std::size_t cached);
  /// Share of the prompt's blocks that the chosen worker was believed to have, 0 to 1; kv mode
  /// only.
  void kv_hit_rate(double share) { shard_.kv_hit_rate.observe(share); }
  /// A choice of a worker took so long in one of its steps; kv mode only.
  void router_overhead(RouterStep step, std::chrono::steady_clock::duration time) {
    shard_.router_overhead[static_cast<std::size_t>(step)].observe(
        std::chrono::duration<double, std::milli>(time).count());
  }
  /// New tokens were received from the engine.
  void tokens(std::size_t count, double now);
  /// The engine gave no value for this many log-probabilities that were asked for.
  void logprobs_missing(std::size_t count) {
    shard_.logprobs_missing.add(static_cast<std::int64_t>(count));
  }
  /// The request ended: success, or the error.
  void finish(const Error* error, double now);
  /// The counters it writes to.
  ModelShard& shard() { return shard_; }
  /// Time of construction.
  double started_at() const { return started_; }

 private:
  ModelShard& shard_;
  std::size_t endpoint_;
  std::size_t type_;
  double started_;
  double last_token_ = 0;
  std::size_t output_ = 0;
  bool finished_ = false;
  bool queued_ = true;
};

/// A request that needed no engine was answered, or failed with `error`. It counts among the
/// requests of its endpoint alone: gauges and histograms tell of generations.
void count_answer(ModelShard& shard, Endpoint endpoint, const Error* error);

/// Such a request while it is worked on elsewhere, so that its client may leave meanwhile. Without
/// `done` it counts as cancelled under the shard of `Registry::kUnknownModel`.
class AnsweringScope {
 public:
  /// `unknown` is that shard.
  AnsweringScope(ModelShard& unknown, Endpoint endpoint) : shard_(unknown), endpoint_(endpoint) {}
  AnsweringScope(const AnsweringScope&) = delete;
  AnsweringScope& operator=(const AnsweringScope&) = delete;
  ~AnsweringScope();

  /// The work was done: `count_answer` counts the request.
  void done() { done_ = true; }

 private:
  ModelShard& shard_;
  Endpoint endpoint_;
  bool done_ = false;
};

/// A request whose body is still being prepared elsewhere, so that its model is not known: in
/// flight and queued under the shard of `Registry::kUnknownModel`. Without `done` it counts as
/// cancelled by the client.
class PreparingScope {
 public:
  /// `now` as for RequestScope.
  PreparingScope(ModelShard& unknown, Endpoint endpoint, double now);
  PreparingScope(const PreparingScope&) = delete;
  PreparingScope& operator=(const PreparingScope&) = delete;
  ~PreparingScope();

  /// The body was prepared: from here on a RequestScope counts the request.
  void done();

 private:
  ModelShard& shard_;
  Endpoint endpoint_;
  double started_;
  bool done_ = false;
};

}  // namespace fairlead::observe
