#include <fmt/format.h>

#include <chrono>
#include <iterator>

#include "base/json.hpp"
#include "mock/vllm_http_error.hpp"
#include "mock/vllm_http_service.hpp"

namespace fairlead::mock {
namespace {

std::string_view version_of(HttpFlavor flavor) {
  return flavor == HttpFlavor::Rust033 ? "0.33.0" : "0.32.0";
}

std::string version_page(HttpFlavor flavor) {
  std::string body;
  json::Writer json(body);
  json.begin_object().key("version").string(version_of(flavor));
  if (!is_python(flavor)) {
    json.key("rust_frontend_version").string(version_of(flavor));
  }
  json.end_object();
  return body;
}

// One entry per name of the model, then one per adapter.
std::string models_page(const EngineState& state) {
  const MockOptions& options = state.options;
  const std::string& root = options.model_id.empty() ? options.model : options.model_id;
  std::string body;
  json::Writer json(body);
  json.begin_object().key("object").string("list").key("data").begin_array();
  const auto entry = [&](std::string_view id, std::string_view path, std::string_view parent) {
    json.begin_object().key("id").string(id).key("object").string("model");
    json.key("created").integer(state.started_at);
    json.key("owned_by").string(is_python(options.flavor) ? "vllm" : "vllm-frontend-rs");
    json.key("root").string(path).key("parent");
    parent.empty() ? json.null() : json.string(parent);
    json.key("max_model_len").unsigned_integer(options.max_model_len).end_object();
  };
  entry(options.model, root, {});
  for (const std::string& alias : options.aliases) {
    entry(alias, root, {});
  }
  if (options.has(Capability::Lora)) {
    for (const std::string& lora : options.loras) {
      entry(lora, lora_path(lora), options.model);
    }
  }
  json.end_array().end_object();
  return body;
}

std::string sources_page(const EngineState& state) {
  std::string body;
  json::Writer json(body);
  json.begin_object();
  for (std::size_t rank = 0; rank < state.cores.size(); ++rank) {
    const KvPublisher* publisher = state.cores[rank]->publisher();
    json.key(fmt::format("{}", rank)).begin_object();
    json.key("enable_kv_cache_events").boolean(publisher != nullptr);
    json.key("publisher").string(publisher ? "zmq" : "null");
    json.key("endpoint").string(publisher ? publisher->endpoint() : "tcp://*:5557");
    json.key("replay_endpoint");
    publisher && !publisher->replay_endpoint().empty() ? json.string(publisher->replay_endpoint())
                                                       : json.null();
    json.key("buffer_steps").unsigned_integer(state.options.kv_events_buffer_steps);
    json.key("hwm").integer(100000).key("max_queue_size").integer(100000);
    json.key("topic").string(state.options.kv_events_topic).end_object();
  }
  json.end_object();
  return body;
}

std::string load_page(const EngineState& state) {
  std::string body;
  json::Writer(body).begin_object().key("server_load").unsigned_integer(state.active).end_object();
  return body;
}

// The text format of Prometheus; one series per rank.
class Metrics {
 public:
  explicit Metrics(EngineState& state) : state_(state) {}

  template <class Value>
  void add(std::string_view name, std::string_view type, std::string_view help, Value value) {
    head(name, type, help);
    for (std::size_t rank = 0; rank < state_.cores.size(); ++rank) {
      line(name, rank, {}, static_cast<double>(value(*state_.cores[rank])));
    }
  }

  void add_finishes() {
    constexpr std::string_view kName = "vllm:request_success_total";
    head(kName, "counter", "Count of successfully processed requests.");
    for (std::size_t rank = 0; rank < state_.cores.size(); ++rank) {
      const TokenCounters& counters = state_.cores[rank]->counters();
      line(kName, rank, R"(,finished_reason="stop")", static_cast<double>(counters.stopped));
      line(kName, rank, R"(,finished_reason="length")", static_cast<double>(counters.full));
      line(kName, rank, R"(,finished_reason="abort")", static_cast<double>(counters.aborted));
    }
  }

