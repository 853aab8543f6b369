#include "observe/metrics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace fairlead::observe {
namespace {

// Log-spaced, rounded to two significant digits, with a first bucket at zero: the bounds that
// dashboards written for this family of frontends expect.
constexpr std::array kDuration{0.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 130.0, 260.0, 510.0};
constexpr std::array kInput{0.0,    100.0,  210.0,   430.0,   870.0,   1800.0,
                            3600.0, 7400.0, 15000.0, 31000.0, 63000.0, 130000.0};
constexpr double kShare[] = {0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1};
// Milliseconds of a choice that is done within microseconds.
constexpr std::array kMigration{0.01, 0.025, 0.05, 0.1,  0.25, 0.5, 1.0,
                                2.5,  5.0,   10.0, 20.0, 40.0, 60.0};
constexpr std::array kOverhead{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
                               0.2,    0.5,   1.0,   2.0,   5.0,  10.0, 50.0};
constexpr std::array kOutput{0.0,    100.0,  210.0,  430.0,   880.0,
                             1800.0, 3700.0, 7600.0, 16000.0, 32000.0};
constexpr std::array kTtft{0.0, 0.0022, 0.0047, 0.01, 0.022, 0.047, 0.1,   0.22,  0.47,
                           1.0, 2.2,    4.7,    10.0, 22.0,  48.0,  100.0, 220.0, 480.0};
constexpr std::array kItl{0.0,   0.0019, 0.0035, 0.0067, 0.013, 0.024, 0.045,
                          0.084, 0.16,   0.3,    0.56,   1.1,   2.0};

constexpr std::array<std::string_view, ModelShard::kEndpoints> kEndpointLabels{
    "completions", "chat_completions", "tokenize", "detokenize"};
constexpr std::array<std::string_view, ModelShard::kTypes> kTypeLabels{"unary", "stream"};

/// Whether answers of the endpoint may be streams.
constexpr bool streams(std::size_t endpoint) {
  return endpoint <= static_cast<std::size_t>(Endpoint::ChatCompletions);
}

std::string legal_prefix(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':';
    out.push_back(letter || (digit && !out.empty()) ? c : '_');
  }
  return out.empty() ? "fairlead_frontend" : out;
}

}  // namespace

std::string_view label(Endpoint endpoint) {
  return kEndpointLabels[static_cast<std::size_t>(endpoint)];
}

std::string_view label(RequestType type) { return kTypeLabels[static_cast<std::size_t>(type)]; }

Histogram::Histogram(std::span<const double> bounds)
    : bounds_(bounds), counts_(std::make_unique<Cell[]>(bounds.size() + 1)) {}

void Histogram::observe(double value, std::int64_t times) {
  const auto bucket = std::ranges::lower_bound(bounds_, value) - bounds_.begin();
  counts_[static_cast<std::size_t>(bucket)].add(times);
  sum_.store(sum_.load(std::memory_order_relaxed) + value * static_cast<double>(times),
             std::memory_order_relaxed);
}

ModelShard::ModelShard()
    : duration(kDuration),
      input_length(kInput),
      output_length(kOutput),
      cached_length(kInput),
      kv_hit_rate(kShare),
      router_overhead{Histogram(kOverhead), Histogram(kOverhead), Histogram(kOverhead),
                      Histogram(kOverhead)},
      migration_duration{{{Histogram(kMigration), Histogram(kMigration), Histogram(kMigration)},
                          {Histogram(kMigration), Histogram(kMigration), Histogram(kMigration)}}},
      ttft(kTtft),
      inter_token(kItl) {}

void TextWriter::family(std::string_view name, std::string_view type, std::string_view help) {
  name_ = fmt::format("{}_{}", prefix_, name);
  fmt::format_to(std::back_inserter(out_), "# HELP {} {}\n# TYPE {} {}\n", name_, help, name_,
                 type);
}

