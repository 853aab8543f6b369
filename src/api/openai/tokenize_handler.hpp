#pragma once

#include <string_view>

#include "api/openai/preparation.hpp"
#include "api/options.hpp"
#include "base/error.hpp"
#include "net/http.hpp"
#include "net/task.hpp"
#include "observe/metrics.hpp"
#include "serving/service.hpp"

namespace fairlead::api::openai {

/// Answers `/tokenize` and `/detokenize` in one reactor. No engine is asked.
class TokenizeHandler {
 public:
  /// `service` and `options` outlive the handler.
  TokenizeHandler(serving::Service& service, const ApiOptions& options)
      : service_(service), options_(options), preparation_(service, options) {}

  /// Answers one request to `endpoint`, which is Tokenize or Detokenize; the result is the status
  /// sent.
  net::Task<int> serve(net::http::Exchange& exchange, observe::Endpoint endpoint);

 private:
  int refuse(net::http::Exchange& exchange, observe::Endpoint endpoint, std::string_view model,
             const Error& error);

  serving::Service& service_;
  const ApiOptions& options_;
  Preparation preparation_;
};

}  // namespace fairlead::api::openai
