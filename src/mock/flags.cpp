#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <concepts>

#include "mock/options.hpp"

namespace fairlead::mock {
namespace {

Result<> wrong(std::string_view value, std::string_view expected) {
  return fail(ErrorCode::InvalidRequest, fmt::format("`{}` is not {}", value, expected));
}

template <std::integral T>
Result<> number(std::string_view text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? Result<>() : wrong(text, "a whole number in range");
}

Result<> number(std::string_view text, double& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  const bool good =
      error == std::errc() && end == text.data() + text.size() && std::isfinite(out) && out >= 0;
  return good ? Result<>() : wrong(text, "a number that is not negative");
}

Result<> boolean(std::string_view text, bool& out) {
  out = text == "true" || text == "1" || text == "yes" || text == "on";
  const bool no = text == "false" || text == "0" || text == "no" || text == "off";
  return out || no ? Result<>() : wrong(text, "true or false");
}

Result<> text(std::string_view value, std::string& out) {
  out = value;
  return {};
}

template <class T>
Result<> take(Result<T> parsed, T& out) {
  if (!parsed) {
    return std::unexpected(parsed.error());
  }
  out = std::move(*parsed);
  return {};
}

template <class T>
Result<> append(Result<T> parsed, std::vector<T>& out) {
  if (!parsed) {
    return std::unexpected(parsed.error());
  }
  out.push_back(std::move(*parsed));
  return {};
}

Result<> listen(std::string_view value, MockOptions& options) {
  auto place = split_host_port(value);
  if (!place) {
    return std::unexpected(place.error());
  }
  options.listen_host = std::move(place->first);
  options.listen_port = place->second;
  return {};
}

Result<> debug_listen(std::string_view value, MockOptions& options) {
  auto place = split_host_port(value);
  if (!place) {
    return std::unexpected(place.error());
  }
  options.debug_host = std::move(place->first);
  options.debug_port = place->second;
  return {};
}

Result<> endpoint(std::string_view value, std::string& out) {
  if (auto place = split_host_port(value); !place) {
    return std::unexpected(place.error());
  }
  out = value;
  return {};
}

Result<> eos(std::string_view value, MockOptions& options) {
  TokenId id = 0;
  if (auto result = number(value, id); !result) {
    return result;
  }
  options.eos_token_ids.push_back(id);
  return {};
}

Result<> dialect(std::string_view value, MockOptions& options) {
  auto missing = parse_dialect(value);
  if (!missing) {
    return std::unexpected(missing.error());
  }
  options.without.insert(options.without.end(), missing->begin(), missing->end());
  return {};
}

Result<> preemption(std::string_view value, MockOptions& options) {
  if (value != "lifo" && value != "fifo") {
    return wrong(value, "lifo or fifo");
  }
  options.scheduler.preemption = value == "lifo" ? PreemptionMode::Newest : PreemptionMode::Oldest;
  return {};
}

// The same object as the key `reasoning` of --extra-engine-args.
Result<> reasoning(std::string_view value, MockOptions& options) {
  return apply_extra_engine_args(options, fmt::format(R"({{"reasoning":{}}})", value));
}

using Setter = Result<> (*)(std::string_view, MockOptions&);

struct Row {
  std::string_view name;
  Setter setter;
};

using Value = std::string_view;

constexpr std::array kRows = {
    Row{"backend",
        [](Value v, MockOptions& o) { return take(parse_backend_name(v), o.interface); }},
    Row{"http-flavor",
        [](Value v, MockOptions& o) { return take(parse_http_flavor(v), o.flavor); }},
    Row{"listen", listen},
    Row{"debug-listen", debug_listen},
    Row{"model", [](Value v, MockOptions& o) { return text(v, o.model); }},
    Row{"model-id", [](Value v, MockOptions& o) { return text(v, o.model_id); }},
    Row{"alias", [](Value v, MockOptions& o) { return append(Result<std::string>(v), o.aliases); }},
    Row{"lora", [](Value v, MockOptions& o) { return append(Result<std::string>(v), o.loras); }},
    Row{"instance-id", [](Value v, MockOptions& o) { return text(v, o.instance_id); }},
    Row{"seed", [](Value v, MockOptions& o) { return number(v, o.seed); }},
    Row{"reply", [](Value v, MockOptions& o) { return text(v, o.reply); }},
    Row{"vocab-size", [](Value v, MockOptions& o) { return number(v, o.vocab_size); }},
    Row{"eos-token-id", eos},
    Row{"max-logprobs", [](Value v, MockOptions& o) { return number(v, o.max_logprobs); }},
    Row{"refuse-temperature",
        [](Value v, MockOptions& o) { return boolean(v, o.refuse_temperature); }},
    Row{"canvas-eos", [](Value v, MockOptions& o) { return number(v, o.canvas_eos.emplace()); }},
    Row{"role", [](Value v, MockOptions& o) { return take(parse_role(v), o.role); }},
    Row{"data-parallel-size",
        [](Value v, MockOptions& o) { return number(v, o.data_parallel_size); }},
    Row{"max-concurrent-requests",
        [](Value v, MockOptions& o) { return number(v, o.max_concurrent_requests); }},
    Row{"max-concurrent-streams", [](Value v, MockOptions& o) { return number(v, o.max_streams); }},
    Row{"tool-call-parser", [](Value v, MockOptions& o) { return text(v, o.tool_call_parser); }},
    Row{"reasoning-parser", [](Value v, MockOptions& o) { return text(v, o.reasoning_parser); }},
    Row{"incremental-streaming-output",
        [](Value v, MockOptions& o) { return boolean(v, o.incremental_output); }},
    Row{"stream-interval", [](Value v, MockOptions& o) { return number(v, o.stream_interval); }},
    Row{"load-balance-method",
        [](Value v, MockOptions& o) { return take(parse_load_balance(v), o.load_balance); }},
    Row{"bootstrap-listen",
        [](Value v, MockOptions& o) { return endpoint(v, o.bootstrap_listen); }},
    Row{"bootstrap-timeout-ms",
        [](Value v, MockOptions& o) { return number(v, o.bootstrap_timeout_ms); }},
    Row{"handshake-timeout-ms",
        [](Value v, MockOptions& o) { return number(v, o.handshake_timeout_ms); }},
    Row{"kv-transfer-listen",
        [](Value v, MockOptions& o) { return endpoint(v, o.kv_transfer_listen); }},
    Row{"kv-transfer-timeout-ms",
        [](Value v, MockOptions& o) { return number(v, o.kv_transfer_timeout_ms); }},
    Row{"speedup-ratio", [](Value v, MockOptions& o) { return number(v, o.speedup_ratio); }},
    Row{"decode-speedup-ratio",
        [](Value v, MockOptions& o) { return number(v, o.decode_speedup_ratio); }},
    Row{"token-interval-ms",
        [](Value v, MockOptions& o) { return number(v, o.token_interval_ms); }},
    Row{"startup-time", [](Value v, MockOptions& o) { return number(v, o.startup_time_s); }},
    Row{"block-size", [](Value v, MockOptions& o) { return number(v, o.block_size); }},
    Row{"num-gpu-blocks", [](Value v, MockOptions& o) { return number(v, o.num_gpu_blocks); }},
    Row{"max-model-len", [](Value v, MockOptions& o) { return number(v, o.max_model_len); }},
    Row{"max-num-seqs", [](Value v, MockOptions& o) { return number(v, o.scheduler.max_running); }},
    Row{"max-num-batched-tokens",
        [](Value v, MockOptions& o) { return number(v, o.scheduler.max_batched_tokens); }},
    Row{"enable-prefix-caching",
        [](Value v, MockOptions& o) { return boolean(v, o.enable_prefix_caching); }},
    Row{"enable-chunked-prefill",
        [](Value v, MockOptions& o) { return boolean(v, o.scheduler.chunked_prefill); }},
    Row{"preemption-mode", preemption},
    Row{"kv-bytes-per-token",
        [](Value v, MockOptions& o) { return number(v, o.kv_bytes_per_token); }},
    Row{"kv-transfer-bandwidth",
        [](Value v, MockOptions& o) { return number(v, o.kv_transfer_bandwidth); }},
    Row{"reasoning", reasoning},
    Row{"kv-events", [](Value v, MockOptions& o) { return endpoint(v, o.kv_events); }},
    Row{"kv-replay", [](Value v, MockOptions& o) { return endpoint(v, o.kv_replay); }},
    Row{"kv-events-topic", [](Value v, MockOptions& o) { return text(v, o.kv_events_topic); }},
    Row{"kv-events-buffer-steps",
        [](Value v, MockOptions& o) { return number(v, o.kv_events_buffer_steps); }},
    Row{"kv-events-layout",
        [](Value v, MockOptions& o) { return take(parse_kv_event_layout(v), o.kv_events_layout); }},
    Row{"without", [](Value v, MockOptions& o) { return append(parse_capability(v), o.without); }},
    Row{"dialect", dialect},
    Row{"fault", [](Value v, MockOptions& o) { return append(parse_fault(v), o.faults); }},
    Row{"extra-engine-args", [](Value v, MockOptions& o) { return apply_extra_engine_args(o, v); }},
};

}  // namespace

Result<> set_option(MockOptions& options, std::string_view name, std::string_view value) {
  const auto row = std::ranges::find(kRows, name, &Row::name);
  if (row == kRows.end()) {
    return fail(ErrorCode::InvalidRequest, fmt::format("no option --{}", name));
  }
  auto result = row->setter(value, options);
  if (!result) {
    Error error = std::move(result.error());
    error.message = fmt::format("--{}: {}", name, error.message);
    error.param = fmt::format("--{}", name);
    return std::unexpected(std::move(error));
  }
  return {};
}

}  // namespace fairlead::mock