void TextWriter::sample(std::string_view labels, double value, std::string_view suffix) {
  out_ += name_;
  out_ += suffix;
  if (!labels.empty()) {
    out_.push_back('{');
    out_ += labels;
    out_.push_back('}');
  }
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    fmt::format_to(std::back_inserter(out_), " {}\n", static_cast<std::int64_t>(value));
  } else {
    fmt::format_to(std::back_inserter(out_), " {}\n", value);
  }
}

void TextWriter::histogram(std::string_view labels, std::span<const double> bounds,
                           std::span<const std::int64_t> counts, double sum) {
  std::int64_t cumulative = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    cumulative += counts[i];
    const std::string bound = i < bounds.size() ? fmt::format("{}", bounds[i]) : "+Inf";
    sample(fmt::format("{},le=\"{}\"", labels, bound), static_cast<double>(cumulative), "_bucket");
  }
  sample(labels, sum, "_sum");
  sample(labels, static_cast<double>(cumulative), "_count");
}

std::string TextWriter::escape(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') {
      out.push_back('\\');
      out.push_back(c);
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out.push_back(c);
    }
  }
  return out;
}

Registry::Registry(std::string_view prefix, std::size_t shards, bool kv)
    : prefix_(legal_prefix(prefix)), shard_count_(shards), kv_(kv) {}

ModelShard& Registry::shard(std::string_view model, std::size_t reactor) {
  const std::lock_guard lock(mutex_);
  auto found = models_.find(model);
  if (found == models_.end()) {
    Shards shards;
    for (std::size_t i = 0; i < shard_count_; ++i) {
      shards.push_back(std::make_unique<ModelShard>());
    }
    found = models_.emplace(std::string(model), std::move(shards)).first;
  }
  return *found->second[reactor];
}

void Registry::add_collector(std::function<void(TextWriter&)> collector) {
  const std::lock_guard lock(mutex_);
  collectors_.push_back(std::move(collector));
}

