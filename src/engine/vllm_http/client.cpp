#include "engine/vllm_http/client.hpp"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/call_stream.hpp"
#include "engine/vllm_http/core.hpp"
#include "engine/vllm_http/discovery.hpp"
#include "engine/vllm_http/field_probe.hpp"
#include "engine/vllm_http/generate_call.hpp"
#include "engine/vllm_http/metrics_text.hpp"
#include "engine/vllm_http/request.hpp"
#include "engine/vllm_http/status.hpp"

namespace fairlead::engine::vllm_http {
namespace {

using net::Task;
using net::TimePoint;
using net::http::ClientResponse;

/// Of the answers that only say how full the caches are. Those of vLLM have some 100 KB.
net::http::ClientLimits metrics_limits() {
  net::http::ClientLimits limits;
  limits.body_bytes = std::size_t{4} * 1024 * 1024;
  limits.idle_connections = 1;
  return limits;
}

class Client final : public EngineClient {
 public:
  Client(net::Dialer& dialer, ClientOptions options)
      : metrics_(dialer, options.authority, options.addresses, metrics_limits()),
        core_(dialer, std::move(options)) {}

  Task<Result<EngineInfo>> probe(TimePoint deadline) override;
  Task<Result<>> check_health(TimePoint deadline) override;
  bool reports_kv_usage() const override { return true; }
  Task<Result<std::vector<KvUsage>>> kv_usage(TimePoint deadline) override;
  Result<std::unique_ptr<EngineStream>> open(const GenerateRequest& request,
                                             TokenSink& sink) override;
  void set_addresses(std::vector<net::Address> addresses) override {
    metrics_.set_addresses(addresses);
    core_.http.set_addresses(std::move(addresses));
  }

 private:
  Task<Result<ClientResponse>> get(std::string path, TimePoint deadline);
  Task<Result<std::string>> get_optional(std::string path, TimePoint deadline);
  Task<Result<DiscoveryAnswers>> discover(TimePoint deadline);
  Task<Result<Refusal>> refused(std::string body, TimePoint deadline);
  Task<Result<>> find_fields(Dialect& dialect, TimePoint deadline);
  Task<Result<EngineInfo>> ask(TimePoint deadline);
  Task<Result<>> ask_health(TimePoint deadline);

