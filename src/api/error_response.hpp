#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "api/options.hpp"
#include "base/error.hpp"
#include "net/http.hpp"

namespace fairlead::api {

/// Appends the envelope that OpenAI clients read, before and inside streams:
/// `{"error":{"message","type","param","code"}}`, `code` a string or null, never a number.
void append_error(std::string& out, const Error& error);

/// The envelope of a request that the HTTP server refused before any handler saw it.
std::string server_error_body(int status, std::string_view message);

/// HTTP status of an error: its row's, except that refusals because every worker is busy take
/// `options.overload_status`.
int error_status(const Error& error, const ApiOptions& options);

/// Answers a request that has not been answered yet. Adds `Retry-After` where a later identical
/// request may succeed, and echoes the client's `x-request-id`.
void respond_error(net::http::Exchange& exchange, const Error& error, const ApiOptions& options,
                   net::http::HeaderList headers = {});

/// Echoes the client's `x-request-id`, if it sent one.
void add_request_id(const net::http::Exchange& exchange, net::http::HeaderList& headers);

/// Answers with a JSON body.
void respond_json(net::http::Exchange& exchange, int status, std::string_view body);
/// Likewise with a long body; `kept` is let go when the client has taken it.
void respond_json(net::http::Exchange& exchange, int status, std::string body,
                  std::shared_ptr<void> kept);

}  // namespace fairlead::api
