#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mock/vllm_service.hpp"
#include "vllm/control.pb.h"

namespace fairlead::mock {
namespace {

namespace pb = ::vllm;

using net::grpc::ServerCall;
using net::grpc::Status;
using net::grpc::StatusCode;

constexpr std::string_view kEngineVersion = "0.33.0";
constexpr std::string_view kOlderEngineVersion = "0.32.0";
constexpr std::string_view kOldestEngineVersion = "0.28.0";
constexpr std::string_view kProtoVersion = "0.6.0";

net::Task<> nothing() { co_return; }

// Adds a method whose handler fills the answer, or says why not.
template <class Request, class Response, class Handler>
void add(net::grpc::Service& service, std::string_view name, const Handler& handler) {
  service.add("/vllm.Control/" + std::string(name), [handler](ServerCall& call) {
    Request request;
    Response response;
    const bool parsed =
        request.ParseFromArray(call.request().data(), static_cast<int>(call.request().size()));
    const Status status = parsed ? handler(request, response)
                                 : Status{StatusCode::Internal, "failed to decode Protobuf message",
                                          Status::Origin::Server};
    if (status.ok()) {
      call.write(response.SerializeAsString());
    }
    call.finish(status);
    return nothing();
  });
}

Status refuse(StatusCode code, std::string message) {
  return {code, std::move(message), Status::Origin::Server};
}

bool lora_enabled(const MockOptions& options) {
  return options.has(Capability::Lora) && !options.loras.empty();
}

Status server_info(const EngineState& state, ::vllm::ServerInfo& info) {
  const MockOptions& options = state.options;
  const bool newest = options.has(Capability::ProtoVersion);
  const bool older = options.has(Capability::NumCachedTokens);
  info.set_engine_version(
      std::string(newest ? kEngineVersion : (older ? kOlderEngineVersion : kOldestEngineVersion)));
  info.set_api_version("vllm");
  info.set_instance_id(state.instance_id);
  auto& parallelism = *info.mutable_parallelism();
  parallelism.set_tensor_parallel_size(1);
  parallelism.set_pipeline_parallel_size(1);
  parallelism.set_data_parallel_size(options.data_parallel_size);
  parallelism.set_decode_context_parallel_size(1);
  parallelism.set_world_size(1);
  if (options.has(Capability::LocalSize)) {
    parallelism.set_data_parallel_size_local(options.data_parallel_size);
  }
  info.set_max_model_len(options.max_model_len);
  info.set_kv_block_size(static_cast<std::uint32_t>(options.block_size));
  info.set_total_kv_blocks(options.num_gpu_blocks * options.data_parallel_size);
  info.set_max_running_requests(options.scheduler.max_running);
  info.set_max_batched_tokens(options.scheduler.max_batched_tokens);
  info.set_max_loras(lora_enabled(options) ? static_cast<std::uint32_t>(options.loras.size()) : 0);
  info.mutable_rl_capabilities();
  if (newest) {
    info.set_proto_version(std::string(kProtoVersion));
  }
  if (options.has(Capability::AttentionBlock)) {
    info.set_effective_attention_block_size(options.block_size);
  }
  return {};
}

Status model_info(const EngineState& state, ::vllm::ModelInfo& info) {
  const MockOptions& options = state.options;
  info.set_model_id(options.model_id.empty() ? options.model : options.model_id);
  info.set_served_model_name(options.model);
  for (const std::string& alias : options.aliases) {
    info.add_served_model_aliases(alias);
  }
  info.set_supports_token_ids_input(true);
  info.set_supports_lora(lora_enabled(options));
  info.set_reasoning_parser(options.reasoning_parser);
  info.set_tool_call_parser(options.tool_call_parser);
  return {};
}

Status kv_event_sources(const EngineState& state, ::vllm::GetKvEventSourcesResponse& response) {
  for (std::size_t rank = 0; rank < state.cores.size(); ++rank) {
    const KvPublisher* publisher = state.cores[rank]->publisher();
    if (!publisher) {
      continue;
    }
    auto& source = *response.add_sources();
    source.set_transport("zmq");
    source.set_endpoint(publisher->endpoint());
    source.set_topic(state.options.kv_events_topic);
    source.set_replay_endpoint(publisher->replay_endpoint());
    source.set_data_parallel_rank(static_cast<std::uint32_t>(rank));
    source.set_encoding("msgpack");
    source.set_schema_version(1);
    source.set_buffer_steps(static_cast<std::uint32_t>(state.options.kv_events_buffer_steps));
    source.set_hwm(100000);
    source.set_max_queue_size(100000);
  }
  return {};
}

Status pause(EngineState& state, const ::vllm::PauseGenerationRequest& request) {
  switch (request.mode()) {
    case ::vllm::PAUSE_MODE_UNSPECIFIED:
    case ::vllm::PAUSE_MODE_ABORT: state.abort_all(); break;
    case ::vllm::PAUSE_MODE_WAIT:
    case ::vllm::PAUSE_MODE_KEEP: break;
    default: return refuse(StatusCode::InvalidArgument, "invalid pause mode");
  }
  state.paused = true;
  for (const auto& core : state.cores) {
    core->hold(false, request.mode() == ::vllm::PAUSE_MODE_KEEP);
    if (!request.has_clear_cache() || request.clear_cache()) {
      core->reset_prefix_cache();
    }
  }
  return {};
}

Status resume(EngineState& state) {
  state.paused = false;
  for (const auto& core : state.cores) {
    core->hold(true, false);
  }
  return {};
}

void add_discovery(net::grpc::Service& service, EngineState& state) {
  add<pb::GetServerInfoRequest, pb::ServerInfo>(
      service, "GetServerInfo",
      [&state](const auto&, auto& response) { return server_info(state, response); });
  add<pb::GetModelInfoRequest, pb::ModelInfo>(
      service, "GetModelInfo",
      [&state](const auto&, auto& response) { return model_info(state, response); });
  if (state.options.has(Capability::KvEventSources)) {
    add<pb::GetKvEventSourcesRequest, pb::GetKvEventSourcesResponse>(
        service, "GetKvEventSources",
        [&state](const auto&, auto& response) { return kv_event_sources(state, response); });
  }
}

void add_pausing(net::grpc::Service& service, EngineState& state) {
  add<pb::PauseGenerationRequest, pb::PauseGenerationResponse>(
      service, "PauseGeneration",
      [&state](const auto& request, auto&) { return pause(state, request); });
  add<pb::ResumeGenerationRequest, pb::ResumeGenerationResponse>(
      service, "ResumeGeneration", [&state](const auto&, auto&) { return resume(state); });
  add<pb::IsPausedRequest, pb::IsPausedResponse>(service, "IsPaused",
                                                 [&state](const auto&, auto& response) {
                                                   response.set_paused(state.paused);
                                                   return Status();
                                                 });
}

Status list_loras(const EngineState& state, ::vllm::ListLorasResponse& response) {
  const MockOptions& options = state.options;
  std::vector<std::string> names = options.loras;
  std::ranges::sort(names);
  for (const std::string& name : names) {
    auto& adapter = *response.add_adapters();
    adapter.set_lora_id(options.lora_id(name));
    adapter.set_lora_name(name);
    adapter.set_source_path(lora_path(name));
  }
  return {};
}

// The adapters are those of the command line: none can be loaded or unloaded.
void add_loras(net::grpc::Service& service, const EngineState& state) {
  const bool enabled = lora_enabled(state.options);
  const Status off = refuse(StatusCode::FailedPrecondition,
                            "LoRA is not enabled on this engine; start it with --enable-lora");
  const Status no_paths = refuse(StatusCode::InvalidArgument,
                                 "Local LoRA adapter paths require "
                                 "VLLM_RUNTIME_LORA_ALLOWED_PATH_PREFIXES to be configured.");
  const Status fixed = refuse(StatusCode::Unimplemented, "unloading adapters is not simulated");
  add<pb::LoadLoraRequest, pb::LoadLoraResponse>(
      service, "LoadLora",
      [status = enabled ? no_paths : off](const auto&, auto&) { return status; });
  add<pb::UnloadLoraRequest, pb::UnloadLoraResponse>(
      service, "UnloadLora",
      [status = enabled ? fixed : off](const auto&, auto&) { return status; });
  add<pb::ListLorasRequest, pb::ListLorasResponse>(
      service, "ListLoras", [&state, enabled, off](const auto&, auto& response) {
        return enabled ? list_loras(state, response) : off;
      });
}

// What a server answers that was started without these features.
void add_refusals(net::grpc::Service& service) {
  const auto no_sleep = [](const auto&, auto&) {
    return refuse(StatusCode::FailedPrecondition,
                  "sleep mode is not configured; start vLLM with --enable-sleep-mode");
  };
  const auto no_transfer = [](const auto&, auto&) {
    return refuse(StatusCode::FailedPrecondition, "weight transfer is not configured");
  };
  add<pb::ShutdownRequest, pb::ShutdownResponse>(service, "Shutdown", [](const auto&, auto&) {
    return refuse(StatusCode::FailedPrecondition,
                  "this frontend does not manage the engine process");
  });
  add<pb::SleepRequest, pb::SleepResponse>(service, "Sleep", no_sleep);
  add<pb::WakeUpRequest, pb::WakeUpResponse>(service, "WakeUp", no_sleep);
  add<pb::IsSleepingRequest, pb::IsSleepingResponse>(service, "IsSleeping",
                                                     [](const auto&, auto&) { return Status(); });
  add<pb::InitWeightTransferEngineRequest, pb::InitWeightTransferEngineResponse>(
      service, "InitWeightTransferEngine", no_transfer);
  add<pb::StartWeightUpdateRequest, pb::StartWeightUpdateResponse>(service, "StartWeightUpdate",
                                                                   no_transfer);
  add<pb::UpdateWeightsRequest, pb::UpdateWeightsResponse>(service, "UpdateWeights", no_transfer);
  add<pb::FinishWeightUpdateRequest, pb::FinishWeightUpdateResponse>(service, "FinishWeightUpdate",
                                                                     no_transfer);
  add<pb::GetWeightVersionRequest, pb::GetWeightVersionResponse>(
      service, "GetWeightVersion", [](const auto&, auto& response) {
        response.set_weight_version("default");
        return Status();
      });
}

}  // namespace

void add_control_methods(net::grpc::Service& service, EngineState& state) {
  add<::vllm::AbortRequest, ::vllm::AbortResponse>(
      service, "Abort", [&state](const ::vllm::AbortRequest& request, auto&) {
        ++state.abort_calls_total;
        for (const std::string& id : request.request_ids()) {
          state.abort(id);
        }
        return Status();
      });
  if (state.options.has(Capability::Discovery)) {
    add_discovery(service, state);
    add_pausing(service, state);
    add_loras(service, state);
    add_refusals(service);
  }
}

}  // namespace fairlead::mock
