#include "engine/sglang_grpc/event_sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/sglang_grpc/info_json.hpp"

namespace fairlead::engine::sglang_grpc {
namespace {

constexpr std::uint32_t kMaxPort = 65535;
/// SGLang's default of `buffer_steps`.
constexpr std::uint32_t kDefaultBufferSteps = 10000;

/// `tcp://HOST:PORT`, where rank r has the port PORT + r.
struct Address {
  std::string host;  ///< In brackets when it is an IPv6 address.
  std::uint32_t port = 0;
};

/// Where all ranks publish.
struct Layout {
  Address events;
  std::optional<Address> replay;
  std::string topic;
};

std::string bracketed(std::string_view host) {
  return host.contains(':') && !host.starts_with('[') ? fmt::format("[{}]", host)
                                                      : std::string(host);
}

std::optional<Address> parse_address(std::string_view text) {
  constexpr std::string_view kTcp = "tcp://";
  const std::size_t colon = text.rfind(':');
  if (!text.starts_with(kTcp) || colon < kTcp.size() || colon + 1 == text.size()) {
    return std::nullopt;
  }
  Address out;
  out.host = bracketed(text.substr(kTcp.size(), colon - kTcp.size()));
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + colon + 1, end, out.port);
  if (out.host.empty() || read.ec != std::errc{} || read.ptr != end || out.port == 0 ||
      out.port > kMaxPort) {
    return std::nullopt;
  }
  return out;
}

/// The flag's text; null when it is unset or no JSON.
json::Value parse_config(const json::Value& server) {
  const json::Value* config = server.find("kv_events_config");
  if (!config) {
    return {};
  }
  const std::string* text = config->as_string();
  if (!text) {
    return *config;
  }
  Result<json::Value> parsed = json::parse(*text);
  return parsed ? std::move(*parsed) : json::Value();
}

/// Adds one source per rank; the reason why there is none otherwise.
std::string add_ranks(const Layout& layout, std::uint32_t buffer_steps, EngineInfo& info) {
  const std::uint32_t last = info.data_parallel_size - 1;
  for (const Address* base : {&layout.events, layout.replay ? &*layout.replay : nullptr}) {
    if (base && base->port > kMaxPort - std::min(last, kMaxPort)) {
      return fmt::format("port {} plus rank {}", base->port, last);
    }
  }
  const auto endpoint = [](const Address& base, std::uint32_t rank) {
    return fmt::format("tcp://{}:{}", base.host, base.port + rank);
  };
  for (std::uint32_t rank = 0; rank <= last; ++rank) {
    info.kv_event_sources.push_back(
        {.endpoint = endpoint(layout.events, rank),
         .replay_endpoint = layout.replay ? endpoint(*layout.replay, rank) : std::string(),
         .topic = layout.topic,
         .data_parallel_rank = rank,
         .buffer_steps = layout.replay ? buffer_steps : 0});
  }
  return {};
}

/// The descriptor says the host as it was bound; the list replaces wildcards by the loopback.
std::string read_descriptor(const json::Value& descriptor, const json::Value& config,
                            std::uint32_t buffer_steps, EngineInfo& info) {
  if (const std::string publisher = find_text(descriptor, "publisher"); publisher != "zmq") {
    return fmt::format("publisher `{}`", publisher);
  }
  const auto port_of = [&](std::string_view key) {
    const std::uint64_t port = find_count(descriptor, key).value_or(0);
    return port <= kMaxPort ? static_cast<std::uint32_t>(port) : 0U;
  };
  Layout layout;
  layout.events = {bracketed(find_text(descriptor, "endpoint_host")),
                   port_of("endpoint_port_base")};
  if (layout.events.host.empty() || layout.events.port == 0) {
    return "an endpoint without host or port";
  }
  if (const std::uint64_t block = find_count(descriptor, "block_size").value_or(0);
      block != info.kv_block_size) {
    return fmt::format("blocks of {} tokens where the cache's have {}", block, info.kv_block_size);
  }
  if (const std::uint64_t ranks = find_count(descriptor, "dp_size").value_or(1);
      ranks != info.data_parallel_size) {
    return fmt::format("{} ranks where the engine has {}", ranks, info.data_parallel_size);
  }
  layout.topic = find_text(descriptor, "topic");
  // Up to 0.5.22 the descriptor does not tell; its host is that of the same bind.
  if (const std::uint32_t port = port_of("replay_endpoint_port_base"); port != 0) {
    const std::optional<Address> configured = parse_address(find_text(config, "replay_endpoint"));
    layout.replay = Address{configured ? configured->host : layout.events.host, port};
  } else {
    layout.replay = parse_address(find_text(config, "replay_endpoint"));
  }
  return add_ranks(layout, buffer_steps, info);
}

std::string read_list(const json::Array& list, std::uint32_t buffer_steps, EngineInfo& info) {
  std::vector<KvEventSource> sources;
  for (const json::Value& entry : list) {
    const std::optional<std::uint64_t> rank = find_count(entry, "dp_rank");
    const std::string endpoint = find_text(entry, "endpoint");
    if (!rank || *rank >= info.data_parallel_size || endpoint.empty()) {
      return "a source without endpoint or of no rank of the engine";
    }
    if (std::ranges::find(sources, static_cast<std::uint32_t>(*rank),
                          &KvEventSource::data_parallel_rank) != sources.end()) {
      return fmt::format("rank {} twice", *rank);
    }
    if (const auto block = find_count(entry, "block_size"); block && *block != info.kv_block_size) {
      return fmt::format("blocks of {} tokens where the cache's have {}", *block,
                         info.kv_block_size);
    }
    std::string replay = find_text(entry, "replay_endpoint");
    const std::uint32_t steps = replay.empty() ? 0 : buffer_steps;
    sources.push_back({.endpoint = endpoint,
                       .replay_endpoint = std::move(replay),
                       .topic = find_text(entry, "topic"),
                       .data_parallel_rank = static_cast<std::uint32_t>(*rank),
                       .buffer_steps = steps});
  }
  if (sources.size() < info.data_parallel_size) {
    return fmt::format("{} sources for {} ranks", sources.size(), info.data_parallel_size);
  }
  std::ranges::sort(sources, {}, &KvEventSource::data_parallel_rank);
  info.kv_event_sources = std::move(sources);
  return {};
}

/// Before 0.5.18 there is the flag's text alone.
std::string read_config(const json::Value& config, std::uint32_t buffer_steps, EngineInfo& info) {
  Layout layout;
  const std::string endpoint = find_text(config, "endpoint");
  const std::optional<Address> events =
      parse_address(endpoint.empty() ? std::string_view("tcp://*:5557") : endpoint);
  if (!events) {
    return fmt::format("the endpoint `{}`", endpoint);
  }
  layout.events = *events;
  layout.replay = parse_address(find_text(config, "replay_endpoint"));
  layout.topic = find_text(config, "topic");
  return add_ranks(layout, buffer_steps, info);
}

}  // namespace

