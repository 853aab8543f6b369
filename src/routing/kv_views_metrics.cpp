#include <fmt/format.h>

#include <array>
#include <span>
#include <string_view>

#include "routing/kv_views_state.hpp"

// What KvViews writes for /metrics.

namespace fairlead::routing {
namespace {

using Recovery = kv::RecoveryCounters;

struct StreamRow {
  std::string_view event;
  observe::Cell Recovery::* cell;
};

constexpr auto kStreamRows = std::to_array<StreamRow>({
    {"batch", &Recovery::batches},
    {"gap", &Recovery::gaps},
    {"lost_batch", &Recovery::lost_batches},
    {"duplicate", &Recovery::duplicates},
    {"replay", &Recovery::replays},
    {"replay_timeout", &Recovery::replay_timeouts},
    {"gap_given_up", &Recovery::given_up},
    {"partial_start", &Recovery::partial_starts},
    {"engine_restart", &Recovery::restarts},
    {"view_cleared", &Recovery::clears},
    {"undecodable", &Recovery::decode_errors},
    {"wrong_rank", &Recovery::wrong_rank},
    {"malformed", &Recovery::malformed},
    {"buffer_full", &Recovery::overflows},
});

struct AppliedRow {
  std::string_view labels;
  std::uint64_t (*value)(const kv::EventCounters&, const kv::IndexWriter::Counters&);
};

constexpr auto kAppliedRows = std::to_array<AppliedRow>({
    {R"(status="ok",event_type="stored")",
     [](const auto&, const auto& index) { return std::uint64_t(index.stored.get()); }},
    {R"(status="parent_block_not_found",event_type="stored")",
     [](const auto&, const auto& index) { return std::uint64_t(index.unknown_parent.get()); }},
    {R"(status="index_full",event_type="stored")",
     [](const auto&, const auto& index) { return std::uint64_t(index.full.get()); }},
    {R"(status="ok",event_type="removed")",
     [](const auto& events, const auto&) { return std::uint64_t(events.removed.get()); }},
    {R"(status="ok",event_type="cleared")",
     [](const auto& events, const auto&) { return std::uint64_t(events.cleared.get()); }},
});

constexpr std::size_t kRows = kStreamRows.size() + kAppliedRows.size() + kv::kDropReasonCount;

std::string target_labels(const TargetPlace& place) {
  return fmt::format("worker_id=\"{}\",dp_rank=\"{}\"", place.worker_id, place.rank);
}

void add(kv::ApproximateIndexStats& sum, const kv::ApproximateIndexStats& more) {
  sum.bytes += more.bytes;
  sum.blocks += more.blocks;
}

}  // namespace

void KvViews::Totals::add(const Target& target) {
  values.resize(kRows);
  auto out = values.begin();
  const Recovery& stream = target.subscription->recovery();
  for (const StreamRow& row : kStreamRows) {
    *out++ += static_cast<std::uint64_t>((stream.*row.cell).get());
  }
  for (const AppliedRow& row : kAppliedRows) {
    *out++ += row.value(target.subscription->events(), target.writer->counters());
  }
  for (int reason = 0; reason < kv::kDropReasonCount; ++reason) {
    *out++ += target.subscription->normalizer().dropped(static_cast<kv::DropReason>(reason));
  }
}

void KvViews::collect(observe::TextWriter& writer) const {
  const std::lock_guard lock(mutex_);
  Totals totals = *former_;
  totals.values.resize(kRows);
  for (const auto& [id, set] : sets_) {
    for (const auto& target : set->targets) {
      if (target->subscription) {
        totals.add(*target);
      }
    }
  }
  const auto each_target = [&](auto&& use) {
    for (const auto& [id, set] : sets_) {
      if (set->learns()) {
        continue;  // there is no view
      }
      for (const auto& target : set->targets) {
        use(*set, *target);
      }
    }
  };

  writer.family("kv_view_state", "gauge",
                "1 for the state of what is known of each worker's KV cache");
  each_target([&](const Set&, const Target& target) {
    writer.sample(fmt::format("{},state=\"{}\"", target_labels(target.place),
                              target_state_name(target.state)),
                  1);
  });
  writer.family("kv_view_blocks", "gauge", "Blocks that events say a worker has cached");
  each_target([&](const Set& set, const Target& target) {
    writer.sample(target_labels(target.place),
                  static_cast<double>(set.caches->index.blocks(target.id)));
  });
  writer.family("kv_misprediction_ratio", "gauge",
                "Share of the prompt that was cached otherwise than believed, over the last "
                "requests of each worker");
  each_target([&](const Set& set, const Target& target) {
    writer.sample(target_labels(target.place), set.caches->truth.score(target.id).error);
  });
  const auto tokens = [&](std::string_view name, std::string_view help,
                          std::uint64_t CacheScore::* field) {
    writer.family(name, "counter", help);
    each_target([&](const Set& set, const Target& target) {
      writer.sample(target_labels(target.place),
                    static_cast<double>(set.caches->truth.score(target.id).*field));
    });
  };
  tokens("kv_believed_cached_tokens_total",
         "Prompt tokens that were believed to be cached, of finished requests",
         &CacheScore::believed_tokens);
  tokens("kv_reported_cached_tokens_total", "Of the same requests, as the engines report",
         &CacheScore::actual_tokens);

  auto value = totals.values.begin();
  writer.family("kv_event_stream_total", "counter", "What happened to the streams of KV events");
  for (const StreamRow& row : kStreamRows) {
    writer.sample(fmt::format("event=\"{}\"", row.event), static_cast<double>(*value++));
  }
  writer.family("kv_cache_events_applied", "counter", "KV events by what became of them");
  for (const AppliedRow& row : kAppliedRows) {
    writer.sample(row.labels, static_cast<double>(*value++));
  }
  writer.family("kv_events_dropped_total", "counter", "KV events, or blocks, that do not count");
  for (int reason = 0; reason < kv::kDropReasonCount; ++reason) {
    writer.sample(
        fmt::format("reason=\"{}\"", kv::drop_reason_name(static_cast<kv::DropReason>(reason))),
        static_cast<double>(*value++));
  }
  const auto sum = [&](std::string_view name, std::string_view help, auto field) {
    double total = 0;
    for (const auto& [id, set] : sets_) {
      total += static_cast<double>(field(set->caches->index.stats()));
    }
    writer.family(name, "gauge", help);
    writer.sample({}, total);
  };
  sum("kv_index_bytes", "Memory of the indexes of KV events",
      [](const kv::IndexStats& stats) { return stats.bytes; });
  sum("kv_index_blocks", "Blocks in them, each once per worker that has it",
      [](const kv::IndexStats& stats) { return stats.held_blocks; });
  sum("kv_index_distinct_blocks", "Different blocks in them",
      [](const kv::IndexStats& stats) { return stats.distinct_blocks; });

  kv::ApproximateIndexStats routed;
  kv::ApproximateIndexStats predicted;
  for (const auto& [id, set] : sets_) {
    add(routed, set->caches->routed.stats());
    add(predicted, set->caches->predicted.stats());
  }
  writer.family("kv_routed_bytes", "gauge", "Memory of what was routed lately");
  writer.sample(R"(type="approximate")", static_cast<double>(routed.bytes));
  writer.sample(R"(type="predicted")", static_cast<double>(predicted.bytes));
  writer.family("kv_routed_blocks", "gauge",
                "Blocks routed lately, each once per worker that got it: what counts as cached at "
                "workers without usable KV events (approximate), or until events come (predicted)");
  writer.sample(R"(type="approximate")", static_cast<double>(routed.blocks));
  writer.sample(R"(type="predicted")", static_cast<double>(predicted.blocks));
}

}  // namespace fairlead::routing
