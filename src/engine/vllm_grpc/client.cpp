#include "engine/vllm_grpc/client.hpp"

#include <fmt/format.h>

#include <expected>
#include <utility>

#include "base/log.hpp"
#include "engine/call_stream.hpp"
#include "engine/grpc_status.hpp"
#include "engine/vllm_grpc/core.hpp"
#include "engine/vllm_grpc/discovery.hpp"
#include "engine/vllm_grpc/generate_call.hpp"
#include "grpc/health.pb.h"

namespace fairlead::engine::vllm_grpc {
namespace {

using net::Task;
using net::TimePoint;
using net::grpc::Status;
using net::grpc::StatusCode;

class Client final : public EngineClient {
 public:
  Client(net::Dialer& dialer, const ClientOptions& options) : core_(dialer, options) {}

  Task<Result<EngineInfo>> probe(TimePoint deadline) override;
  Task<Result<>> check_health(TimePoint deadline) override;
  Result<std::unique_ptr<EngineStream>> open(const GenerateRequest& request,
                                             TokenSink& sink) override;
  void set_addresses(std::vector<net::Address> addresses) override {
    core_.channel.set_addresses(std::move(addresses));
  }

 private:
  using Answer = std::expected<std::string, Status>;

  Task<Answer> call(std::string_view path, TimePoint deadline) {
    return core_.channel.unary(path, {}, {}, deadline);
  }
  Task<Result<>> check_service(std::string service, TimePoint deadline, StatusCode& code);
  Task<Result<Dialect>> find_service(TimePoint deadline);
  Task<Result<std::string>> kv_event_sources(TimePoint deadline);
  Task<Result<>> list_loras(TimePoint deadline, EngineInfo& info);