  // A pool of its own: its connections must not pass for those of another server (see known_), and
  // its answers are bounded by less.
  net::http::Client metrics_;
  Core core_;
  // What the last probe found, at which version and after how many connections. Forgotten at any
  // failure, and not trusted after a further connection: another server may be there by then, and
  // the fields are asked for anew.
  std::optional<EngineInfo> known_;
  std::string known_version_;
  std::uint64_t known_dials_ = 0;
};

Task<Result<ClientResponse>> Client::get(std::string path, TimePoint deadline) {
  net::http::ClientRequest request;
  request.target = std::move(path);
  co_return co_await core_.http.send(std::move(request), deadline);
}

/// The body of a route that a server may lack; empty then.
Task<Result<std::string>> Client::get_optional(std::string path, TimePoint deadline) {
  Result<ClientResponse> answer = co_await get(path, deadline);
  if (!answer) {
    co_return std::unexpected(std::move(answer.error()));
  }
  if (answer->status == 404 || answer->status == 405) {
    co_return std::string();
  }
  if (answer->status != 200) {
    co_return std::unexpected(status_error(path, answer->status, answer->body));
  }
  co_return std::move(answer->body);
}

Task<Result<DiscoveryAnswers>> Client::discover(TimePoint deadline) {
  DiscoveryAnswers out;
  const std::pair<const char*, std::string DiscoveryAnswers::*> routes[] = {
      {"/version", &DiscoveryAnswers::version},
      {"/v1/models", &DiscoveryAnswers::models},
      {"/kv_event_sources", &DiscoveryAnswers::kv_event_sources},
      {"/metrics", &DiscoveryAnswers::metrics},
  };
  for (const auto& [path, member] : routes) {
    Result<std::string> body = co_await get_optional(path, deadline);
    if (!body) {
      co_return std::unexpected(std::move(body.error()));
    }
    out.*member = std::move(*body);
  }
  co_return out;
}

/// The refusal of a request that cannot be served. An error when the route does not exist or the
/// server does not refuse.
Task<Result<Refusal>> Client::refused(std::string body, TimePoint deadline) {
  net::http::ClientRequest request;
  request.method = "POST";
  request.target = kGeneratePath;
  request.headers = {{"content-type", "application/json"}};
  request.body = std::move(body);
  Result<ClientResponse> answer = co_await core_.http.send(std::move(request), deadline);
  if (!answer) {
    co_return std::unexpected(std::move(answer.error()));
  }
  const int status = answer->status;
  if (status == 403) {
    co_return fail(ErrorCode::EngineUnreachable,
                   fmt::format("the server keeps {} closed: start it with --enable-scale-out ({})",
                               kGeneratePath, error_message(answer->body)));
  }
  if (status == 404 || status == 405) {
    co_return fail(
        ErrorCode::EngineProtocol,
        fmt::format("the server has no {}: it is no vLLM server, or too old", kGeneratePath));
  }
  if (status != 400 && status != 422) {
    co_return std::unexpected(
        status < 400 ? Error{ErrorCode::EngineProtocol,
                             fmt::format("{} accepts a request without a prompt", kGeneratePath),
                             {}}
                     : status_error(kGeneratePath, status, answer->body));
  }
  co_return Refusal{status, error_message(answer->body)};
}

Task<Result<>> Client::find_fields(Dialect& dialect, TimePoint deadline) {
  const Result<Refusal> without = co_await refused(empty_request(), deadline);
  if (!without) {
    co_return std::unexpected(without.error());
  }
  const Result<Refusal> again = co_await refused(empty_request(), deadline);
  if (!again || *again != *without) {
    assume_fields(dialect);
    co_return Result<>();
  }
  for (const ProbedField& field : probed_fields()) {
    const Result<Refusal> wrong =
        co_await refused(empty_request(field.name, field.wrong), deadline);
    const Result<Refusal> right =
        co_await refused(empty_request(field.name, field.right), deadline);
    if (!wrong || !right) {
      co_return std::unexpected(wrong ? right.error() : wrong.error());
    }
    if (field_is_taken(*without, *wrong, *right)) {
      set_field(dialect, field.name);
    }
  }
  co_return Result<>();
}

Task<Result<EngineInfo>> Client::probe(TimePoint deadline) {
  Result<EngineInfo> info = co_await ask(deadline);
  if (!info) {
    known_.reset();
  }
  co_return info;
}

Task<Result<EngineInfo>> Client::ask(TimePoint deadline) {
  if (Result<> healthy = co_await ask_health(deadline); !healthy) {
    co_return std::unexpected(std::move(healthy.error()));
  }
  const Result<DiscoveryAnswers> answers = co_await discover(deadline);
  if (!answers) {
    co_return std::unexpected(answers.error());
  }
  Dialect dialect = dialect_of_answers(*answers);
  if (known_ && known_dials_ == core_.http.dials() && known_version_ == answers->version &&
      core_.dialect.frontend == dialect.frontend) {
    dialect = core_.dialect;
  } else if (Result<> found = co_await find_fields(dialect, deadline); !found) {
    co_return std::unexpected(std::move(found.error()));
  }
  Result<EngineInfo> info = read_discovery(*answers, dialect);
  if (info) {
    if (Result<> bounded = bound_names(*info); !bounded) {
      co_return std::unexpected(std::move(bounded.error()));
    }
    core_.dialect = dialect;
    known_ = *info;
    known_version_ = answers->version;
    known_dials_ = core_.http.dials();
  }
  co_return info;
}

/// A connection more than at the last probe means that the server had closed the former ones: what
/// listens there now must be what was probed, or requests would be sent what it does not know.
Task<Result<>> Client::check_health(TimePoint deadline) {
  Result<> healthy = co_await ask_health(deadline);
  if (!healthy) {
    known_.reset();
    co_return healthy;
  }
  if (known_ && known_dials_ != core_.http.dials()) {
    const EngineInfo before = *known_;
    const Result<EngineInfo> now = co_await probe(deadline);
    if (!now) {
      co_return std::unexpected(now.error());
    }
    if (*now != before) {
      known_.reset();
      co_return fail(ErrorCode::EngineUnreachable, "another server listens there now");
    }
  }
  co_return healthy;
}

Task<Result<>> Client::ask_health(TimePoint deadline) {
  const Result<ClientResponse> answer = co_await get("/health", deadline);
  if (!answer) {
    co_return std::unexpected(answer.error());
  }
  if (answer->status != 200) {
    co_return fail(ErrorCode::EngineUnreachable,
                   fmt::format("/health: the engine is not serving (status {})", answer->status));
  }
  co_return Result<>();
}

Task<Result<std::vector<KvUsage>>> Client::kv_usage(TimePoint deadline) {
  net::http::ClientRequest request;
  request.target = "/metrics";
  const Result<ClientResponse> answer = co_await metrics_.send(std::move(request), deadline);
  if (!answer) {
    co_return std::unexpected(answer.error());
  }
  if (answer->status != 200) {
    co_return std::unexpected(status_error("/metrics", answer->status, answer->body));
  }
  co_return read_kv_usage(answer->body);
}

Result<std::unique_ptr<EngineStream>> Client::open(const GenerateRequest& request,
                                                   TokenSink& sink) {
  return CallStream<Core, GenerateCall>::open(core_, request, sink);
}

}  // namespace

std::unique_ptr<EngineClient> make_client(net::Dialer& dialer, ClientOptions options) {
  return std::make_unique<Client>(dialer, std::move(options));
}

}  // namespace fairlead::engine::vllm_http
