#include "kv_sim/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/json.hpp"

namespace fairlead::kv_sim {
namespace {

double seconds(Nanos time) { return std::chrono::duration<double>(time).count(); }

double mean(const std::vector<double>& values) {
  return values.empty() ? 0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

// Nearest rank.
double percentile(std::vector<double>& values, double share) {
  if (values.empty()) {
    return 0;
  }
  const auto rank = static_cast<std::ptrdiff_t>(
      std::max(std::ceil(share * static_cast<double>(values.size())) - 1, 0.0));
  std::ranges::nth_element(values, values.begin() + rank);
  return values[static_cast<std::size_t>(rank)];
}

double balance(const std::vector<double>& loads) {
  const double average = mean(loads);
  return average > 0 ? std::ranges::max(loads) / average : 0;
}

}  // namespace

Summary summarize(const Results& results) {
  Summary out;
  out.requests = results.outcomes.size();
  std::vector<double> ttft;
  std::vector<double> latency;
  std::vector<double> inter_token;
  double prompt = 0;
  double cached = 0;
  double error = 0;
  double bias = 0;
  for (const Outcome& one : results.outcomes) {
    ttft.push_back(seconds(one.first_token - one.arrived));
    latency.push_back(seconds(one.ended - one.arrived));
    if (one.output_tokens > 1) {
      inter_token.push_back(seconds(one.ended - one.first_token) / (one.output_tokens - 1));
    }
    prompt += one.prompt_tokens;
    cached += one.cached_tokens;
    const double difference = static_cast<double>(one.predicted_tokens) - one.cached_tokens;
    error += std::abs(difference);
    bias += difference;
    out.duration = std::max(out.duration, seconds(one.ended));
  }
  out.ttft_mean = mean(ttft);
  out.ttft_p50 = percentile(ttft, 0.5);
  out.ttft_p99 = percentile(ttft, 0.99);
  out.latency_mean = mean(latency);
  out.latency_p99 = percentile(latency, 0.99);
  out.inter_token_mean = mean(inter_token);
  if (prompt > 0) {
    out.hit_rate = cached / prompt;
    out.prediction_error = error / prompt;
    out.prediction_bias = bias / prompt;
  }
  std::vector<double> busy;
  std::vector<double> computed;
  for (const Engine::Totals& worker : results.workers) {
    busy.push_back(seconds(worker.busy));
    computed.push_back(static_cast<double>(worker.computed_tokens));
    out.workers_used += worker.requests > 0 ? 1 : 0;
    out.most_requests = std::max<std::size_t>(out.most_requests, worker.requests);
    out.preemptions += worker.preemptions;
  }
  out.busy_balance = balance(busy);
  out.prefill_balance = balance(computed);
  out.busy_mean = out.duration > 0 ? mean(busy) / out.duration : 0;
  return out;
}

std::string to_json(const Summary& summary, const Results& results, std::string_view mode) {
  std::string out;
  json::Writer writer(out);
  writer.begin_object();
  writer.key("mode").string(mode);
  writer.key("requests").unsigned_integer(summary.requests);
  writer.key("rejected").unsigned_integer(results.rejected);
  const std::pair<std::string_view, double> figures[] = {
      {"ttft_mean_s", summary.ttft_mean},
      {"ttft_p50_s", summary.ttft_p50},
      {"ttft_p99_s", summary.ttft_p99},
      {"latency_mean_s", summary.latency_mean},
      {"latency_p99_s", summary.latency_p99},
      {"inter_token_mean_s", summary.inter_token_mean},
      {"hit_rate", summary.hit_rate},
      {"busy_balance", summary.busy_balance},
      {"prefill_balance", summary.prefill_balance},
      {"busy_mean", summary.busy_mean},
      {"duration_s", summary.duration},
      {"prediction_error", summary.prediction_error},
      {"prediction_bias", summary.prediction_bias},
      {"route_us", results.route_us}};
  for (const auto& [name, value] : figures) {
    writer.key(name).number(value);
  }
  writer.key("workers_used").unsigned_integer(summary.workers_used);
  writer.key("most_requests").unsigned_integer(summary.most_requests);
  writer.key("preemptions").unsigned_integer(summary.preemptions);
  writer.key("index_unknown_parents").unsigned_integer(results.index_unknown_parents);
  writer.key("index_exact").boolean(results.exact);
  writer.key("loads_zero").boolean(results.drained);
  writer.key("picks").begin_object();
  for (const auto& [reason, count] : results.picks) {
    writer.key(reason).unsigned_integer(count);
  }
  writer.end_object();
  writer.end_object();
  return out;
}

std::string to_text(const Summary& summary, const Results& results, std::string_view mode) {
  std::string picks;
  for (const auto& [reason, count] : results.picks) {
    picks += fmt::format("{}{} {}", picks.empty() ? "" : ", ", reason, count);
  }
  std::string out = fmt::format("{}: {} requests, {} rejected, {:.0f} s\n", mode, summary.requests,
                                results.rejected, summary.duration);
  out += fmt::format("  TTFT s          mean {:.3f}  p50 {:.3f}  p99 {:.3f}\n", summary.ttft_mean,
                     summary.ttft_p50, summary.ttft_p99);
  out += fmt::format("  latency s       mean {:.3f}  p99 {:.3f}  per token ms {:.1f}\n",
                     summary.latency_mean, summary.latency_p99, summary.inter_token_mean * 1e3);
  out += fmt::format("  hit rate        {:.2f} %\n", summary.hit_rate * 100);
  out += fmt::format("  balance         busy {:.3f}  prefill {:.3f}  (mean busy {:.1f} %)\n",
                     summary.busy_balance, summary.prefill_balance, summary.busy_mean * 100);
  out += fmt::format("  workers used    {}, at most {} requests on one, {} preemptions\n",
                     summary.workers_used, summary.most_requests, summary.preemptions);
  out += fmt::format("  prediction      error {:.2f} %  bias {:+.2f} % of prompt tokens\n",
                     summary.prediction_error * 100, summary.prediction_bias * 100);
  out += fmt::format("  picks           {}\n", picks);
  out += fmt::format("  choice          {:.1f} us\n", results.route_us);
  out += fmt::format("  at the end      loads zero: {}, index exact: {}, unknown parents: {}\n",
                     results.drained, results.exact, results.index_unknown_parents);
  return out;
}

}  // namespace fairlead::kv_sim
