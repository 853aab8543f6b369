#include "engine/vllm_http/metrics_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace fairlead::engine::vllm_http {
namespace {

constexpr std::size_t kMostRanks = 4096;

// Hands each line on, without its end.
template <class Each>
void for_each_line(std::string_view text, Each&& each) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    each(line);
  }
}

/// The value of a label in `name{label="value",...} number`; empty when it has none.
std::string_view label_of(std::string_view line, std::string_view label) {
  for (const char before : {'{', ','}) {
    const std::string wanted = fmt::format("{}{}=\"", before, label);
    const std::size_t at = line.find(wanted);
    if (at != std::string_view::npos) {
      line.remove_prefix(at + wanted.size());
      return line.substr(0, line.find('"'));
    }
  }
  return {};
}

/// The number behind a sample's labels.
std::optional<double> value_of(std::string_view line) {
  line.remove_prefix(std::min(line.size(), line.rfind('}') + 1));
  line.remove_prefix(std::min(line.size(), line.find_first_not_of(' ')));
  double value = 0;
  const auto read = std::from_chars(line.data(), line.data() + line.size(), value);
  return read.ec == std::errc{} && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

}  // namespace

std::optional<std::uint32_t> parse_number(std::string_view text) {
  std::uint32_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  return read.ec == std::errc{} && read.ptr == text.data() + text.size() ? std::optional(value)
                                                                         : std::nullopt;
}

MetricFacts read_metrics(std::string_view text) {
  constexpr std::string_view kRunning = "vllm:num_requests_running{";
  constexpr std::string_view kCache = "vllm:cache_config_info{";
  constexpr std::string_view kStarted = "process_start_time_seconds ";
  MetricFacts out;
  for_each_line(text, [&](std::string_view line) {
    if (line.starts_with(kStarted)) {
      out.started = line.substr(kStarted.size());
      return;
    }
    const bool cache = line.starts_with(kCache);
    const std::optional<std::uint32_t> rank =
        cache || line.starts_with(kRunning) ? parse_number(label_of(line, "engine")) : std::nullopt;
    if (!rank) {
      return;
    }
    std::uint32_t& size = out.block_sizes[*rank];
    if (cache) {
      const auto effective = parse_number(label_of(line, "effective_attention_block_size"));
      size = effective ? *effective : parse_number(label_of(line, "block_size")).value_or(0);
      out.blocks = parse_number(label_of(line, "num_gpu_blocks")).value_or(0);
    }
  });
  return out;
}

std::vector<KvUsage> read_kv_usage(std::string_view text) {
  constexpr std::string_view kUsage = "vllm:kv_cache_usage_perc{";
  std::vector<KvUsage> out;
  for_each_line(text, [&](std::string_view line) {
    if (!line.starts_with(kUsage) || out.size() >= kMostRanks) {
      return;
    }
    const std::optional<std::uint32_t> rank = parse_number(label_of(line, "engine"));
    const std::optional<double> share = value_of(line);
    if (rank && share) {
      out.push_back({.rank = *rank, .share = std::clamp(*share, 0.0, 1.0)});
    }
  });
  return out;
}

}  // namespace fairlead::engine::vllm_http