namespace {

using Shards = std::vector<std::unique_ptr<ModelShard>>;
using Models = std::map<std::string, Shards, std::less<>>;

template <class Get>
double total(const Shards& shards, Get&& get) {
  std::int64_t sum = 0;
  for (const auto& shard : shards) {
    sum += get(*shard).get();
  }
  return static_cast<double>(sum);
}

std::string model_label(std::string_view model) {
  return fmt::format("model=\"{}\"", TextWriter::escape(model));
}

template <class Get>
void write_per_model(TextWriter& writer, const Models& models, Get&& get) {
  for (const auto& [model, shards] : models) {
    writer.sample(model_label(model), total(shards, get));
  }
}

template <class Get>
void write_histogram(TextWriter& writer, const Models& models, Get&& get,
                     std::string_view labels = {}) {
  for (const auto& [model, shards] : models) {
    const Histogram& shape = get(*shards.front());
    std::vector<std::int64_t> counts(shape.bounds().size() + 1);
    double sum = 0;
    for (const auto& shard : shards) {
      const Histogram& histogram = get(*shard);
      for (std::size_t i = 0; i < counts.size(); ++i) {
        counts[i] += histogram.count(i);
      }
      sum += histogram.sum();
    }
    writer.histogram(fmt::format("{}{}", model_label(model), labels), shape.bounds(), counts, sum);
  }
}

template <class F>
void for_each_kind(F&& visit) {
  for (std::size_t endpoint = 0; endpoint < ModelShard::kEndpoints; ++endpoint) {
    for (std::size_t type = 0; type < (streams(endpoint) ? ModelShard::kTypes : 1); ++type) {
      visit(endpoint, type,
            fmt::format("endpoint=\"{}\",request_type=\"{}\"", kEndpointLabels[endpoint],
                        kTypeLabels[type]));
    }
  }
}

// Several error codes share one label, so their counts are added before they are written.
void write_results(TextWriter& writer, const Models& models) {
  for (const auto& [model, shards] : models) {
    for_each_kind([&](std::size_t endpoint, std::size_t type, const std::string& kind) {
      std::map<std::string_view, double> by_label;
      for (std::size_t result = 0; result < ModelShard::kResults; ++result) {
        const double count = total(shards, [&](const ModelShard& s) -> const Cell& {
          return s.results[endpoint][type][result];
        });
        const std::string_view name =
            result == 0 ? "" : traits(static_cast<ErrorCode>(result - 1)).metric;
        if (count > 0 || result == 0) {
          by_label[name] += count;
        }
      }
      for (const auto& [name, count] : by_label) {
        writer.sample(fmt::format("{},{},status=\"{}\",error_type=\"{}\"", model_label(model), kind,
                                  name.empty() ? "success" : "error", name),
                      count);
      }
    });
  }
}

void write_counts(TextWriter& writer, const Models& models) {
  writer.family("requests_total", "counter", "Finished requests.");
  write_results(writer, models);
  writer.family("requests_started_total", "counter", "Requests whose model was found.");
  for (const auto& [model, shards] : models) {
    for_each_kind([&](std::size_t endpoint, std::size_t type, const std::string& kind) {
      writer.sample(fmt::format("{},{}", model_label(model), kind),
                    total(shards, [&](const ModelShard& s) -> const Cell& {
                      return s.started[endpoint][type];
                    }));
    });
  }
  writer.family("model_cancellation_total", "counter", "Requests abandoned by their client.");
  for (const auto& [model, shards] : models) {
    for_each_kind([&](std::size_t endpoint, std::size_t type, const std::string& kind) {
      writer.sample(fmt::format("{},{}", model_label(model), kind),
                    total(shards, [&](const ModelShard& s) -> const Cell& {
                      return s.cancelled[endpoint][type];
                    }));
    });
  }
  writer.family("model_rejection_total", "counter", "Requests refused for overload.");
  for (const auto& [model, shards] : models) {
    for (std::size_t endpoint = 0; endpoint < ModelShard::kEndpoints; ++endpoint) {
      writer.sample(
          fmt::format("{},endpoint=\"{}\"", model_label(model), kEndpointLabels[endpoint]),
          total(shards, [&](const ModelShard& s) -> const Cell& { return s.rejected[endpoint]; }));
    }
  }
}

void write_gauges(TextWriter& writer, const Models& models) {
  const auto inflight = [](const ModelShard& s) -> const Cell& { return s.inflight; };
  writer.family("inflight_requests", "gauge", "Requests being served.");
  write_per_model(writer, models, inflight);
  writer.family("active_requests", "gauge", "Requests being served (same as inflight_requests).");
  write_per_model(writer, models, inflight);
  writer.family("queued_requests", "gauge", "Requests that have not received a token yet.");
  write_per_model(writer, models, [](const ModelShard& s) -> const Cell& { return s.queued; });
  writer.family("output_tokens_total", "counter", "Tokens received from engines.");
  write_per_model(writer, models,
                  [](const ModelShard& s) -> const Cell& { return s.output_tokens; });
  writer.family("logprobs_missing_total", "counter",
                "Log-probabilities that engines left out or sent as no finite number.");
  write_per_model(writer, models,
                  [](const ModelShard& s) -> const Cell& { return s.logprobs_missing; });
}

constexpr std::array<std::string_view, 2> kMigrationTypes{"new_request", "ongoing_request"};
constexpr std::array<std::string_view, 3> kMigrationOutcomes{"success", "failure", "cancelled"};
constexpr std::array<std::string_view, 3> kReleaseOutcomes{"transferred", "timeout", "settled"};

void write_migrations(TextWriter& writer, const Models& models) {
  writer.family("model_migration_total", "counter",
                "Attempts that were repeated on another engine.");
  for (const auto& [model, shards] : models) {
    for (std::size_t type = 0; type < kMigrationTypes.size(); ++type) {
      writer.sample(
          fmt::format("{},migration_type=\"{}\"", model_label(model), kMigrationTypes[type]),
          total(shards, [type](const ModelShard& s) -> const Cell& { return s.migrations[type]; }));
    }
  }
  writer.family("model_migration_max_seq_len_exceeded_total", "counter",
                "Generations that became too long to go on elsewhere.");
  write_per_model(writer, models,
                  [](const ModelShard& s) -> const Cell& { return s.migration_too_long; });
  writer.family("model_migration_duration_seconds", "histogram",
                "Time from an engine's failure until output went on, or the request ended.");
  for (std::size_t type = 0; type < kMigrationTypes.size(); ++type) {
    for (std::size_t outcome = 0; outcome < kMigrationOutcomes.size(); ++outcome) {
      write_histogram(
          writer, models,
          [=](const ModelShard& s) -> const Histogram& {
            return s.migration_duration[type][outcome];
          },
          fmt::format(",migration_type=\"{}\",outcome=\"{}\"", kMigrationTypes[type],
                      kMigrationOutcomes[outcome]));
    }
  }
  writer.family("disaggregation_bypassed_total", "counter",
                "Prompts that a decode worker computed although there are prefill workers.");
  write_per_model(writer, models,
                  [](const ModelShard& s) -> const Cell& { return s.prefill_bypassed; });
  writer.family("disaggregation_releases_pending", "gauge",
                "Decode requests without a client that are read on until their KV transfer ends.");
  write_per_model(writer, models,
                  [](const ModelShard& s) -> const Cell& { return s.releases_pending; });
  writer.family("disaggregation_releases_total", "counter", "Such requests that have ended.");
  for (const auto& [model, shards] : models) {
    for (std::size_t outcome = 0; outcome < kReleaseOutcomes.size(); ++outcome) {
      writer.sample(fmt::format("{},outcome=\"{}\"", model_label(model), kReleaseOutcomes[outcome]),
                    total(shards, [outcome](const ModelShard& s) -> const Cell& {
                      return s.releases[outcome];
                    }));
    }
  }
}

void write_histograms(TextWriter& writer, const Models& models) {
  writer.family("request_duration_seconds", "histogram", "Time from request to end of answer.");
  write_histogram(writer, models,
                  [](const ModelShard& s) -> const Histogram& { return s.duration; });
  writer.family("input_sequence_tokens", "histogram", "Prompt length.");
  write_histogram(writer, models,
                  [](const ModelShard& s) -> const Histogram& { return s.input_length; });
  writer.family("output_sequence_tokens", "histogram", "Output length.");
  write_histogram(writer, models,
                  [](const ModelShard& s) -> const Histogram& { return s.output_length; });
  writer.family("cached_tokens", "histogram", "Prompt tokens served from the engine's cache.");
  write_histogram(writer, models,
                  [](const ModelShard& s) -> const Histogram& { return s.cached_length; });
  writer.family("router_kv_hit_rate", "histogram",
                "Share of a prompt's blocks that its worker was believed to have, in kv mode.");
  write_histogram(writer, models,
                  [](const ModelShard& s) -> const Histogram& { return s.kv_hit_rate; });
  writer.family("time_to_first_token_seconds", "histogram", "Time to the first token.");
  write_histogram(writer, models, [](const ModelShard& s) -> const Histogram& { return s.ttft; });
  writer.family("inter_token_latency_seconds", "histogram", "Time between tokens.");
  write_histogram(writer, models,
                  [](const ModelShard& s) -> const Histogram& { return s.inter_token; });
}

void write_router_overhead(TextWriter& writer, const Models& models) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kSteps{{
      {"router_overhead_block_hashing_ms", "Time for the block hashes of a prompt."},
      {"router_overhead_indexer_find_matches_ms", "Time for looking them up in the indexes."},
      {"router_overhead_scheduling_ms", "Time for choosing and booking a worker."},
      {"router_overhead_total_ms", "Time of a request in the router, waiting not included."},
  }};
  static_assert(kSteps.size() == static_cast<std::size_t>(RouterStep::kCount));
  for (std::size_t step = 0; step < kSteps.size(); ++step) {
    writer.family(kSteps[step].first, "histogram", kSteps[step].second);
    write_histogram(writer, models, [step](const ModelShard& s) -> const Histogram& {
      return s.router_overhead[step];
    });
  }
}

}  // namespace

