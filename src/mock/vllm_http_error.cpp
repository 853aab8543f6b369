#include "mock/vllm_http_error.hpp"

#include "base/json.hpp"

namespace fairlead::mock {
namespace {

// What the newer servers call a status.
std::string_view type_of(int status) {
  switch (status) {
    case 400: return "BadRequestError";
    case 401: return "AuthenticationError";
    case 403: return "PermissionDeniedError";
    case 404: return "NotFoundError";
    case 429: return "RateLimitError";
    case 501: return "NotImplementedError";
    case 503: return "ServiceUnavailableError";
    default: return status < 500 ? "BadRequestError" : "InternalServerError";
  }
}

int status_of(Refusal::Kind kind) {
  switch (kind) {
    case Refusal::Kind::Malformed:
    case Refusal::Kind::Invalid:
    case Refusal::Kind::Precondition:
    case Refusal::Kind::Unimplemented: return 400;
    case Refusal::Kind::NotFound: return 404;
    case Refusal::Kind::Exhausted: return 429;
    case Refusal::Kind::Unavailable: return 503;
  }
  return 500;
}

// Codes of vllm-rs 0.32, which has names where the others repeat the status.
std::string_view old_code(int status, bool malformed) {
  if (malformed) {
    return "json_parse_error";
  }
  if (status == 404) {
    return "model_not_found";
  }
  return status < 500 ? "invalid_request_error" : "internal_error";
}

std::string body_of(HttpFlavor flavor, int status, std::string_view message, std::string_view param,
                    bool malformed) {
  std::string body;
  json::Writer json(body);
  json.begin_object().key("error").begin_object().key("message").string(message);
  // The refusal of a route that is switched off has its new form in every version.
  const bool old = flavor == HttpFlavor::Rust032 && status != 403;
  if (old) {
    json.key("type").string(status < 500 ? "invalid_request_error" : "server_error");
  } else {
    json.key("type").string(malformed ? "Bad Request" : type_of(status));
  }
  json.key("param");
  param.empty() ? json.null() : json.string(param);
  json.key("code");
  old ? json.string(old_code(status, malformed)) : json.integer(status);
  json.end_object().end_object();
  return body;
}

}  // namespace

bool is_python(HttpFlavor flavor) { return flavor == HttpFlavor::Python032; }

std::string http_error_body(HttpFlavor flavor, int status, std::string_view message) {
  return body_of(flavor, status, message, {}, false);
}

HttpError http_error(HttpFlavor flavor, const Refusal& refusal) {
  const int status = status_of(refusal.kind);
  return {status, body_of(flavor, status, refusal.message, refusal.param,
                          refusal.kind == Refusal::Kind::Malformed)};
}

}  // namespace fairlead::mock
