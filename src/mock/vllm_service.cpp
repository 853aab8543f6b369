#include "mock/vllm_service.hpp"

#include <google/protobuf/util/json_util.h>

#include <expected>
#include <utility>

#include "base/json.hpp"
#include "grpc/health.pb.h"
#include "mock/debug_api.hpp"
#include "mock/generation.hpp"
#include "mock/vllm_output.hpp"
#include "mock/vllm_request.hpp"
#include "vllm/inference.pb.h"

namespace fairlead::mock {
namespace {

using net::grpc::ServerCall;
using net::grpc::Status;
using net::grpc::StatusCode;

constexpr std::size_t kMaxRequestBytes = 32 * 1024 * 1024;

std::string to_json(const google::protobuf::Message& message) {
  std::string json;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  return google::protobuf::util::MessageToJsonString(message, &json, options).ok() ? json : "{}";
}

std::string render_generate(const ReceivedRequest& received) {
  ::vllm::GenerateRequest request;
  return request.ParseFromString(received.message) ? to_json(request) : "null";
}

// The record holds the request without what is large or named elsewhere.
RenderedRecord render_grpc_record(const RequestRecord& record) {
  RenderedRecord rendered;
  ::vllm::GenerateRequest request;
  if (!request.ParseFromString(record.sampling)) {
    return rendered;
  }
  rendered.logprobs = to_json(request.response());
  json::Object fields;
  if (request.has_temperature()) {
    fields.set("temperature", double{request.temperature()});
  }
  for (const std::string& part :
       {to_json(request.sampling()), to_json(request.decoding()), to_json(request.stopping())}) {
    const auto members = json::parse(part);
    if (members && members->as_object()) {
      for (const json::Member& member : *members->as_object()) {
        fields.set(member.key, member.value);
      }
    }
  }
  rendered.sampling = json::dump(fields);
  return rendered;
}

RequestRecord record_of(const ::vllm::GenerateRequest& request, bool streaming,
                        const std::expected<GenerateSpec, Status>& spec) {
  RequestRecord record;
  record.request_id = spec ? spec->request_id : request.request_id();
  record.model = request.model();
  record.lora = request.lora_name();
  record.stream = streaming;
  record.refusal = spec ? std::string() : spec.error().message;
  ::vllm::GenerateRequest kept;
  if (request.has_temperature()) {
    kept.set_temperature(request.temperature());
  }
  *kept.mutable_sampling() = request.sampling();
  *kept.mutable_decoding() = request.decoding();
  *kept.mutable_stopping() = request.stopping();
  *kept.mutable_response() = request.response();
  record.sampling = kept.SerializeAsString();
  return record;
}

}  // namespace

VllmService::VllmService(EngineState& state) : state_(state), gate_(state) {
  service_.limit_requests(kMaxRequestBytes);
  state_.render_message = render_generate;
  state_.render_record = render_grpc_record;
  add_inference();
  if (state_.options.has(Capability::Control)) {
    add_control_methods(service_, state_);
  }
  if (state_.options.has(Capability::Health)) {
    add_health();
  }
  inner_ = service_.handler();
}

net::http::Handler VllmService::handler() {
  return [this](net::http::Exchange& exchange) { return gate_.serve(inner_, exchange); };
}

std::string VllmService::error_body(int, std::string_view message) const {
  return debug_error(message);
}

void VllmService::add_inference() {
  const std::string prefix =
      state_.options.has(Capability::Control) ? "/vllm.Inference/" : "/vllm.Generate/";
  service_.add(prefix + "Generate", [this](ServerCall& call) { return generate(call, false); });
  service_.add(prefix + "GenerateStream",
               [this](ServerCall& call) { return generate(call, true); });
}

net::Task<> VllmService::generate(ServerCall& call, bool streaming) {
  const net::http::Request& http = call.exchange().request();
  ++state_.requests_total;
  state_.record(http.path, http.headers, call.request());
  if (state_.fault(FaultKind::StallOpen)) {
    const HeldRequest held(state_);
    net::Event never;
    co_await never.wait();
  }
  const MockOptions& options = state_.options;
  const auto rank = call.metadata("x-data-parallel-rank");
  std::expected<GenerateSpec, Status> spec;
  {
    ::vllm::GenerateRequest request;
    if (!request.ParseFromArray(call.request().data(), static_cast<int>(call.request().size()))) {
      spec = std::unexpected(Status{StatusCode::Internal, "failed to decode Protobuf message",
                                    Status::Origin::Server});
    } else {
      spec = check_request(request, rank ? &*rank : nullptr, options);
    }
    if (spec) {
      if (auto refused = check_admission(state_)) {
        spec = std::unexpected(to_status(std::move(*refused)));
      }
    }
    state_.add_record(record_of(request, streaming, spec));
  }
  if (!spec) {
    ++state_.rejected_total;
    call.finish(spec.error());
    co_return;
  }
  EngineCore& core = spec->any_rank ? state_.least_loaded() : *state_.cores[spec->rank];
  VllmAnswer answer(*spec, options, call, streaming);
  Generation generation(state_, core, *spec, answer, call.exchange());
  co_await generation.run();
  if (generation.was_reset()) {
    co_await gate_.cut(call.exchange());
  }
}

void VllmService::add_health() {
  service_.add("/grpc.health.v1.Health/Check", [this](ServerCall& call) { return check(call); });
  service_.add("/grpc.health.v1.Health/Watch", [this](ServerCall& call) { return watch(call); });
}

bool VllmService::is_registered(std::string_view service) const {
  if (!state_.options.has(Capability::Control)) {
    return service.empty() || service == "vllm.Generate";
  }
  return service.empty() || service == "vllm.Inference" || service == "vllm.Control";
}

std::string VllmService::health_message() const {
  ::grpc::health::v1::HealthCheckResponse response;
  response.set_status(state_.fault(FaultKind::NotServing)
                          ? ::grpc::health::v1::HealthCheckResponse::NOT_SERVING
                          : ::grpc::health::v1::HealthCheckResponse::SERVING);
  return response.SerializeAsString();
}

net::Task<> VllmService::check(ServerCall& call) {
  ::grpc::health::v1::HealthCheckRequest request;
  request.ParseFromArray(call.request().data(), static_cast<int>(call.request().size()));
  if (!is_registered(request.service())) {
    call.finish({StatusCode::NotFound, "service not registered", Status::Origin::Server});
    co_return;
  }
  call.write(health_message());
}

net::Task<> VllmService::watch(ServerCall& call) {
  ::grpc::health::v1::HealthCheckRequest request;
  request.ParseFromArray(call.request().data(), static_cast<int>(call.request().size()));
  if (!is_registered(request.service())) {
    call.finish({StatusCode::NotFound, "service not registered", Status::Origin::Server});
    co_return;
  }
  Watcher watcher;
  watchers_.push_back(watcher);
  std::string last;
  for (;;) {
    std::string now = health_message();
    if (now != last) {
      call.write(now);
      last = std::move(now);
    }
    watcher.changed.reset();
    co_await watcher.changed.wait();
  }
}

void VllmService::health_changed() {
  watchers_.for_each([](Watcher& watcher) { watcher.changed.set(); });
}

}  // namespace fairlead::mock
