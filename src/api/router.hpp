#pragma once

#include <cstdint>
#include <string_view>

#include "api/kv_dump.hpp"
#include "api/openai/generate_handler.hpp"
#include "api/openai/route_handler.hpp"
#include "api/openai/tokenize_handler.hpp"
#include "api/options.hpp"
#include "api/thresholds.hpp"
#include "net/http.hpp"
#include "net/task.hpp"
#include "observe/metrics.hpp"
#include "serving/service.hpp"

namespace fairlead::api {

/// The HTTP surface of one reactor: finds the route of a request and answers it.
class ApiRouter {
 public:
  /// `service` and `registry` outlive the router. `seed` feeds the request ids.
  ApiRouter(serving::Service& service, const observe::Registry& registry, ApiOptions options,
            std::uint64_t seed);
  ApiRouter(const ApiRouter&) = delete;
  ApiRouter& operator=(const ApiRouter&) = delete;

  /// For http::Server; the router must outlive it.
  net::http::Handler handler();

  /// Answers every generation that still runs with `error`; the last step of a drain.
  void fail_all(const Error& error) { generate_.fail_all(error); }

 private:
  struct Route;
  const Route* find_route(std::string_view path) const;

  net::Task<> serve(net::http::Exchange& exchange);
  net::Task<int> dispatch(net::http::Exchange& exchange);
  int respond(net::http::Exchange& exchange, int status, std::string_view body);
  int fail(net::http::Exchange& exchange, const Error& error);
  net::Task<int> chat_completions(net::http::Exchange& exchange);
  net::Task<int> completions(net::http::Exchange& exchange);
  net::Task<int> tokenize(net::http::Exchange& exchange);
  net::Task<int> detokenize(net::http::Exchange& exchange);
  net::Task<int> route(net::http::Exchange& exchange);
  net::Task<int> change_thresholds(net::http::Exchange& exchange);
  net::Task<int> kv_dump(net::http::Exchange& exchange);
  int thresholds(net::http::Exchange& exchange);
  int models(net::http::Exchange& exchange);
  int model(net::http::Exchange& exchange);
  int health(net::http::Exchange& exchange);
  int live(net::http::Exchange& exchange);
  int ready(net::http::Exchange& exchange);
  int metrics(net::http::Exchange& exchange);

  serving::Service& service_;
  const observe::Registry& registry_;
  ApiOptions options_;
  openai::GenerateHandler generate_;
  openai::TokenizeHandler tokenize_;
  openai::RouteHandler route_;
  ThresholdsHandler thresholds_;
  KvDumpHandler kv_dump_;
};

}  // namespace fairlead::api
