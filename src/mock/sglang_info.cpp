#include "mock/sglang_info.hpp"

#include <fmt/format.h>

#include <chrono>
#include <string_view>

#include "base/json.hpp"
#include "mock/sglang_request.hpp"

namespace fairlead::mock {
namespace {

constexpr std::uint16_t kDefaultBootstrapPort = 8998;

std::string_view mode_name(Role role) {
  return role == Role::Aggregated ? std::string_view("null") : role_name(role);
}

void text_or_null(json::Writer& json, std::string_view key, std::string_view value) {
  json.key(key);
  value.empty() ? json.null() : json.string(value);
}

const std::string& path_of(const MockOptions& options) {
  return options.model_id.empty() ? options.model : options.model_id;
}

// `tcp://HOST:PORT` in parts.
struct Endpoint {
  std::string host;
  std::uint16_t port = 0;
};

std::optional<Endpoint> parse_endpoint(std::string_view text) {
  constexpr std::string_view kScheme = "tcp://";
  if (!text.starts_with(kScheme)) {
    return std::nullopt;
  }
  auto place = split_host_port(text.substr(kScheme.size()));
  return place ? std::optional(Endpoint{place->first, place->second}) : std::nullopt;
}

// Wildcards are dialled at the loopback.
std::string dialable(const Endpoint& endpoint) {
  const bool wildcard = endpoint.host == "*" || endpoint.host == "0.0.0.0";
  return fmt::format("tcp://{}:{}", wildcard ? "127.0.0.1" : endpoint.host, endpoint.port);
}

const KvPublisher* publisher_of(const EngineState& state, std::size_t rank) {
  return rank < state.cores.size() ? state.cores[rank]->publisher() : nullptr;
}

std::string events_config(const EngineState& state) {
  const KvPublisher* publisher = publisher_of(state, 0);
  if (!publisher) {
    return {};
  }
  std::string out;
  json::Writer json(out);
  json.begin_object().key("publisher").string("zmq").key("endpoint").string(publisher->endpoint());
  text_or_null(json, "replay_endpoint", publisher->replay_endpoint());
  json.key("buffer_steps").unsigned_integer(state.options.kv_events_buffer_steps);
  json.key("topic").string(state.options.kv_events_topic).end_object();
  return out;
}

void write_descriptor(json::Writer& json, const EngineState& state) {
  json.key("kv_events");
  const KvPublisher* publisher = publisher_of(state, 0);
  const auto endpoint = publisher ? parse_endpoint(publisher->endpoint()) : std::nullopt;
  if (!endpoint) {
    json.null();
    return;
  }
  json.begin_object().key("publisher").string("zmq");
  json.key("endpoint_host").string(endpoint->host);
  json.key("endpoint_port_base").integer(endpoint->port);
  json.key("topic").string(state.options.kv_events_topic);
  json.key("block_size").unsigned_integer(state.options.block_size);
  json.key("dp_size").unsigned_integer(state.options.data_parallel_size);
  const auto replay = parse_endpoint(publisher->replay_endpoint());
  if (replay && state.options.has(Capability::ReplayDescriptor)) {
    json.key("replay_endpoint_port_base").integer(replay->port);
  }
  json.end_object();
}

void write_sources(json::Writer& json, const EngineState& state) {
  json.key("kv_event_sources").begin_array();
  for (std::size_t rank = 0; rank < state.cores.size(); ++rank) {
    const KvPublisher* publisher = publisher_of(state, rank);
    const auto endpoint = publisher ? parse_endpoint(publisher->endpoint()) : std::nullopt;
    if (!endpoint) {
      continue;
    }
    json.begin_object().key("dp_rank").unsigned_integer(rank);
    json.key("endpoint").string(dialable(*endpoint));
    json.key("topic").string(state.options.kv_events_topic);
    json.key("block_size").unsigned_integer(state.options.block_size);
    if (const auto replay = parse_endpoint(publisher->replay_endpoint())) {
      json.key("replay_endpoint").string(dialable(*replay));
    }
    json.end_object();
  }
  json.end_array();
}

void write_limits(json::Writer& json, const EngineState& state) {
  const MockOptions& options = state.options;
  const std::size_t tokens = (options.num_gpu_blocks - 1) * options.block_size;
  json.key("context_length").unsigned_integer(options.max_model_len);
  json.key("max_req_input_len").unsigned_integer(max_request_input(options));
  json.key("page_size").unsigned_integer(options.block_size);
  json.key("dcp_size").integer(1);
  json.key("max_total_num_tokens").unsigned_integer(tokens);
  json.key("max_total_tokens").unsigned_integer(tokens);
  json.key("max_running_requests").unsigned_integer(options.scheduler.max_running);
  json.key("max_prefill_tokens").unsigned_integer(options.scheduler.max_batched_tokens);
  json.key("max_queued_requests").null();
}

void write_parallelism(json::Writer& json, const MockOptions& options) {
  json.key("dp_size").unsigned_integer(options.data_parallel_size);
  if (options.has(Capability::SamplingExtras)) {
    json.key("dcp_comm_backend").string("ag_rs");  // a flag of the release that has these
  }
  json.key("tp_size").integer(1).key("pp_size").integer(1).key("ep_size").integer(1);
  json.key("enable_dp_attention").boolean(options.data_parallel_size > 1);
  json.key("nnodes").integer(1).key("node_rank").integer(0).key("dist_init_addr").null();
  json.key("load_balance_method").string(load_balance_name(options.resolved_balance()));
}

void write_load(json::Writer& json, const EngineState& state, std::size_t rank) {
  const EngineCore& core = *state.cores[rank];
  const MockOptions& options = state.options;
  const std::size_t total = core.pool().usable() * options.block_size;
  const std::size_t used = core.pool().used() * options.block_size;
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const TokenCounters& counters = core.counters();
  json.begin_object().key("timestamp").number(now).key("dp_rank").unsigned_integer(rank);
  json.key("num_running_reqs").unsigned_integer(core.scheduler().running());
  json.key("num_waiting_reqs").unsigned_integer(core.scheduler().waiting());
  json.key("num_waiting_uncached_tokens").integer(0);
  json.key("num_used_tokens").unsigned_integer(used);
  json.key("num_total_tokens").unsigned_integer(used);
  json.key("num_active_tokens").unsigned_integer(used);
  json.key("num_prealloc_ready_tokens").integer(0);
  json.key("max_total_num_tokens").unsigned_integer(total);
  json.key("max_running_requests").unsigned_integer(options.scheduler.max_running);
  json.key("token_usage").number(static_cast<double>(used) / static_cast<double>(total));
  json.key("gen_throughput").number(0).key("cache_hit_rate").number(0);
  json.key("utilization").number(0);
  json.key("total_prefill_uncached_tokens")
      .unsigned_integer(counters.prompt_tokens - counters.cached_tokens);
  json.key("total_prefill_busy_us").integer(0).key("decode_moments").null();
  json.key("memory").null().key("disaggregation").begin_object();
  const bool prefill = options.role == Role::Prefill;
  json.key("mode").string(mode_name(options.role));
  json.key("prefill_bootstrap_queue_reqs").unsigned_integer(prefill ? state.waiting_for_peer : 0);
  json.key("prefill_inflight_queue_reqs").integer(0);
  json.key("decode_prealloc_queue_reqs").integer(0);
  json.key("decode_transfer_queue_reqs").unsigned_integer(prefill ? 0 : state.waiting_for_peer);
  json.key("decode_retracted_queue_reqs").integer(0);
  json.key("kv_transfer_speed_gb_s").number(0).key("kv_transfer_latency_ms").number(0);
  json.end_object().key("queues").begin_object();
  json.key("waiting").unsigned_integer(core.scheduler().waiting()).key("grammar").integer(0);
  json.key("paused").integer(0).key("retracted").integer(0).end_object().end_object();
}

}  // namespace

std::string sglang_model_info(const EngineState& state) {
  const MockOptions& options = state.options;
  std::string out;
  json::Writer json(out);
  json.begin_object().key("model_path").string(path_of(options));
  json.key("served_model_name").string(options.model);
  json.key("tokenizer_path").string(path_of(options));
  json.key("is_generation").boolean(true).key("weight_version").string("default");
  json.key("load_format").string("auto");
  text_or_null(json, "reasoning_parser", options.reasoning_parser);
  text_or_null(json, "tool_call_parser", options.tool_call_parser);
  json.key("disaggregation_mode").string(mode_name(options.role));
  json.key("model_type").string("mock").key("architectures").begin_array();
  json.string("MockForCausalLM").end_array().key("embedding").begin_object();
  json.key("family").string("none").key("enabled").boolean(false).end_object().end_object();
  return out;
}

std::string sglang_server_info(const EngineState& state) {
  const MockOptions& options = state.options;
  std::string out;
  json::Writer json(out);
  json.begin_object().key("model_path").string(path_of(options));
  json.key("tokenizer_path").string(path_of(options));
  json.key("served_model_name").string(options.model);
  json.key("host").string(options.listen_host);
  // There is no HTTP server beside the gRPC one, so its port is the only one to tell.
  json.key("port").integer(state.listen_port).key("grpc_port").integer(state.listen_port);
  json.key("skip_tokenizer_init").boolean(false).key("sampling_defaults").string("model");
  json.key("stream_interval").unsigned_integer(options.stream_interval);
  json.key("incremental_streaming_output").boolean(options.incremental_output);
  text_or_null(json, "reasoning_parser", options.reasoning_parser);
  text_or_null(json, "tool_call_parser", options.tool_call_parser);
  write_limits(json, state);
  write_parallelism(json, options);
  json.key("disaggregation_mode").string(mode_name(options.role));
  json.key("disaggregation_transfer_backend").string("mooncake");
  json.key("disaggregation_bootstrap_port")
      .integer(state.bootstrap_port == 0 ? kDefaultBootstrapPort : state.bootstrap_port);
  json.key("disaggregation_decode_enable_radix_cache").boolean(false);
  json.key("disable_radix_cache")
      .boolean(options.role == Role::Decode || !options.enable_prefix_caching);
  json.key("enable_lora");
  !options.loras.empty() && options.has(Capability::Lora) ? json.boolean(true) : json.null();
  json.key("grpc_response_timeout_secs").integer(300);
  text_or_null(json, "kv_events_config", events_config(state));
  if (options.has(Capability::KvDescriptor)) {
    write_descriptor(json, state);
  }
  if (options.has(Capability::KvEventSources)) {
    write_sources(json, state);
  }
  json.key("weight_version").string("default").key("status").string("ready");
  json.key("grpc_features").begin_array().end_array().end_object();
  return out;
}

std::string sglang_load(const EngineState& state, std::optional<std::int32_t> rank) {
  std::string out;
  json::Writer json(out);
  json.begin_array();
  for (std::size_t i = 0; i < state.cores.size(); ++i) {
    if (!rank || std::cmp_equal(*rank, i)) {
      write_load(json, state, i);
    }
  }
  json.end_array();
  return out;
}

}  // namespace fairlead::mock
