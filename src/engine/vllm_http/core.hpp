#pragma once

#include <string>

#include "engine/client.hpp"
#include "engine/lingering_calls.hpp"
#include "engine/vllm_http/dialect.hpp"
#include "engine/vllm_http/response.hpp"
#include "net/http_client.hpp"

namespace fairlead::engine::vllm_http {

class GenerateCall;

/// What the streams of one client share. Outlives its streams.
class Core {
 public:
  /// `dialer` must outlive it.
  Core(net::Dialer& dialer, ClientOptions options);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  net::http::Client http;                  ///< To the engine.
  Dialect dialect;                         ///< Of the engine, as far as known.
  std::string model;                       ///< Served name sent in requests.
  ResponseScratch scratch;                 ///< For the message being handled.
  LingeringCalls<GenerateCall> lingering;  ///< Finished, but not yet answered to the end.
};

}  // namespace fairlead::engine::vllm_http
