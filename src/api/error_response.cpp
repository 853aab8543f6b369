#include "api/error_response.hpp"

#include <utility>

#include "base/json.hpp"

namespace fairlead::api {
namespace {

constexpr std::string_view kRequestId = "x-request-id";

void append_error_fields(std::string& out, std::string_view message, std::string_view type,
                         std::string_view param, std::string_view code) {
  json::Writer writer(out);
  writer.begin_object().key("error").begin_object();
  writer.key("message").string(message).key("type").string(type);
  writer.key("param");
  param.empty() ? writer.null() : writer.string(param);
  writer.key("code");
  code.empty() ? writer.null() : writer.string(code);
  writer.end_object().end_object();
}

/// The code that stands for a status of the HTTP server's own.
ErrorCode code_of(int status) {
  switch (status) {
    case 408: return ErrorCode::RequestTimeout;
    case 413: return ErrorCode::BodyTooLarge;
    case 431: return ErrorCode::HeadersTooLarge;
    case 503: return ErrorCode::Overloaded;
    default: return status < 500 ? ErrorCode::InvalidRequest : ErrorCode::Internal;
  }
}

}  // namespace

void append_error(std::string& out, const Error& error) {
  const ErrorTraits& row = traits(error.code);
  append_error_fields(out, error.client_message(), row.openai_type, error.param, row.openai_code);
}

std::string server_error_body(int status, std::string_view message) {
  const ErrorTraits& row = traits(code_of(status));
  std::string out;
  append_error_fields(out, message, row.openai_type, {}, row.openai_code);
  return out;
}

int error_status(const Error& error, const ApiOptions& options) {
  const ErrorTraits& row = traits(error.code);
  const bool busy = row.metric == "overload" && row.http_status == 503;
  return busy ? options.overload_status : row.http_status;
}

void add_request_id(const net::http::Exchange& exchange, net::http::HeaderList& headers) {
  if (const auto id = exchange.request().headers.find(kRequestId)) {
    headers.add(std::string(kRequestId), std::string(*id));
  }
}

void respond_error(net::http::Exchange& exchange, const Error& error, const ApiOptions& options,
                   net::http::HeaderList headers) {
  const int status = error_status(error, options);
  headers.add("content-type", "application/json");
  if (traits(error.code).retryable &&
      (status == 429 || status == 503 || status == options.overload_status)) {
    headers.add("retry-after", std::to_string(options.retry_after));
  }
  if (error.code == ErrorCode::Draining && !exchange.request().http2) {
    headers.add("connection", "close");
  }
  add_request_id(exchange, headers);
  std::string body;
  append_error(body, error);
  exchange.respond(status, headers, body);
}

void respond_json(net::http::Exchange& exchange, int status, std::string_view body) {
  net::http::HeaderList headers{{"content-type", "application/json"}};
  add_request_id(exchange, headers);
  exchange.respond(status, headers, body);
}

void respond_json(net::http::Exchange& exchange, int status, std::string body,
                  std::shared_ptr<void> kept) {
  net::http::HeaderList headers{{"content-type", "application/json"}};
  add_request_id(exchange, headers);
  exchange.respond_owned(status, headers, std::move(body), std::move(kept));
}

}  // namespace fairlead::api
