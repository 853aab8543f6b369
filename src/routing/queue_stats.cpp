#include "routing/queue_stats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace fairlead::routing {
namespace {

std::uint64_t refused(const QueueClassStats& stats) {
  return std::accumulate(stats.refused.begin(), stats.refused.end(), std::uint64_t{0});
}

}  // namespace

std::string_view label(QueueLimit limit) {
  switch (limit) {
    case QueueLimit::AllClasses: return "all_classes";
    case QueueLimit::Requests: return "requests";
    case QueueLimit::PromptTokens: return "prompt_tokens";
    case QueueLimit::CachedTokens: return "cached_tokens";
    case QueueLimit::kCount: break;
  }
  return "all_classes";
}

void WaitTimes::add(double seconds) {
  ++counts_[static_cast<std::size_t>(std::ranges::lower_bound(kBounds, seconds) - kBounds.begin())];
  sum_ += seconds;
}

void WaitTimes::add(const WaitTimes& more) {
  std::ranges::transform(counts_, more.counts_, counts_.begin(), std::plus());
  sum_ += more.sum_;
}

void WaitTimes::write(observe::TextWriter& writer, std::string_view labels) const {
  writer.histogram(labels, kBounds, counts_, sum_);
}

void QueueReport::add(std::string_view worker_type, const QueueStats& stats) {
  QueueStats& sum = queues_[{worker_type, stats.model}];
  sum.model = stats.model;
  sum.classes.resize(std::max(sum.classes.size(), stats.classes.size()));
  sum.profile = stats.profile;
  for (std::size_t i = 0; i < stats.classes.size(); ++i) {
    const QueueClassStats& from = stats.classes[i];
    QueueClassStats& to = sum.classes[i];
    to.waiting += from.waiting;
    to.queued += from.queued;
    std::ranges::transform(to.refused, from.refused, to.refused.begin(), std::plus());
    to.waited.add(from.waited);
  }
}

void QueueReport::write(observe::TextWriter& writer) const {
  const auto totals = [&](std::string_view name, std::string_view type, std::string_view help,
                          auto value) {
    writer.family(name, type, help);
    std::map<std::string_view, std::uint64_t> sums;  // by worker type
    for (const auto& [key, stats] : queues_) {
      std::uint64_t& sum = sums[key.first];
      for (const QueueClassStats& one : stats.classes) {
        sum += value(one);
      }
    }
    for (const auto& [worker_type, sum] : sums) {
      writer.sample(fmt::format("worker_type=\"{}\"", worker_type), static_cast<double>(sum));
    }
  };
  totals("router_queue_pending_requests", "gauge", "Requests that wait for a worker.",
         [](const QueueClassStats& stats) { return stats.waiting; });
  totals("router_queued_requests_total", "counter", "Requests that had to wait.",
         [](const QueueClassStats& stats) { return stats.queued; });
  totals("router_queue_refused_total", "counter", "Requests refused as too many waited.", refused);
  const auto by_class = [&](std::string_view name, std::string_view type, std::string_view help,
                            auto write_one) {
    writer.family(name, type, help);
    for (const auto& [key, stats] : queues_) {
      for (std::size_t i = 0; i < stats.classes.size(); ++i) {
        const PolicyClass& policy_class = stats.profile->classes()[i];
        if (!policy_class.queues()) {
          continue;
        }
        write_one(fmt::format("model=\"{}\",policy_class=\"{}\",worker_type=\"{}\"",
                              observe::TextWriter::escape(stats.model),
                              observe::TextWriter::escape(policy_class.name), key.first),
                  stats.classes[i]);
      }
    }
  };
  by_class("router_queue_class_pending_requests", "gauge",
           "Requests of a policy class that wait for a worker.",
           [&](const std::string& labels, const QueueClassStats& stats) {
             writer.sample(labels, static_cast<double>(stats.waiting));
           });
  by_class("router_queue_class_wait_seconds", "histogram",
           "Time that requests waited which have left the queue, sent or not.",
           [&](const std::string& labels, const QueueClassStats& stats) {
             stats.waited.write(writer, labels);
           });
  by_class("router_queue_class_refused_total", "counter",
           "Requests refused as too many waited, by the limit that was reached.",
           [&](const std::string& labels, const QueueClassStats& stats) {
             for (std::size_t i = 0; i < stats.refused.size(); ++i) {
               writer.sample(
                   fmt::format("{},reason=\"{}\"", labels, label(static_cast<QueueLimit>(i))),
                   static_cast<double>(stats.refused[i]));
             }
           });
}

}  // namespace fairlead::routing
