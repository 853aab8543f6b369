#include "mock/sglang_service.hpp"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "mock/debug_api.hpp"
#include "mock/generation.hpp"
#include "mock/request_checks.hpp"
#include "mock/sglang_info.hpp"
#include "mock/sglang_output.hpp"
#include "net/task_group.hpp"
#include "sglang/runtime.pb.h"

namespace fairlead::mock {
namespace {

namespace pb = ::sglang::runtime::v1;

using net::grpc::ServerCall;
using net::grpc::Status;
using net::grpc::StatusCode;

constexpr std::size_t kMaxRequestBytes = 64 * 1024 * 1024;
constexpr std::string_view kPrefix = "/sglang.runtime.v1.SglangService/";

net::Task<> nothing() { co_return; }

Status refusal(StatusCode code, std::string message) {
  return {code, std::move(message), Status::Origin::Server};
}

std::string to_json(const google::protobuf::Message& message) {
  std::string json;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  return google::protobuf::util::MessageToJsonString(message, &json, options).ok() ? json : "{}";
}

std::string render_generate(const ReceivedRequest& received) {
  pb::GenerateRequest request;
  return request.ParseFromString(received.message) ? to_json(request) : "null";
}

// The record holds the request without its prompt.
RenderedRecord render_sglang_record(const RequestRecord& record) {
  RenderedRecord rendered;
  pb::GenerateRequest request;
  if (!request.ParseFromString(record.sampling)) {
    return rendered;
  }
  rendered.sampling = to_json(request.sampling_params());
  request.clear_sampling_params();
  rendered.logprobs = to_json(request);
  return rendered;
}

RequestRecord record_of(const pb::GenerateRequest& request, const std::string& rid,
                        const std::string& refusal) {
  RequestRecord record;
  record.request_id = rid;
  record.lora = request.lora_path();
  record.stream = request.stream();
  record.refusal = refusal;
  pb::GenerateRequest kept;
  *kept.mutable_sampling_params() = request.sampling_params();
  kept.set_return_logprob(request.return_logprob());
  kept.set_top_logprobs_num(request.top_logprobs_num());
  if (request.has_logprob_start_len()) {
    kept.set_logprob_start_len(request.logprob_start_len());
  }
  record.sampling = kept.SerializeAsString();
  return record;
}

std::string refusal_text(const SglangOutcome& outcome) {
  if (const auto* status = std::get_if<Status>(&outcome)) {
    return status->message;
  }
  if (const auto* abort = std::get_if<SglangAbort>(&outcome)) {
    return abort->message;
  }
  if (const auto* death = std::get_if<SglangDeath>(&outcome)) {
    return fmt::format("token id {} is outside the vocabulary", death->token);
  }
  return {};
}

// Choices of a request for several have ids of their own, which no client knows.
std::string choice_id(const SglangRequest& request) {
  if (request.choices == 1) {
    return request.spec.request_id;
  }
  std::string id = make_uuid();
  std::erase(id, '-');
  return id;
}

// Adds a method whose handler fills the answer, or says why not.
template <class Request, class Response, class Handler>
void add(net::grpc::Service& service, std::string_view name, const Handler& handler) {
  service.add(fmt::format("{}{}", kPrefix, name), [handler](ServerCall& call) {
    Request request;
    Response response;
    const bool parsed =
        request.ParseFromArray(call.request().data(), static_cast<int>(call.request().size()));
    const Status status = parsed
                              ? handler(request, response)
                              : refusal(StatusCode::Internal, "failed to decode Protobuf message");
    if (status.ok()) {
      call.write(response.SerializeAsString());
    }
    call.finish(status);
    return nothing();
  });
}

// An id is taken as long as its request lives.
class ActiveId {
 public:
  ActiveId(std::unordered_set<std::string>& ids, const std::string& id)
      : ids_(ids), id_(id), taken_(ids.insert(id).second) {}
  ActiveId(const ActiveId&) = delete;
  ActiveId& operator=(const ActiveId&) = delete;
  ~ActiveId() {
    if (taken_) {
      ids_.erase(id_);
    }
  }
  bool taken() const { return taken_; }

