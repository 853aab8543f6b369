#pragma once

#include <string>
#include <string_view>

#include "mock/options.hpp"
#include "mock/request_checks.hpp"

namespace fairlead::mock {

/// An error as one flavour of server says it.
struct HttpError {
  int status = 500;  ///< HTTP status.
  std::string body;  ///< `{"error": {"message", "type", "param", "code"}}`.
};

/// The error body for a status that is no refusal of a request (404 of a route, 413, 5xx).
std::string http_error_body(HttpFlavor flavor, int status, std::string_view message);

/// A refused request.
HttpError http_error(HttpFlavor flavor, const Refusal& refusal);

/// True for the Python server's forms, false for both of the Rust server's.
bool is_python(HttpFlavor flavor);

}  // namespace fairlead::mock
