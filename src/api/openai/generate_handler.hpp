#pragma once

#include <cstdint>

#include "api/openai/encoder.hpp"
#include "api/openai/preparation.hpp"
#include "api/options.hpp"
#include "api/request_ids.hpp"
#include "base/intrusive_list.hpp"
#include "net/http.hpp"
#include "net/task.hpp"
#include "observe/metrics.hpp"
#include "serving/service.hpp"

namespace fairlead::api::openai {

/// Answers `/v1/chat/completions` and `/v1/completions` in one reactor.
class GenerateHandler {
 public:
  /// `service` and `options` outlive the handler. `seed` feeds the request ids.
  GenerateHandler(serving::Service& service, const ApiOptions& options, std::uint64_t seed);

  /// Serves one request to its end; the result is the status sent.
  net::Task<int> serve(net::http::Exchange& exchange, observe::Endpoint endpoint);

  /// Answers every request that still runs with `error`, in-band where the answer has begun. Their
  /// generations run on unheard until their tasks are destroyed.
  void fail_all(const Error& error);

 private:
  // A request between its dispatch and its end.
  struct Live : ListNode<Live> {
    net::http::Exchange* exchange = nullptr;
    StreamEncoder* stream = nullptr;  // null for one document
  };

  int refuse(net::http::Exchange& exchange, observe::Endpoint endpoint, const Prepared& prepared,
             double started, const Error& error);

  serving::Service& service_;
  const ApiOptions& options_;
  Preparation preparation_;
  RequestIds ids_;
  IntrusiveList<Live, Live> live_;
};

}  // namespace fairlead::api::openai
