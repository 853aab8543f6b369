#include "api/router.hpp"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <string>
#include <utility>

#include "api/error_response.hpp"
#include "api/openai/models.hpp"
#include "base/log.hpp"

namespace fairlead::api {
namespace {

constexpr std::string_view kModels = "/v1/models/";
constexpr std::string_view kReady = "/ready";

/// Writes the access log's line when the request is over, however it ended.
class AccessLine {
 public:
  explicit AccessLine(const net::http::Exchange& exchange)
      : exchange_(exchange), started_(std::chrono::steady_clock::now()) {}
  AccessLine(const AccessLine&) = delete;
  AccessLine& operator=(const AccessLine&) = delete;
  ~AccessLine() {
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - started_;
    const auto& request = exchange_.request();
    log::info("access peer={} method={} path={} status={} ms={:.1f}", request.peer, request.method,
              request.path, status, taken.count());
  }

  int status = traits(ErrorCode::ClientGone).http_status;  ///< Unless an answer was completed.

 private:
  const net::http::Exchange& exchange_;
  std::chrono::steady_clock::time_point started_;
};

}  // namespace

struct ApiRouter::Route {
  std::string_view path;
  int (ApiRouter::*get)(net::http::Exchange&) = nullptr;                // answers GET and HEAD
  net::Task<int> (ApiRouter::*post)(net::http::Exchange&) = nullptr;    // answers POST
  bool admin = false;                                                   // can be switched off
  net::Task<int> (ApiRouter::*stream)(net::http::Exchange&) = nullptr;  // in place of `get`

