#include "engine/sglang_grpc/client.hpp"

#include <expected>
#include <utility>

#include "engine/call_stream.hpp"
#include "engine/grpc_status.hpp"
#include "engine/sglang_grpc/core.hpp"
#include "engine/sglang_grpc/discovery.hpp"
#include "engine/sglang_grpc/first_message.hpp"
#include "engine/sglang_grpc/generate_call.hpp"
#include "sglang/runtime.pb.h"

namespace fairlead::engine::sglang_grpc {
namespace {

using net::Task;
using net::TimePoint;
using net::grpc::Status;
using net::grpc::StatusCode;

/// What a call that the server does not know means: every release has all but one.
Error call_error(std::string_view rpc, const Status& status) {
  if (status.code == StatusCode::Unimplemented && status.origin == Status::Origin::Server) {
    return Error{ErrorCode::EngineProtocol,
                 "the server has no sglang.runtime.v1.SglangService: start SGLang 0.5.16 or newer "
                 "with --grpc-port and without --smg-grpc-mode",
                 {}};
  }
  return status_error(rpc, status);
}

class Client final : public EngineClient {
 public:
  Client(net::Dialer& dialer, const ClientOptions& options) : core_(dialer, options) {}

  Task<Result<EngineInfo>> probe(TimePoint deadline) override;
  Task<Result<>> check_health(TimePoint deadline) override;
  bool reports_kv_usage() const override { return true; }
  Task<Result<std::vector<KvUsage>>> kv_usage(TimePoint deadline) override;
  Result<std::unique_ptr<EngineStream>> open(const GenerateRequest& request,
                                             TokenSink& sink) override {
    return CallStream<Core, GenerateCall>::open(core_, request, sink);
  }
  void set_addresses(std::vector<net::Address> addresses) override {
    core_.channel.set_addresses(std::move(addresses));
  }

 private:
  Task<Result<std::string>> call(std::string_view rpc, TimePoint deadline);
  Task<Result<std::string>> engine_state(TimePoint deadline);

  Core core_;
};

Task<Result<std::string>> Client::call(std::string_view rpc, TimePoint deadline) {
  const std::string path = std::string("/sglang.runtime.v1.SglangService/").append(rpc);
  std::expected<std::string, Status> answer = co_await core_.channel.unary(path, {}, {}, deadline);
  if (!answer) {
    co_return std::unexpected(call_error(rpc, answer.error()));
  }
  co_return std::move(*answer);
}

/// Empty before 0.5.20, which does not know the call.
Task<Result<std::string>> Client::engine_state(TimePoint deadline) {
  std::expected<std::string, Status> answer = co_await first_message(
      core_.channel, "/sglang.runtime.v1.SglangService/WatchEngineState", deadline);
  if (answer) {
    co_return std::move(*answer);
  }
  if (answer.error().code == StatusCode::Unimplemented) {
    co_return std::string();
  }
  co_return std::unexpected(status_error("WatchEngineState", answer.error()));
}

Task<Result<EngineInfo>> Client::probe(TimePoint deadline) {
  if (Result<> healthy = co_await check_health(deadline); !healthy) {
    co_return std::unexpected(std::move(healthy.error()));
  }
  DiscoveryAnswers answers;
  const std::pair<std::string_view, std::string*> calls[] = {
      {"GetModelInfo", &answers.model_info},
      {"GetServerInfo", &answers.server_info},
      {"ListModels", &answers.models},
  };
  for (const auto& [rpc, answer] : calls) {
    Result<std::string> answered = co_await call(rpc, deadline);
    if (!answered) {
      co_return std::unexpected(std::move(answered.error()));
    }
    *answer = std::move(*answered);
  }
  Result<std::string> state = co_await engine_state(deadline);
  if (!state) {
    co_return std::unexpected(std::move(state.error()));
  }
  answers.engine_state = std::move(*state);
  Result<Discovery> found = read_discovery(answers);
  if (!found) {
    co_return std::unexpected(std::move(found.error()));
  }
  if (Result<> bounded = bound_names(found->info); !bounded) {
    co_return std::unexpected(std::move(bounded.error()));
  }
  core_.dialect = found->dialect;
  co_return std::move(found->info);
}

Task<Result<>> Client::check_health(TimePoint deadline) {
  const Result<std::string> answer = co_await call("HealthCheck", deadline);
  if (!answer) {
    co_return std::unexpected(answer.error());
  }
  ::sglang::runtime::v1::HealthCheckResponse response;
  if (!response.ParseFromString(*answer)) {
    co_return fail(ErrorCode::EngineProtocol, "HealthCheck: the answer could not be decoded");
  }
  if (!response.healthy()) {
    co_return fail(ErrorCode::EngineUnreachable, "HealthCheck: the engine is not serving");
  }
  co_return Result<>();
}

Task<Result<std::vector<KvUsage>>> Client::kv_usage(TimePoint deadline) {
  const Result<std::string> answer = co_await call("GetLoad", deadline);
  if (!answer) {
    co_return std::unexpected(answer.error());
  }
  co_return read_load(*answer);
}

}  // namespace

std::unique_ptr<EngineClient> make_client(net::Dialer& dialer, const ClientOptions& options) {
  return std::make_unique<Client>(dialer, options);
}

}  // namespace fairlead::engine::sglang_grpc
