#pragma once

#include <string>

#include "api/json_reader.hpp"
#include "api/options.hpp"
#include "base/error.hpp"
#include "net/http.hpp"
#include "net/task.hpp"
#include "routing/kv_loads.hpp"
#include "serving/service.hpp"

namespace fairlead::api {

/// A body of `POST /busy_threshold`.
struct ThresholdRequest {
  std::string model;                ///< Name or alias.
  routing::ThresholdChange change;  ///< Nothing: they are only read.
};

/// Parses and checks the body. Every error is the client's and names the field.
Result<ThresholdRequest> parse_threshold_request(JsonReader& reader, const std::string& body);

/// Answers `/busy_threshold` in one reactor.
class ThresholdsHandler {
 public:
  /// `service` and `options` outlive the handler.
  ThresholdsHandler(serving::Service& service, const ApiOptions& options)
      : service_(service), options_(options) {}

  /// Lists those of all models; the result is the status sent.
  int list(net::http::Exchange& exchange) const;
  /// Changes or reads those of one model.
  int change(net::http::Exchange& exchange);

 private:
  Result<std::string> answer(const net::http::Request& request);

  serving::Service& service_;
  const ApiOptions& options_;
  JsonReader reader_;
};

}  // namespace fairlead::api