  void add_cache_config() {
    constexpr std::string_view kName = "vllm:cache_config_info";
    head(kName, "gauge", "Information of the LLMEngine CacheConfig");
    for (std::size_t rank = 0; rank < state_.cores.size(); ++rank) {
      out_ += fmt::format(
          "{}{{block_size=\"{}\",enable_prefix_caching=\"{}\",engine=\"{}\",num_gpu_blocks=\"{}\"}}"
          " "
          "1.0\n",
          kName, state_.options.block_size, state_.options.enable_prefix_caching ? "True" : "False",
          rank, state_.options.num_gpu_blocks);
    }
  }

  std::string take() { return std::move(out_); }

 private:
  void head(std::string_view name, std::string_view type, std::string_view help) {
    out_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }

  void line(std::string_view name, std::size_t rank, std::string_view labels, double value) {
    out_ += fmt::format("{}{{model_name=\"{}\",engine=\"{}\"{}}} {}\n", name,
                        escaped(state_.options.model), rank, labels, value);
  }

  static std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
      if (c == '\\' || c == '"') {
        out += '\\';
      }
      out += c == '\n' ? ' ' : c;
    }
    return out;
  }

  EngineState& state_;
  std::string out_;
};

std::string metrics_page(EngineState& state) {
  Metrics metrics(state);
  metrics.add("vllm:num_requests_running", "gauge", "Requests in model execution batches.",
              [](EngineCore& core) { return core.scheduler().running(); });
  metrics.add("vllm:num_requests_waiting", "gauge", "Requests waiting to be processed.",
              [](EngineCore& core) { return core.scheduler().waiting(); });
  metrics.add("vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.",
              [](EngineCore& core) {
                return static_cast<double>(core.pool().used()) /
                       static_cast<double>(core.pool().usable());
              });
  metrics.add("vllm:prefix_cache_queries_total", "counter", "Prefix cache queries, in tokens.",
              [](EngineCore& core) { return core.counters().prompt_tokens; });
  metrics.add("vllm:prefix_cache_hits_total", "counter", "Prefix cache hits, in tokens.",
              [](EngineCore& core) { return core.counters().cached_tokens; });
  metrics.add("vllm:num_preemptions_total", "counter", "Preemptions of the engine.",
              [](EngineCore& core) { return core.scheduler().preemptions(); });
  metrics.add("vllm:prompt_tokens_total", "counter", "Prefill tokens processed.",
              [](EngineCore& core) { return core.counters().prompt_tokens; });
  metrics.add("vllm:prompt_tokens_cached_total", "counter", "Prefill tokens that were cached.",
              [](EngineCore& core) { return core.counters().cached_tokens; });
  metrics.add("vllm:generation_tokens_total", "counter", "Generation tokens processed.",
              [](EngineCore& core) { return core.counters().generated_tokens; });
  metrics.add_finishes();
  if (is_python(state.options.flavor)) {
    metrics.add_cache_config();
  }
  return metrics.take();
}

}  // namespace

HttpPage http_page(EngineState& state, std::string_view path) {
  const MockOptions& options = state.options;
  if (path == "/health" && options.has(Capability::Health)) {
    return {state.fault(FaultKind::NotServing) ? 503 : 200, {}, {}};
  }
  if (path == "/version") {
    return {.body = version_page(options.flavor)};
  }
  if (path == "/v1/models") {
    return {.body = models_page(state)};
  }
  if (path == "/kv_event_sources" && options.has(Capability::KvEventSources)) {
    return {.body = sources_page(state)};
  }
  if (path == "/load") {
    return {.body = load_page(state)};
  }
  if (path == "/metrics") {
    return {200, "text/plain; version=0.0.4; charset=utf-8", metrics_page(state)};
  }
  return {404, "application/json", http_error_body(options.flavor, 404, "Not Found")};
}

}  // namespace fairlead::mock