  std::string_view allow() const {
    return !post              ? "GET, HEAD, OPTIONS"
           : !(get || stream) ? "POST, OPTIONS"
                              : "GET, HEAD, POST, OPTIONS";
  }
  std::string_view use() const { return !post ? "GET" : !(get || stream) ? "POST" : "GET or POST"; }
};

const ApiRouter::Route* ApiRouter::find_route(std::string_view path) const {
  static constexpr auto kRoutes = std::to_array<Route>({
      {"/v1/chat/completions", nullptr, &ApiRouter::chat_completions},
      {"/v1/completions", nullptr, &ApiRouter::completions},
      {"/tokenize", nullptr, &ApiRouter::tokenize},
      {"/detokenize", nullptr, &ApiRouter::detokenize},
      {"/v1/models", &ApiRouter::models},
      {"/health", &ApiRouter::health},
      {"/live", &ApiRouter::live},
      {"/ready", &ApiRouter::ready},
      {"/metrics", &ApiRouter::metrics},
      {"/v1/route", nullptr, &ApiRouter::route, true},
      {"/busy_threshold", &ApiRouter::thresholds, &ApiRouter::change_thresholds, true},
      {"/v1/kv/dump", nullptr, nullptr, true, &ApiRouter::kv_dump},
  });
  static constexpr Route kModel{kModels, &ApiRouter::model};
  for (const Route& route : kRoutes) {
    if (route.path == path) {
      return route.admin && !options_.admin ? nullptr : &route;
    }
  }
  return path.size() > kModels.size() && path.starts_with(kModels) ? &kModel : nullptr;
}

ApiRouter::ApiRouter(serving::Service& service, const observe::Registry& registry,
                     ApiOptions options, std::uint64_t seed)
    : service_(service),
      registry_(registry),
      options_(options),
      generate_(service, options_, seed),
      tokenize_(service, options_),
      route_(service, options_),
      thresholds_(service, options_),
      kv_dump_(service, options_) {}

net::http::Handler ApiRouter::handler() {
  return [this](net::http::Exchange& exchange) { return serve(exchange); };
}

net::Task<> ApiRouter::serve(net::http::Exchange& exchange) {
  if (!options_.access_log) {
    co_await dispatch(exchange);
    co_return;
  }
  AccessLine line(exchange);
  line.status = co_await dispatch(exchange);
}

net::Task<int> ApiRouter::dispatch(net::http::Exchange& exchange) {
  const net::http::Request& request = exchange.request();
  const Route* route = find_route(request.path);
  if (!route) {
    co_return fail(exchange, {ErrorCode::RouteNotFound,
                              fmt::format("Route not found: {} {}", request.method,
                                          std::string_view(request.path).substr(0, 512)),
                              {}});
  }
  if (request.method == "POST" && route->post) {
    co_return co_await (this->*route->post)(exchange);
  }
  if (request.method == "GET" || request.method == "HEAD") {
    if (route->get) {
      co_return (this->*route->get)(exchange);
    }
    if (route->stream) {
      co_return co_await (this->*route->stream)(exchange);
    }
  }
  net::http::HeaderList headers{{"allow", std::string(route->allow())}};
  if (request.method == "OPTIONS") {
    add_request_id(exchange, headers);
    exchange.respond(204, headers, {});
    co_return 204;
  }
  const Error error{ErrorCode::MethodNotAllowed,
                    fmt::format("Method {} is not allowed for {}; use {}", request.method,
                                route->path, route->use()),
                    {}};
  respond_error(exchange, error, options_, std::move(headers));
  co_return error_status(error, options_);
}

int ApiRouter::respond(net::http::Exchange& exchange, int status, std::string_view body) {
  respond_json(exchange, status, body);
  return status;
}

int ApiRouter::fail(net::http::Exchange& exchange, const Error& error) {
  respond_error(exchange, error, options_);
  return error_status(error, options_);
}

net::Task<int> ApiRouter::chat_completions(net::http::Exchange& exchange) {
  return generate_.serve(exchange, observe::Endpoint::ChatCompletions);
}

net::Task<int> ApiRouter::completions(net::http::Exchange& exchange) {
  return generate_.serve(exchange, observe::Endpoint::Completions);
}

net::Task<int> ApiRouter::tokenize(net::http::Exchange& exchange) {
  return tokenize_.serve(exchange, observe::Endpoint::Tokenize);
}

net::Task<int> ApiRouter::detokenize(net::http::Exchange& exchange) {
  return tokenize_.serve(exchange, observe::Endpoint::Detokenize);
}

net::Task<int> ApiRouter::route(net::http::Exchange& exchange) { return route_.serve(exchange); }

net::Task<int> ApiRouter::kv_dump(net::http::Exchange& exchange) {
  return kv_dump_.serve(exchange);
}

int ApiRouter::thresholds(net::http::Exchange& exchange) { return thresholds_.list(exchange); }

net::Task<int> ApiRouter::change_thresholds(net::http::Exchange& exchange) {
  co_return thresholds_.change(exchange);
}

int ApiRouter::models(net::http::Exchange& exchange) {
  if (service_.draining()) {
    return fail(exchange, {ErrorCode::Draining, "The server is shutting down", {}});
  }
  return respond(exchange, 200, openai::models_body(service_));
}

int ApiRouter::model(net::http::Exchange& exchange) {
  if (service_.draining()) {
    return fail(exchange, {ErrorCode::Draining, "The server is shutting down", {}});
  }
  // A model may be called `x/ready`: the whole rest is tried first.
  const std::string_view id = std::string_view(exchange.request().path).substr(kModels.size());
  if (const auto found = service_.fleet()->find(id)) {
    if (!openai::is_servable(service_, *found)) {
      return fail(
          exchange,
          {ErrorCode::ModelNotReady, fmt::format("The model `{}` cannot be served now", id), {}});
    }
    return respond(exchange, 200, openai::model_body(service_, *found, id));
  }
  if (id.size() > kReady.size() && id.ends_with(kReady)) {
    if (const auto found = service_.fleet()->find(id.substr(0, id.size() - kReady.size()))) {
      return respond(exchange, openai::is_servable(service_, *found) ? 200 : 503,
                     openai::model_ready_body(service_, *found));
    }
  }
  return fail(exchange,
              {ErrorCode::ModelNotFound,
               fmt::format("The model `{}` does not exist.", id.substr(0, 512)), "model"});
}

int ApiRouter::health(net::http::Exchange& exchange) {
  return respond(exchange, service_.draining() ? 503 : 200, openai::health_body(service_));
}

int ApiRouter::live(net::http::Exchange& exchange) {
  return respond(exchange, 200, R"({"status":"live","message":"The process runs"})");
}

int ApiRouter::ready(net::http::Exchange& exchange) {
  if (service_.draining()) {
    return respond(exchange, 503,
                   R"({"status":"not_ready","message":"The server is shutting down"})");
  }
  if (!openai::any_servable(service_)) {
    return respond(exchange, 503,
                   R"({"status":"not_ready","message":"No model can be served yet"})");
  }
  return respond(exchange, 200,
                 R"({"status":"ready","message":"At least one model can be served"})");
}

int ApiRouter::metrics(net::http::Exchange& exchange) {
  net::http::HeaderList headers{{"content-type", "text/plain; version=0.0.4; charset=utf-8"}};
  add_request_id(exchange, headers);
  exchange.respond(200, headers, registry_.render());
  return 200;
}

}  // namespace fairlead::api
