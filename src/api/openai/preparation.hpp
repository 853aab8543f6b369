#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "api/json_reader.hpp"
#include "api/openai/prepare.hpp"
#include "api/options.hpp"
#include "base/error.hpp"
#include "net/http.hpp"
#include "observe/metrics.hpp"
#include "serving/cpu_pool.hpp"
#include "serving/service.hpp"

namespace fairlead::api::openai {

/// Why the body of a request is not even read; nothing when it is.
std::optional<Error> refusal(const serving::Service& service, const net::http::Request& request);

/// The way of a reactor's requests to `prepare`: those of small bodies at once, those of large ones
/// on the CPU pool. The same for all that is done with a body: `work(input, body, reader, stop)`,
/// which owns whatever else it uses.
class Preparation {
 public:
  /// `service` and `options` outlive it.
  Preparation(serving::Service& service, const ApiOptions& options)
      : service_(service), options_(options) {}

  /// True when the body is small enough for `at_once`.
  bool is_small(const net::http::Request& request) const;
  /// Does the work in this turn. The body may be gone then.
  template <class Work = decltype(&prepare)>
  auto at_once(net::http::Request& request, observe::Endpoint endpoint,
               const Work& work = &prepare) {
    auto out = work(input_for(request, endpoint), request.body, reader_, std::stop_token());
    let_go(request.body);
    return out;
  }
  /// Moves the body to the CPU pool and does the work there: a task of its result. Errors are the
  /// pool's.
  template <class Work = decltype(&prepare)>
  auto on_pool(net::http::Request& request, observe::Endpoint endpoint, Work work = &prepare) {
    const std::size_t size = request.body.size();
    return service_.pool().run(size, [work = std::move(work), input = input_for(request, endpoint),
                                      text = std::move(request.body)](const std::stop_token& stop) {
      JsonReader reader;
      return work(input, text, reader, stop);
    });
  }

 private:
  PrepareInput input_for(const net::http::Request& request, observe::Endpoint endpoint) const;
  static void let_go(std::string& body);

  serving::Service& service_;
  const ApiOptions& options_;
  JsonReader reader_;
};

}  // namespace fairlead::api::openai
