#include "engine/sglang_grpc/discovery.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/json.hpp"
#include "engine/sglang_grpc/event_sources.hpp"
#include "engine/sglang_grpc/info_json.hpp"
#include "sglang/runtime.pb.h"

namespace fairlead::engine::sglang_grpc {
namespace {

/// Answers above this size are no engine's; GetServerInfo's has some 20 KiB.
constexpr std::size_t kMaxInfoBytes = std::size_t{1024} * 1024;
constexpr int kMaxInfoDepth = 32;
/// More ranks than any engine has.
constexpr std::uint32_t kMaxRanks = 4096;
constexpr std::size_t kMaxStartupBytes = 64;

std::unexpected<Error> protocol_error(std::string message) {
  return fail(ErrorCode::EngineProtocol, std::move(message));
}

Result<json::Value> parse_info(std::string_view rpc, const std::string& text) {
  if (text.size() > kMaxInfoBytes) {
    return protocol_error(fmt::format("{}: an answer of {} bytes", rpc, text.size()));
  }
  Result<json::Value> parsed = parse_python_json(text, kMaxInfoDepth);
  if (!parsed) {
    return protocol_error(
        fmt::format("{}: json_info is not JSON: {}", rpc, parsed.error().message));
  }
  return parsed;
}

std::uint32_t to_uint32(std::optional<std::uint64_t> count) {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(count.value_or(0), std::numeric_limits<std::uint32_t>::max()));
}

/// The first that is given and not empty.
std::string first_of(std::string first, std::string second) {
  return first.empty() ? std::move(second) : std::move(first);
}

Result<> read_model(const ::sglang::runtime::v1::GetModelInfoResponse& answer,
                    const json::Value& model, EngineInfo& info) {
  info.model_id = first_of(answer.model_path(), find_text(model, "model_path"));
  if (info.model_id.empty()) {
    return protocol_error("GetModelInfo: model_path is blank");
  }
  const json::Value* generation = model.find("is_generation");
  const bool* generates = generation ? generation->as_bool() : nullptr;
  if (generates && !*generates) {
    return protocol_error("GetModelInfo: the model does not generate text");
  }
  return {};
}

/// The base model's card; null when there is none.
const ::sglang::runtime::v1::ModelCard* primary_card(
    const ::sglang::runtime::v1::ListModelsResponse& models, const std::string& path) {
  for (const ::sglang::runtime::v1::ModelCard& card : models.models()) {
    if (card.root() == path || card.id() == path) {
      return &card;
    }
  }
  return models.models_size() > 0 ? &models.models(0) : nullptr;
}

void read_cards(const ::sglang::runtime::v1::ListModelsResponse& models, const json::Value& server,
                EngineInfo& info) {
  const ::sglang::runtime::v1::ModelCard* primary = primary_card(models, info.model_id);
  info.served_model_name = find_text(server, "served_model_name");
  if (info.served_model_name.empty()) {
    info.served_model_name = primary && !primary->id().empty() ? primary->id() : info.model_id;
  }
  if (primary && primary->max_model_len() > 0) {
    info.max_model_len = static_cast<std::uint32_t>(primary->max_model_len());
  } else {
    info.max_model_len = to_uint32(find_count(server, "context_length"));
    if (info.max_model_len == 0) {
      info.max_model_len = to_uint32(find_count(server, "max_req_input_len"));
    }
  }
  std::map<std::string, std::string> adapters;  // by name: the order of servers may change
  for (const ::sglang::runtime::v1::ModelCard& card : models.models()) {
    if (!card.parent().empty() && !card.id().empty()) {
      adapters.emplace(card.id(), card.root());
    }
  }
  for (auto& [name, path] : adapters) {
    info.lora_adapters.push_back(name);
    info.lora_paths.push_back(std::move(path));
  }
}

Result<> read_role(const json::Value& server, const json::Value& model, EngineInfo& info) {
  const std::string mode =
      first_of(find_text(server, "disaggregation_mode"), find_text(model, "disaggregation_mode"));
  if (mode.empty() || mode == "null" || mode == "agg" || mode == "aggregated") {
    info.role = Leg::Whole;
  } else if (mode == "prefill") {
    info.role = Leg::Prefill;
  } else if (mode == "decode") {
    info.role = Leg::Decode;
  } else {
    return protocol_error(fmt::format("GetServerInfo: disaggregation_mode is `{}`", mode));
  }
  return {};
}

/// False for hosts that mean something else, or nothing, to other machines.
bool is_routable(std::string_view host) {
  constexpr std::array<std::string_view, 7> kNot{
      "*", "0.0.0.0", "::", "::0", "::1", "localhost", "localhost.localdomain"};
  return !host.empty() && std::ranges::find(kNot, host) == kNot.end() && !host.starts_with("127.");
}

/// The host of `HOST:PORT`, perhaps with a scheme, without brackets.
std::string host_of(std::string_view address) {
  if (const std::size_t scheme = address.find("://"); scheme != std::string_view::npos) {
    address.remove_prefix(scheme + 3);
  }
  if (address.starts_with('[')) {
    return std::string(address.substr(1, address.find(']') - 1));
  }
  return std::string(address.substr(0, address.rfind(':')));
}

/// Only a prefill engine has a bootstrap server; a decode engine reports a port all the same.
Result<> read_bootstrap(const json::Value& server, EngineInfo& info) {
  if (info.role != Leg::Prefill) {
    return {};
  }
  const std::uint64_t port = find_count(server, "disaggregation_bootstrap_port").value_or(0);
  if (port == 0 || port > std::numeric_limits<std::uint16_t>::max()) {
    return protocol_error("GetServerInfo: disaggregation_bootstrap_port is no port");
  }
  info.bootstrap_port = static_cast<std::uint16_t>(port);
  for (const std::string& host :
       {find_text(server, "host"), host_of(find_text(server, "dist_init_addr"))}) {
    if (is_routable(host)) {
      info.bootstrap_host = host;
      break;
    }
  }
  return {};
}

/// All ranks are reached through this one endpoint, whether they share an engine by DP attention or
/// are replicas: `routed_dp_rank` takes 0 to dp_size-1 of either, and each publishes its own
/// events.
Result<> read_parallelism(const json::Value& server, EngineInfo& info) {
  const std::uint64_t size = find_count(server, "dp_size").value_or(1);
  if (size == 0 || size > kMaxRanks) {
    return protocol_error(fmt::format("GetServerInfo: dp_size is {}", size));
  }
  info.data_parallel_size = static_cast<std::uint32_t>(size);
  return {};
}

void read_sizes(const json::Value& server, EngineInfo& info) {
  const std::uint64_t page = find_count(server, "page_size").value_or(0);
  const std::uint64_t context_parallel =
      std::max<std::uint64_t>(find_count(server, "dcp_size").value_or(1), 1);
  const std::uint64_t tokens = find_count(server, "max_total_num_tokens").value_or(0);
  if (page > 0 && page <= kMaxInfoBytes && context_parallel <= kMaxRanks) {
    info.kv_block_size = static_cast<std::uint32_t>(page * context_parallel);
    info.total_kv_blocks = tokens / page + (tokens % page == 0 ? 0 : 1);
  }
  // With DP attention the number is that of the engine, otherwise each replica's.
  info.max_running_requests = find_count(server, "max_running_requests").value_or(0);
  if (!find_flag(server, "enable_dp_attention")) {
    info.max_running_requests = std::min<std::uint64_t>(info.max_running_requests,
                                                        std::numeric_limits<std::uint32_t>::max()) *
                                info.data_parallel_size;
  }
  info.max_batched_tokens = find_count(server, "max_prefill_tokens").value_or(0);
  if (info.max_batched_tokens == 0) {
    info.max_batched_tokens = tokens;
  }
}

void read_capabilities(const json::Value& server, EngineInfo& info) {
  // A decode engine never sees the prompt's.
  if (info.role != Leg::Decode) {
    info.capabilities.add(Capability::PromptLogprobs);
  }
  if (find_flag(server, "enable_lora") || !info.lora_adapters.empty()) {
    info.capabilities.add(Capability::Lora);
  }
}

Dialect read_dialect(const json::Value& server, bool has_engine_state) {
  Dialect out;
  out.output = find_flag(server, "incremental_streaming_output") ? Dialect::Output::Incremental
                                                                 : Dialect::Output::Cumulative;
  if (find_flag(server, "enable_priority_scheduling")) {
    out.priority = find_flag(server, "schedule_low_priority_values_first")
                       ? Dialect::Priority::LowerFirst
                       : Dialect::Priority::HigherFirst;
  }
  out.strict_thinking = find_flag(server, "enable_strict_thinking");
  // The version is not told, but flags are: one that came with 0.5.17, the descriptor of KV events,
  // if only as null, with 0.5.18, and the stream of states with 0.5.20.
  out.early = !has_engine_state && !server.find("kv_events") && !server.find("dcp_comm_backend");
  return out;
}

/// How long its start took, to the nanosecond, is the same in one life and in no other.
std::string startup_mark(const json::Value& server) {
  const json::Value* time = server.find("startup_time");
  if (!time || time->is_null()) {
    return {};
  }
  const json::Value* scheduler = time->find("scheduler_e2e");
  std::string text = json::dump(scheduler ? *scheduler : *time);
  return text.size() <= kMaxStartupBytes ? "startup-" + text : std::string();
}

Result<> read_instance(const DiscoveryAnswers& answers, const json::Value& server,
                       EngineInfo& info) {
  if (answers.engine_state.empty()) {
    info.instance_id = startup_mark(server);
    return {};
  }
  ::sglang::runtime::v1::EngineStateSnapshot state;
  if (!state.ParseFromString(answers.engine_state)) {
    return protocol_error("WatchEngineState: the answer could not be decoded");
  }
  info.instance_id =
      state.instance_id() != 0 ? fmt::format("{}", state.instance_id()) : startup_mark(server);
  return {};
}

}  // namespace

