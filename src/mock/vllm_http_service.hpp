#pragma once

#include <string>
#include <string_view>

#include "mock/engine_service.hpp"
#include "mock/engine_state.hpp"
#include "net/http.hpp"

namespace fairlead::mock {

/// vLLM's HTTP server as far as generation by token ids needs it: `POST /inference/v1/generate`
/// and the pages that a client reads, on one EngineState.
class VllmHttpService final : public EngineService {
 public:
  /// The state must outlive the service.
  explicit VllmHttpService(EngineState& state);
  net::http::Handler handler() override;
  void health_changed() override {}
  std::string error_body(int status, std::string_view message) const override;

 private:
  net::Task<> serve(net::http::Exchange& exchange);
  net::Task<> generate(net::http::Exchange& exchange);
  void abort_requests(net::http::Exchange& exchange);
  void respond(net::http::Exchange& exchange, int status, std::string_view body) const;

  EngineState& state_;
};

/// One answer to a GET.
struct HttpPage {
  int status = 200;                                    ///< HTTP status.
  std::string_view content_type = "application/json";  ///< Empty: no body and no type.
  std::string body;                                    ///< Content.
};

/// The page at `path`: `/health`, `/version`, `/v1/models`, `/kv_event_sources`, `/metrics`,
/// `/load`; 404 for any other.
HttpPage http_page(EngineState& state, std::string_view path);

}  // namespace fairlead::mock
