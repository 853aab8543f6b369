#pragma once

#include <string>

#include "kv_sim/simulation.hpp"

namespace fairlead::kv_sim {

/// The figures of a run. Times in seconds.
struct Summary {
  std::size_t requests = 0;
  double ttft_mean = 0;
  double ttft_p50 = 0;
  double ttft_p99 = 0;
  double latency_mean = 0;
  double latency_p99 = 0;
  double inter_token_mean = 0;    ///< Of requests with more than one token.
  double hit_rate = 0;            ///< Cached prompt tokens of all.
  double busy_balance = 0;        ///< Busiest worker against the mean of all.
  double prefill_balance = 0;     ///< The same of the tokens computed.
  double busy_mean = 0;           ///< Share of the time until the last token.
  double duration = 0;            ///< Until the last token.
  double prediction_error = 0;    ///< Mean of |predicted − found cached tokens| per prompt token.
  double prediction_bias = 0;     ///< The same, signed: above 0 = too much was expected.
  std::size_t workers_used = 0;   ///< That were given a request.
  std::size_t most_requests = 0;  ///< Given to one worker.
  std::uint64_t preemptions = 0;
};

/// Sums a run up.
Summary summarize(const Results& results);
/// A line of JSON.
std::string to_json(const Summary& summary, const Results& results, std::string_view mode);
/// A table for people.
std::string to_text(const Summary& summary, const Results& results, std::string_view mode);

}  // namespace fairlead::kv_sim