std::string Registry::render() const {
  std::string out;
  TextWriter writer(out, prefix_);
  const std::lock_guard lock(mutex_);
  write_counts(writer, models_);
  write_gauges(writer, models_);
  write_migrations(writer, models_);
  write_histograms(writer, models_);
  if (kv_) {
    write_router_overhead(writer, models_);
  }
  for (const auto& collector : collectors_) {
    collector(writer);
  }
  return out;
}

RequestScope::RequestScope(ModelShard& shard, Endpoint endpoint, RequestType type, double now)
    : shard_(shard),
      endpoint_(static_cast<std::size_t>(endpoint)),
      type_(static_cast<std::size_t>(type)),
      started_(now) {
  shard_.started[endpoint_][type_].add(1);
  shard_.inflight.add(1);
  shard_.queued.add(1);
}

RequestScope::~RequestScope() {
  if (!finished_) {
    const Error gone{ErrorCode::ClientGone, {}, {}};
    shard_.cancelled[endpoint_][type_].add(1);
    finish(&gone, last_token_ > 0 ? last_token_ : started_);
  }
  shard_.inflight.add(-1);
}

void RequestScope::prompt(std::size_t tokens, std::size_t cached) {
  shard_.input_length.observe(static_cast<double>(tokens));
  shard_.cached_length.observe(static_cast<double>(std::min(cached, tokens)));
}

