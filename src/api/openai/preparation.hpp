#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "api/json_reader.hpp"
#include "api/openai/prepare.hpp"
#include "api/options.hpp"
#include "base/error.hpp"
#include "net/http.hpp"
#include "net/task.hpp"
#include "observe/metrics.hpp"
#include "serving/service.hpp"

namespace fairlead::api::openai {

/// Why the body of a request is not even read; nothing when it is.
std::optional<Error> refusal(const serving::Service& service, const net::http::Request& request);

/// The way of a reactor's requests to `prepare`: those of small bodies at once, those of large ones
/// on the CPU pool. The same for requests that are served and for those that are only looked at.
class Preparation {
 public:
  /// `prepare`, or what decides something more from the body and calls it.
  using Work = Prepared (*)(const PrepareInput& input, const std::string& body, JsonReader& reader,
                            const std::stop_token& stop);

  /// `service` and `options` outlive it.
  Preparation(serving::Service& service, const ApiOptions& options)
      : service_(service), options_(options) {}

  /// True when the body is small enough for `at_once`.
  bool is_small(const net::http::Request& request) const;
  /// Does the work in this turn. The body may be gone then.
  Prepared at_once(net::http::Request& request, observe::Endpoint endpoint, Work work = prepare);
  /// Moves the body to the CPU pool and does the work there. Errors are the pool's.
  net::Task<Result<Prepared>> on_pool(net::http::Request& request, observe::Endpoint endpoint,
                                      Work work = prepare);

 private:
  PrepareInput input_for(const net::http::Request& request, observe::Endpoint endpoint) const;

  serving::Service& service_;
  const ApiOptions& options_;
  JsonReader reader_;
};

}  // namespace fairlead::api::openai
