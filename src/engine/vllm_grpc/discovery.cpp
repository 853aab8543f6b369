#include "engine/vllm_grpc/discovery.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "vllm/control.pb.h"

namespace fairlead::engine::vllm_grpc {
namespace {

/// `ServerInfo.api_version` of every release.
constexpr std::string_view kApiVersion = "vllm";

bool blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

std::string not_blank(const std::string& text) { return blank(text) ? std::string() : text; }

std::unexpected<Error> protocol_error(std::string message) {
  return fail(ErrorCode::EngineProtocol, std::move(message));
}

Result<> read_model(const ::vllm::ModelInfo& model, EngineInfo& info) {
  if (blank(model.model_id())) {
    return protocol_error("GetModelInfo: model_id is blank");
  }
  if (blank(model.served_model_name())) {
    return protocol_error("GetModelInfo: served_model_name is blank");
  }
  if (!model.supports_token_ids_input()) {
    return protocol_error("GetModelInfo: the engine does not take token ids");
  }
  info.model_id = model.model_id();
  info.served_model_name = model.served_model_name();
  info.aliases.assign(model.served_model_aliases().begin(), model.served_model_aliases().end());
  if (model.supports_multimodal()) {
    info.capabilities.add(Capability::Multimodal);
  }
  info.reasoning_parser = not_blank(model.reasoning_parser());
  info.tool_call_parser = not_blank(model.tool_call_parser());
  return {};
}

Result<> read_parallelism(const ::vllm::ServerInfo& server, EngineInfo& info,
                          std::vector<std::string>& warnings) {
  if (!server.has_parallelism()) {
    return {};
  }
  const ::vllm::ParallelismInfo& parallelism = server.parallelism();
  const std::uint32_t size = parallelism.data_parallel_size();
  const std::uint32_t start = parallelism.data_parallel_rank();
  std::uint32_t local = parallelism.data_parallel_size_local();
  if (size == 0) {
    return protocol_error("GetServerInfo: data_parallel_size is 0");
  }
  if (local == 0) {
    if (start > 0) {
      return protocol_error(
          fmt::format("GetServerInfo: ranks start at {} but their number is unknown", start));
    }
    local = size;
    if (size > 1) {
      warnings.push_back(fmt::format(
          "the engine does not say how many data-parallel ranks it owns; assuming all {}", size));
    }
  }
  if (start >= size || local > size - start) {
    return protocol_error(fmt::format("GetServerInfo: ranks {} to {} of a group of {}", start,
                                      std::uint64_t{start} + local - 1, size));
  }
  info.data_parallel_start = start;
  info.data_parallel_size = local;
  return {};
}

Result<> read_block_size(const ::vllm::ServerInfo& server, EngineInfo& info) {
  info.kv_block_size = server.kv_block_size();
  if (server.has_effective_attention_block_size()) {
    const std::uint64_t effective = server.effective_attention_block_size();
    if (effective == 0 || effective > std::numeric_limits<std::uint32_t>::max()) {
      return protocol_error(
          fmt::format("GetServerInfo: effective_attention_block_size is {}", effective));
    }
    info.kv_block_size = static_cast<std::uint32_t>(effective);
  }
  return {};
}

Result<> read_server(const ::vllm::ServerInfo& server, EngineInfo& info,
                     std::vector<std::string>& warnings) {
  if (server.api_version() != kApiVersion) {
    return protocol_error(fmt::format("GetServerInfo: api_version is `{}` instead of `{}`",
                                      server.api_version(), kApiVersion));
  }
  info.engine_version = server.engine_version();
  info.proto_version = server.proto_version();
  info.instance_id = server.instance_id();
  info.max_model_len = server.max_model_len();
  info.max_running_requests = server.max_running_requests();
  info.max_batched_tokens = server.max_batched_tokens();
  if (Result<> done = read_parallelism(server, info, warnings); !done) {
    return done;
  }
  if (Result<> done = read_block_size(server, info); !done) {
    return done;
  }
  // The total is the sum over the local ranks.
  if (const std::uint64_t total = server.total_kv_blocks(); total > 0) {
    info.total_kv_blocks = std::max<std::uint64_t>(1, total / info.data_parallel_size);
    if (total % info.data_parallel_size != 0) {
      warnings.push_back(fmt::format("{} KV blocks do not divide by {} data-parallel ranks", total,
                                     info.data_parallel_size));
    }
  }
  return {};
}

/// Why a source cannot be used; empty when it can.
std::string source_problem(const ::vllm::KvEventSource& source, const EngineInfo& info) {
  if (source.transport() != "zmq") {
    return fmt::format("transport `{}`", source.transport());
  }
  if (source.encoding() != "msgpack" || source.schema_version() != 1) {
    return fmt::format("encoding `{}`, schema version {}", source.encoding(),
                       source.schema_version());
  }
  if (blank(source.endpoint())) {
    return "a blank endpoint";
  }
  if (!source.has_data_parallel_rank()) {
    return "no data-parallel rank";
  }
  const std::uint32_t rank = source.data_parallel_rank();
  if (rank < info.data_parallel_start ||
      rank - info.data_parallel_start >= info.data_parallel_size) {
    return fmt::format("rank {} outside the engine's own {} to {}", rank, info.data_parallel_start,
                       info.data_parallel_start + info.data_parallel_size - 1);
  }
  for (const KvEventSource& other : info.kv_event_sources) {
    if (other.data_parallel_rank == rank) {
      return fmt::format("rank {} twice", rank);
    }
  }
  return {};
}

void read_sources(const ::vllm::GetKvEventSourcesResponse& answer, EngineInfo& info,
                  std::vector<std::string>& warnings) {
  std::string problem;
  for (const ::vllm::KvEventSource& source : answer.sources()) {
    problem = source_problem(source, info);
    if (!problem.empty()) {
      break;
    }
    info.kv_event_sources.push_back({.endpoint = source.endpoint(),
                                     .replay_endpoint = not_blank(source.replay_endpoint()),
                                     .topic = source.topic(),
                                     .data_parallel_rank = source.data_parallel_rank(),
                                     .buffer_steps = source.buffer_steps()});
  }
  if (problem.empty() && !info.kv_event_sources.empty() &&
      info.kv_event_sources.size() < info.data_parallel_size) {
    problem = fmt::format("{} sources for {} ranks", info.kv_event_sources.size(),
                          info.data_parallel_size);
  }
  if (!problem.empty()) {
    info.kv_event_sources.clear();
    warnings.push_back(
        fmt::format("the engine's KV events are not used: GetKvEventSources reports {}", problem));
  }
  std::ranges::sort(info.kv_event_sources, {}, &KvEventSource::data_parallel_rank);
}

}  // namespace

Result<EngineInfo> read_discovery(const DiscoveryAnswers& answers, Dialect dialect,
                                  std::vector<std::string>& warnings) {
  EngineInfo info;
  info.dialect = dialect_name(dialect);
  std::uint32_t max_loras = 0;
  if (answers.has_server_info) {
    ::vllm::ServerInfo server;
    if (!server.ParseFromString(answers.server_info)) {
      return protocol_error("GetServerInfo: the answer could not be decoded");
    }
    if (Result<> done = read_server(server, info, warnings); !done) {
      return std::unexpected(std::move(done.error()));
    }
    max_loras = server.max_loras();
  }
  if (answers.has_model_info) {
    ::vllm::ModelInfo model;
    if (!model.ParseFromString(answers.model_info)) {
      return protocol_error("GetModelInfo: the answer could not be decoded");
    }
    if (Result<> done = read_model(model, info); !done) {
      return std::unexpected(std::move(done.error()));
    }
    if (model.supports_lora() && max_loras > 0 && dialect != Dialect::Generate) {
      info.capabilities.add(Capability::Lora);
    }
  }
  ::vllm::GetKvEventSourcesResponse sources;
  if (!sources.ParseFromString(answers.kv_event_sources)) {
    return protocol_error("GetKvEventSources: the answer could not be decoded");
  }
  read_sources(sources, info, warnings);
  info.capabilities.add(Capability::LogprobTokenIds);
  info.capabilities.add(Capability::PromptLogprobs);
  if (takes_bad_words(dialect)) {
    info.capabilities.add(Capability::BadWordsTokenIds);
  }
  return info;
}

Result<> read_loras(const std::string& answer, EngineInfo& info) {
  ::vllm::ListLorasResponse loras;
  if (!loras.ParseFromString(answer)) {
    return protocol_error("ListLoras: the answer could not be decoded");
  }
  std::map<std::string, std::string> paths;  // by name: the order of servers may change
  for (const ::vllm::LoraAdapter& adapter : loras.adapters()) {
    if (!blank(adapter.lora_name())) {
      paths.emplace(adapter.lora_name(), adapter.source_path());
    }
  }
  for (auto& [name, path] : paths) {
    info.lora_adapters.push_back(name);
    info.lora_paths.push_back(std::move(path));
  }
  return {};
}

Dialect dialect_of_answers(const DiscoveryAnswers& answers) {
  ::vllm::ServerInfo server;
  if (!answers.has_server_info || !server.ParseFromString(answers.server_info)) {
    return Dialect::InferenceEarly;
  }
  return dialect_of_version(server.engine_version(), server.proto_version());
}

}  // namespace fairlead::engine::vllm_grpc