 private:
  std::unordered_set<std::string>& ids_;
  std::string id_;
  bool taken_;
};

}  // namespace

SglangService::SglangService(EngineState& state) : state_(state), gate_(state), rooms_(state) {
  service_.limit_requests(kMaxRequestBytes);
  state_.render_message = render_generate;
  state_.render_record = render_sglang_record;
  service_.add(fmt::format("{}Generate", kPrefix),
               [this](ServerCall& call) { return generate(call); });
  if (state_.options.has(Capability::WatchState)) {
    service_.add(fmt::format("{}WatchEngineState", kPrefix),
                 [this](ServerCall& call) { return watch(call); });
  }
  add_reports();
  add_control();
  inner_ = service_.handler();
}

net::http::Handler SglangService::handler() {
  return [this](net::http::Exchange& exchange) { return gate_.serve(inner_, exchange); };
}

std::string SglangService::error_body(int, std::string_view message) const {
  return debug_error(message);
}

net::Task<> SglangService::generate(ServerCall& call) {
  const net::http::Request& http = call.exchange().request();
  ++state_.requests_total;
  state_.record(http.path, http.headers, call.request());
  if (state_.fault(FaultKind::StallOpen)) {
    const HeldRequest held(state_);
    net::Event never;
    co_await never.wait();
  }
  const MockOptions& options = state_.options;
  std::optional<ActiveId> active;
  SglangOutcome outcome;
  bool wants_text = false;
  {
    pb::GenerateRequest request;
    std::optional<Status> refused;
    if (!request.ParseFromArray(call.request().data(), static_cast<int>(call.request().size()))) {
      refused = refusal(StatusCode::Internal, "failed to decode Protobuf message: GenerateRequest");
    } else {
      refused = check_sglang_fields(request, options);
    }
    const std::string rid = request.rid().empty() ? make_uuid() : request.rid();
    if (!refused && state_.options.max_concurrent_requests > 0 &&
        state_.active >= state_.options.max_concurrent_requests) {
      refused = refusal(StatusCode::ResourceExhausted, "too many concurrent requests");
    }
    if (!refused && !active.emplace(active_, rid).taken()) {
      refused = refusal(
          StatusCode::Internal,
          fmt::format(
              "Failed to submit request: RuntimeError: Duplicate active gRPC request id: {}", rid));
    }
    outcome =
        refused ? SglangOutcome(std::move(*refused)) : check_sglang_request(request, rid, options);
    wants_text = options.has(Capability::ReturnText) && request.return_text();
    state_.add_record(record_of(request, rid, refusal_text(outcome)));
  }
  if (const auto* status = std::get_if<Status>(&outcome)) {
    ++state_.rejected_total;
    call.finish(*status);
  } else if (std::holds_alternative<SglangDeath>(outcome)) {
    ++state_.rejected_total;
    state_.die(refusal_text(outcome));
    net::Event never;
    co_await never.wait();
  } else if (const auto* abort = std::get_if<SglangAbort>(&outcome)) {
    ++state_.rejected_total;
    SglangRequest empty;
    pb::GenerateRequest request;
    request.ParseFromArray(call.request().data(), static_cast<int>(call.request().size()));
    empty.spec.request_id = state_.records.back().request_id;
    empty.spec.prompt.assign(request.input_ids().begin(), request.input_ids().end());
    SglangCall answered{call, 1, wants_text};
    SglangAnswer(empty, options, answered, empty.spec.request_id, 0).refuse(*abort);
  } else {
    const auto& request = std::get<SglangRequest>(outcome);
    SglangCall answered{call, request.choices, wants_text};
    switch (options.role) {
      case Role::Aggregated: co_await run(answered, request); break;
      case Role::Prefill: co_await run_prefill(answered, request); break;
      case Role::Decode: co_await run_decode(answered, request); break;
    }
  }
}

net::Task<> SglangService::run(SglangCall& call, const SglangRequest& request) {
  net::http::Exchange& exchange = call.call.exchange();
  std::vector<std::unique_ptr<SglangAnswer>> answers;
  std::vector<std::unique_ptr<Generation>> generations;
  for (std::uint32_t i = 0; i < request.choices; ++i) {
    const std::size_t rank = request.spec.any_rank ? state_.least_loaded_rank() : request.spec.rank;
    answers.push_back(std::make_unique<SglangAnswer>(
        request, state_.options, call, choice_id(request), static_cast<std::uint32_t>(rank)));
    generations.push_back(std::make_unique<Generation>(state_, *state_.cores[rank], request.spec,
                                                       *answers.back(), exchange));
  }
  if (generations.size() > 1) {
    exchange.set_on_drain([&generations] {
      for (const auto& generation : generations) {
        generation->on_drain();
      }
    });
  }
  net::TaskGroup tasks;
  for (const auto& generation : generations) {
    tasks.spawn(generation->run());
  }
  co_await tasks.wait_idle();
  if (std::ranges::any_of(generations, [](const auto& g) { return g->was_reset(); })) {
    co_await gate_.cut(exchange);
  }
}

void SglangService::add_reports() {
  add<pb::Empty, pb::HealthCheckResponse>(service_, "HealthCheck", [this](const auto&, auto& out) {
    out.set_healthy(!state_.fault(FaultKind::NotServing));
    return Status();
  });
  add<pb::Empty, pb::GetModelInfoResponse>(
      service_, "GetModelInfo", [this](const auto&, auto& out) {
        const MockOptions& options = state_.options;
        out.set_model_path(options.model_id.empty() ? options.model : options.model_id);
        out.set_json_info(sglang_model_info(state_));
        return Status();
      });
  add<pb::Empty, pb::GetServerInfoResponse>(service_, "GetServerInfo",
                                            [this](const auto&, auto& out) {
                                              out.set_json_info(sglang_server_info(state_));
                                              return Status();
                                            });
  add<pb::Empty, pb::ListModelsResponse>(service_, "ListModels", [this](const auto&, auto& out) {
    const MockOptions& options = state_.options;
    auto& card = *out.add_models();
    card.set_id(options.model);
    card.set_root(options.model);
    card.set_max_model_len(static_cast<std::int32_t>(options.max_model_len));
    for (const std::string& lora : options.loras) {
      if (options.lora_id(lora) > 0) {
        auto& adapter = *out.add_models();
        adapter.set_id(lora);
        adapter.set_root(lora_path(lora));
        adapter.set_parent(options.model);
      }
    }
    return Status();
  });
  add<pb::GetLoadRequest, pb::GetLoadResponse>(
      service_, "GetLoad", [this](const auto& request, auto& out) {
        out.set_json_info(sglang_load(
            state_, request.has_dp_rank() ? std::optional(request.dp_rank()) : std::nullopt));
        return Status();
      });
}

void SglangService::add_control() {
  add<pb::AbortRequest, pb::AbortResponse>(service_, "Abort",
                                           [this](const auto& request, auto& out) {
                                             out.set_success(true);
                                             return abort(request.rid(), request.abort_all());
                                           });
  add<pb::Empty, pb::FlushCacheResponse>(service_, "FlushCache", [this](const auto&, auto& out) {
    bool all = true;
    for (const auto& core : state_.cores) {
      all = core->reset_prefix_cache() && all;
      core->flush_events();
    }
    out.set_success(all);
    out.set_message("Cache flushed.");
    return Status();
  });
  add<pb::PauseGenerationRequest, pb::MessageResponse>(
      service_, "PauseGeneration", [this](const auto& request, auto& out) {
        out.set_message(fmt::format("Generation paused (mode={}).", request.mode()));
        return pause(request.mode());
      });
  add<pb::Empty, pb::MessageResponse>(service_, "ContinueGeneration",
                                      [this](const auto&, auto& out) {
                                        out.set_message("Generation continued.");
                                        resume();
                                        return Status();
                                      });
}

Status SglangService::abort(std::string_view rid, bool all) {
  if (rid.empty() && !all) {
    return refusal(StatusCode::InvalidArgument,
                   "Abort requires a non-empty rid unless abort_all is true");
  }
  ++state_.abort_calls_total;
  if (all) {
    state_.abort_all();
  } else {
    state_.abort(rid);
  }
  return {};
}

// As measured, any mode is answered; one that the scheduler does not know kills it.
Status SglangService::pause(const std::string& mode) {
  if (mode != "abort" && mode != "in_place" && mode != "retract") {
    state_.die(fmt::format("pause mode {} is unknown", mode));
    return {};
  }
  if (mode == "abort") {
    state_.abort_all();
  }
  state_.paused = true;
  for (const auto& core : state_.cores) {
    core->hold(false, mode != "abort");
  }
  state_changed();
  return {};
}

void SglangService::resume() {
  state_.paused = false;
  for (const auto& core : state_.cores) {
    core->hold(true, false);
  }
  state_changed();
}

std::string SglangService::snapshot() const {
  pb::EngineStateSnapshot out;
  out.set_instance_id(state_.incarnation);
  out.set_revision(revision_);
  out.set_healthy(!state_.fault(FaultKind::NotServing));
  out.set_is_pause(state_.paused);
  const MockOptions& options = state_.options;
  out.mutable_model_info()->set_model_path(options.model_id.empty() ? options.model
                                                                    : options.model_id);
  out.mutable_model_info()->set_json_info(sglang_model_info(state_));
  out.mutable_server_info()->set_json_info(sglang_server_info(state_));
  return out.SerializeAsString();
}

net::Task<> SglangService::watch(ServerCall& call) {
  Watcher watcher;
  watchers_.push_back(watcher);
  for (;;) {
    watcher.changed.reset();
    call.write(snapshot());
    co_await watcher.changed.wait();
  }
}

void SglangService::state_changed() {
  ++revision_;
  watchers_.for_each([](Watcher& watcher) { watcher.changed.set(); });
}

void SglangService::health_changed() { state_changed(); }

}  // namespace fairlead::mock