Result<Discovery> read_discovery(const DiscoveryAnswers& answers) {
  ::sglang::runtime::v1::GetModelInfoResponse model_answer;
  ::sglang::runtime::v1::GetServerInfoResponse server_answer;
  ::sglang::runtime::v1::ListModelsResponse models;
  if (!model_answer.ParseFromString(answers.model_info) ||
      !server_answer.ParseFromString(answers.server_info) ||
      !models.ParseFromString(answers.models)) {
    return protocol_error("an answer of the engine's discovery could not be decoded");
  }
  json::Value model;
  if (!model_answer.json_info().empty()) {
    Result<json::Value> parsed = parse_info("GetModelInfo", model_answer.json_info());
    if (!parsed) {
      return std::unexpected(std::move(parsed.error()));
    }
    model = std::move(*parsed);
  }
  const Result<json::Value> server = parse_info("GetServerInfo", server_answer.json_info());
  if (!server) {
    return std::unexpected(server.error());
  }
  Discovery out;
  EngineInfo& info = out.info;
  Result<> done = read_model(model_answer, model, info);
  if (done) {
    done = read_role(*server, model, info);
  }
  if (done) {
    done = read_bootstrap(*server, info);
  }
  if (done) {
    done = read_parallelism(*server, info);
  }
  if (done) {
    done = read_instance(answers, *server, info);
  }
  if (!done) {
    return std::unexpected(std::move(done.error()));
  }
  read_cards(models, *server, info);
  read_sizes(*server, info);
  read_capabilities(*server, info);
  read_event_sources(*server, info, info.warnings);
  info.engine_version = find_text(*server, "version");
  info.tool_call_parser =
      first_of(find_text(*server, "tool_call_parser"), find_text(model, "tool_call_parser"));
  info.reasoning_parser =
      first_of(find_text(*server, "reasoning_parser"), find_text(model, "reasoning_parser"));
  out.dialect = read_dialect(*server, !answers.engine_state.empty());
  info.dialect = dialect_text(out.dialect);
  return out;
}