void RequestScope::tokens(std::size_t count, double now) {
  if (count == 0) {
    return;
  }
  if (queued_) {
    queued_ = false;
    shard_.queued.add(-1);
    shard_.ttft.observe(now - started_);
  } else {
    shard_.inter_token.observe((now - last_token_) / static_cast<double>(count),
                               static_cast<std::int64_t>(count));
  }
  last_token_ = now;
  output_ += count;
  shard_.output_tokens.add(static_cast<std::int64_t>(count));
}

void RequestScope::finish(const Error* error, double now) {
  finished_ = true;
  if (queued_) {
    queued_ = false;
    shard_.queued.add(-1);
  }
  const std::size_t result = error ? 1 + static_cast<std::size_t>(error->code) : 0;
  shard_.results[endpoint_][type_][result].add(1);
  if (error && traits(error->code).metric == "overload") {
    shard_.rejected[endpoint_].add(1);
  }
  shard_.duration.observe(now - started_);
  if (output_ > 0) {
    shard_.output_length.observe(static_cast<double>(output_));
  }
}

void count_answer(ModelShard& shard, Endpoint endpoint, const Error* error) {
  const auto row = static_cast<std::size_t>(endpoint);
  constexpr auto kType = static_cast<std::size_t>(RequestType::Unary);
  shard.started[row][kType].add(1);
  shard.results[row][kType][error ? 1 + static_cast<std::size_t>(error->code) : 0].add(1);
  if (error && error->code == ErrorCode::ClientGone) {
    shard.cancelled[row][kType].add(1);
  }
  if (error && traits(error->code).metric == "overload") {
    shard.rejected[row].add(1);
  }
}

AnsweringScope::~AnsweringScope() {
  if (!done_) {
    const Error gone{ErrorCode::ClientGone, {}, {}};
    count_answer(shard_, endpoint_, &gone);
  }
}

PreparingScope::PreparingScope(ModelShard& unknown, Endpoint endpoint, double now)
    : shard_(unknown), endpoint_(endpoint), started_(now) {
  shard_.inflight.add(1);
  shard_.queued.add(1);
}

PreparingScope::~PreparingScope() {
  if (!done_) {
    done();
    const RequestScope abandoned(shard_, endpoint_, RequestType::Unary, started_);
  }
}

void PreparingScope::done() {
  done_ = true;
  shard_.inflight.add(-1);
  shard_.queued.add(-1);
}

}  // namespace fairlead::observe