  Core core_;
};

bool unimplemented(const Status& status) { return status.code == StatusCode::Unimplemented; }

/// A discovery answer; UNIMPLEMENTED leaves `known` false.
Result<> take(std::string_view rpc, std::expected<std::string, Status> answer, bool& known,
              std::string& out) {
  known = answer.has_value();
  if (answer) {
    out = std::move(*answer);
  } else if (!unimplemented(answer.error())) {
    return std::unexpected(status_error(rpc, answer.error()));
  }
  return {};
}

/// Discovery first; servers without it are told apart by a request without a prompt, which every
/// generation refuses before it does anything.
Task<Result<EngineInfo>> Client::probe(TimePoint deadline) {
  Result<> healthy = co_await check_health(deadline);
  if (!healthy) {
    co_return std::unexpected(std::move(healthy.error()));
  }
  DiscoveryAnswers answers;
  Result<> taken = take("GetModelInfo", co_await call("/vllm.Control/GetModelInfo", deadline),
                        answers.has_model_info, answers.model_info);
  if (taken) {
    taken = take("GetServerInfo", co_await call("/vllm.Control/GetServerInfo", deadline),
                 answers.has_server_info, answers.server_info);
  }
  if (!taken) {
    co_return std::unexpected(std::move(taken.error()));
  }
  Result<Dialect> dialect = dialect_of_answers(answers);
  if (!answers.has_model_info && !answers.has_server_info) {
    dialect = co_await find_service(deadline);
    if (!dialect) {
      co_return std::unexpected(std::move(dialect.error()));
    }
  } else {
    Result<std::string> sources = co_await kv_event_sources(deadline);
    if (!sources) {
      co_return std::unexpected(std::move(sources.error()));
    }
    answers.kv_event_sources = std::move(*sources);
  }
  std::vector<std::string> warnings;
  Result<EngineInfo> info = read_discovery(answers, *dialect, warnings);
  if (!info) {
    co_return info;
  }
  if (info->capabilities.has(Capability::Lora)) {
    if (Result<> listed = co_await list_loras(deadline, *info); !listed) {
      co_return std::unexpected(std::move(listed.error()));
    }
  }
  core_.dialect = *dialect;
  info->warnings = std::move(warnings);
  if (Result<> bounded = bound_names(*info); !bounded) {
    co_return std::unexpected(std::move(bounded.error()));
  }
  co_return info;
}

/// Servers without the call, or started without adapters, have none.
Task<Result<>> Client::list_loras(TimePoint deadline, EngineInfo& info) {
  const Answer answer = co_await call("/vllm.Control/ListLoras", deadline);
  if (answer) {
    co_return read_loras(*answer, info);
  }
  if (unimplemented(answer.error()) || answer.error().code == StatusCode::FailedPrecondition) {
    co_return Result<>();
  }
  co_return std::unexpected(status_error("ListLoras", answer.error()));
}

Task<Result<Dialect>> Client::find_service(TimePoint deadline) {
  for (const Dialect dialect : {Dialect::InferenceEarly, Dialect::Generate}) {
    const std::string_view path =
        dialect == Dialect::Generate ? "/vllm.Generate/Generate" : "/vllm.Inference/Generate";
    const Answer answer = co_await call(path, deadline);
    if (answer ||
        (answer.error().origin == Status::Origin::Server && !unimplemented(answer.error()))) {
      co_return dialect;
    }
    if (!unimplemented(answer.error())) {
      co_return std::unexpected(status_error("Generate", answer.error()));
    }
  }
  co_return fail(ErrorCode::EngineProtocol,
                 "the server has neither vllm.Inference nor vllm.Generate: it is no vLLM engine");
}

/// An unreleased service took the call over for a while; where neither exists, events are off.
Task<Result<std::string>> Client::kv_event_sources(TimePoint deadline) {
  for (const std::string_view path :
       {"/vllm.Control/GetKvEventSources", "/vllm.KvTransfer/GetKvEventSources"}) {
    Answer answer = co_await call(path, deadline);
    if (answer) {
      co_return std::move(*answer);
    }
    if (!unimplemented(answer.error())) {
      co_return std::unexpected(status_error("GetKvEventSources", answer.error()));
    }
  }
  co_return std::string();
}

/// The server as a whole, or its generation service where only named services are kept. A server
/// without the health service is alive when it answers at all.
Task<Result<>> Client::check_health(TimePoint deadline) {
  StatusCode code = StatusCode::Ok;
  Result<> healthy = co_await check_service({}, deadline, code);
  if (!healthy && code == StatusCode::NotFound) {
    healthy = co_await check_service(
        core_.dialect == Dialect::Generate ? "vllm.Generate" : "vllm.Inference", deadline, code);
  }
  co_return healthy;
}

Task<Result<>> Client::check_service(std::string service, TimePoint deadline, StatusCode& code) {
  ::grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  const Answer answer = co_await core_.channel.unary("/grpc.health.v1.Health/Check", {},
                                                     request.SerializeAsString(), deadline);
  code = answer ? StatusCode::Ok : answer.error().code;
  if (!answer) {
    if (unimplemented(answer.error()) && answer.error().origin == Status::Origin::Server) {
      co_return Result<>();
    }
    co_return std::unexpected(status_error("Check", answer.error()));
  }
  ::grpc::health::v1::HealthCheckResponse response;
  if (!response.ParseFromString(*answer)) {
    co_return fail(ErrorCode::EngineProtocol, "Check: the answer could not be decoded");
  }
  if (response.status() != ::grpc::health::v1::HealthCheckResponse::SERVING) {
    co_return fail(ErrorCode::EngineUnreachable,
                   fmt::format("Check: the engine is not serving (status {})",
                               static_cast<int>(response.status())));
  }
  co_return Result<>();
}

Result<std::unique_ptr<EngineStream>> Client::open(const GenerateRequest& request,
                                                   TokenSink& sink) {
  return CallStream<Core, GenerateCall>::open(core_, request, sink);
}

}  // namespace

std::unique_ptr<EngineClient> make_client(net::Dialer& dialer, const ClientOptions& options) {
  return std::make_unique<Client>(dialer, options);
}

}  // namespace fairlead::engine::vllm_grpc