void read_event_sources(const json::Value& server, EngineInfo& info,
                        std::vector<std::string>& warnings) {
  const json::Value config = parse_config(server);
  const json::Value* descriptor = server.find("kv_events");
  const json::Value* listed = server.find("kv_event_sources");
  const json::Array* list = listed ? listed->as_array() : nullptr;
  const bool described = descriptor && descriptor->as_object();
  const bool in_list = list && !list->empty();
  const bool configured = find_text(config, "publisher") == "zmq";
  if (!described && !in_list && !configured) {
    return;
  }
  const auto steps = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(find_count(config, "buffer_steps").value_or(kDefaultBufferSteps),
                              std::numeric_limits<std::uint32_t>::max()));
  std::string problem;
  if (info.kv_block_size == 0) {
    problem = "no block size";
  } else if (info.data_parallel_size > 1 && find_count(server, "nnodes").value_or(1) > 1) {
    problem = "several ranks on several nodes, whose hosts are not told";
  } else if (described) {
    problem = read_descriptor(*descriptor, config, steps, info);
  } else if (in_list) {
    problem = read_list(*list, steps, info);
  } else {
    problem = read_config(config, steps, info);
  }
  if (!problem.empty()) {
    info.kv_event_sources.clear();
    warnings.push_back(
        fmt::format("the engine's KV events are not used: GetServerInfo reports {}", problem));
  }
}

}  // namespace fairlead::engine::sglang_grpc
