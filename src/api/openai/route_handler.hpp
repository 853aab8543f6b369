#pragma once

#include "api/openai/preparation.hpp"
#include "api/options.hpp"
#include "base/error.hpp"
#include "net/http.hpp"
#include "net/task.hpp"
#include "serving/service.hpp"

namespace fairlead::api::openai {

/// Most candidates listed in one answer of `/v1/route`, over all its prompts.
inline constexpr std::size_t kMaxCandidates = 16'384;

/// `prepare` for a body that is a chat when it has `messages` and a completions request when it has
/// `prompt`; the endpoint of `input` does not matter.
Prepared prepare_either(const PrepareInput& input, const std::string& body, JsonReader& reader,
                        const std::stop_token& stop);

/// Answers `/v1/route` in one reactor: where a request would go, and why. Nothing is sent, booked
/// or counted.
class RouteHandler {
 public:
  /// `service` and `options` outlive the handler.
  RouteHandler(serving::Service& service, const ApiOptions& options)
      : service_(service), options_(options), preparation_(service, options) {}

  /// Answers one request; the result is the status sent.
  net::Task<int> serve(net::http::Exchange& exchange);

 private:
  Result<std::string> explain(serving::GenerationSpec spec) const;
  int refuse(net::http::Exchange& exchange, const Error& error) const;

  serving::Service& service_;
  const ApiOptions& options_;
  Preparation preparation_;
};

}  // namespace fairlead::api::openai
