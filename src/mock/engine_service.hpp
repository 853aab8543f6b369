#pragma once

#include <string>
#include <string_view>

#include "net/http.hpp"

namespace fairlead::mock {

/// The interface that a simulated engine is asked over.
class EngineService {
 public:
  virtual ~EngineService() = default;
  /// Handler for an http::Server; the service must outlive the server.
  virtual net::http::Handler handler() = 0;
  /// Whether the engine is healthy may have changed.
  virtual void health_changed() = 0;
  /// The body of an error that the server finds before the handler is asked.
  virtual std::string error_body(int status, std::string_view message) const = 0;
};

}  // namespace fairlead::mock