Result<std::vector<KvUsage>> read_load(const std::string& answer) {
  ::sglang::runtime::v1::GetLoadResponse response;
  if (!response.ParseFromString(answer)) {
    return protocol_error("GetLoad: the answer could not be decoded");
  }
  const Result<json::Value> parsed = parse_info("GetLoad", response.json_info());
  const json::Array* ranks = parsed ? parsed->as_array() : nullptr;
  if (!ranks) {
    return protocol_error("GetLoad: json_info is no list");
  }
  std::vector<KvUsage> out;
  for (const json::Value& rank : *ranks) {
    const std::optional<std::uint64_t> number = find_count(rank, "dp_rank");
    const std::optional<std::uint64_t> used = find_count(rank, "num_used_tokens");
    const std::uint64_t total = find_count(rank, "max_total_num_tokens").value_or(0);
    const json::Value* usage = rank.find("token_usage");
    double share = 0;
    if (used && total > 0) {
      share = static_cast<double>(*used) / static_cast<double>(total);
    } else if (!usage || !usage->number(share)) {
      continue;
    }
    if (number && *number < kMaxRanks && out.size() < kMaxRanks) {
      out.push_back({static_cast<std::uint32_t>(*number), std::clamp(share, 0.0, 1.0)});
    }
  }
  return out;
}

}  // namespace fairlead::engine::sglang_grpc
