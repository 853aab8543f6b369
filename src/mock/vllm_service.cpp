#include "mock/vllm_service.hpp"

#include <google/protobuf/util/json_util.h>

#include <utility>

#include "grpc/health.pb.h"
#include "mock/vllm_generation.hpp"
#include "mock/vllm_request.hpp"
#include "net/task_group.hpp"
#include "vllm/inference.pb.h"

namespace fairlead::mock {
namespace {

using net::grpc::ServerCall;
using net::grpc::Status;
using net::grpc::StatusCode;

constexpr std::size_t kMaxRequestBytes = 32 * 1024 * 1024;
constexpr net::Duration kResetPoll = std::chrono::milliseconds(10);
constexpr int kResetPolls = 200;

std::string render_generate(const ReceivedRequest& received) {
  ::vllm::GenerateRequest request;
  std::string json;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  if (!request.ParseFromString(received.message) ||
      !google::protobuf::util::MessageToJsonString(request, &json, options).ok()) {
    return "null";
  }
  return json;
}

struct Held {
  explicit Held(EngineState& s) : state(s) { ++state.held; }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    --state.held;
    ++state.aborted_total;
  }
  EngineState& state;
};

net::Task<> run_then_set(net::http::Handler& handler, net::http::Exchange& exchange,
                         net::Event& done) {
  co_await handler(exchange);
  done.set();
}

}  // namespace

VllmService::VllmService(EngineState& state) : state_(state) {
  service_.limit_requests(kMaxRequestBytes);
  state_.render_message = render_generate;
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
  return [this](net::http::Exchange& exchange) { return serve(exchange); };
}

void VllmService::add_inference() {
  const std::string prefix =
      state_.options.has(Capability::Control) ? "/vllm.Inference/" : "/vllm.Generate/";
  service_.add(prefix + "Generate", [this](ServerCall& call) { return generate(call, false); });
  service_.add(prefix + "GenerateStream",
               [this](ServerCall& call) { return generate(call, true); });
}

net::Task<> VllmService::serve(net::http::Exchange& exchange) {
  if (const Fault* stall = state_.fault(FaultKind::StallOpen); stall && stall->all) {
    net::Event never;
    co_await never.wait();
  }
  if (state_.fault(FaultKind::ResetAfter)) {
    co_await serve_until_reset(exchange);
  } else {
    co_await inner_(exchange);
  }
}

// A handler that returns without having finished makes the server reset the stream.
net::Task<> VllmService::serve_until_reset(net::http::Exchange& exchange) {
  net::Event over;
  struct Entry {
    VllmService& service;
    const net::http::Exchange* key;
    ~Entry() { service.resets_.erase(key); }
  } entry{*this, &exchange};
  resets_[&exchange] = &over;
  net::TaskGroup group;
  group.spawn(run_then_set(inner_, exchange, over));
  co_await over.wait();
  if (!exchange.finished() && !exchange.started()) {
    exchange.start(200, {{"content-type", "application/grpc"}});
  }
  // What was written before the fault is to arrive.
  for (int i = 0; i < kResetPolls && !exchange.finished() && exchange.unsent() > 0; ++i) {
    co_await net::Sleep(kResetPoll);
  }
}

net::Task<> VllmService::generate(ServerCall& call, bool streaming) {
  const net::http::Request& http = call.exchange().request();
  ++state_.requests_total;
  state_.record(http.path, http.headers, call.request());
  if (state_.fault(FaultKind::StallOpen)) {
    const Held held(state_);
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
  }
  if (spec && options.max_concurrent_requests > 0 &&
      state_.active >= options.max_concurrent_requests) {
    spec = std::unexpected(Status{StatusCode::ResourceExhausted, "too many concurrent requests",
                                  Status::Origin::Server});
  }
  if (spec && state_.paused) {
    spec = std::unexpected(
        Status{StatusCode::Unavailable, "generation is paused", Status::Origin::Server});
  }
  if (!spec) {
    ++state_.rejected_total;
    call.finish(spec.error());
    co_return;
  }
  EngineCore& core = spec->any_rank ? state_.least_loaded() : *state_.cores[spec->rank];
  const auto reset = resets_.find(&call.exchange());
  VllmGeneration generation(state_, core, std::move(*spec), call, streaming,
                            reset == resets_.end() ? nullptr : reset->second);
  co_await generation.ended().wait();
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
