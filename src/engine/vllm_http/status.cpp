#include "engine/vllm_http/status.hpp"

#include <fmt/format.h>

#include "engine/message_text.hpp"

namespace fairlead::engine::vllm_http {
namespace {

/// What a body that is no error object contributes to a message.
constexpr std::size_t kExcerptBytes = 200;

/// The same classes as for gRPC: UNAVAILABLE is 503, RESOURCE_EXHAUSTED 429 and so on.
ErrorCode code_of(int status) {
  switch (status) {
    case 400:
    case 409:
    case 413:
    case 422: return ErrorCode::EngineRejected;
    // Not the request's fault: the route is closed, or guarded by a key that this program has not;
    // or the model, which was chosen because this engine had it, is not there any more.
    case 401:
    case 403:
    case 404:
    case 502:
    case 503: return ErrorCode::EngineUnreachable;
    case 408:
    case 504: return ErrorCode::EngineConnectTimeout;
    case 429: return ErrorCode::EngineExhausted;
    case 499: return ErrorCode::EngineCancelled;
    default: break;
  }
  // Anything else below 500 says that this is not the route it is taken for.
  return status < 500 ? ErrorCode::EngineProtocol : ErrorCode::EngineUnknown;
}

const json::Value* error_object(const json::Value& body) {
  const json::Value* error = body.find("error");
  return error && error->as_object() ? error : nullptr;
}

std::string text_of(const json::Value* value) {
  const std::string* text = value ? value->as_string() : nullptr;
  return text ? *text : std::string();
}

std::string message_in(const json::Value& body) {
  const json::Value* error = error_object(body);
  return one_line(text_of(error ? error->find("message") : body.find("detail")));
}

/// The words of servers whose `code` is no number.
ErrorCode code_of_words(const json::Value& error) {
  const std::string words = text_of(error.find("code")) + " " + text_of(error.find("type"));
  if (words.contains("model_not_found") || words.contains("NotFound")) {
    return ErrorCode::EngineUnreachable;
  }
  for (const std::string_view blamed :
       {"invalid_request", "json_parse_error", "BadRequest", "Bad Request"}) {
    if (words.contains(blamed)) {
      return ErrorCode::EngineRejected;
    }
  }
  return ErrorCode::EngineUnknown;
}

}  // namespace

std::string error_message(std::string_view body) {
  if (const auto parsed = json::parse(body)) {
    std::string message = message_in(*parsed);
    if (!message.empty()) {
      return message;
    }
  }
  return one_line(std::string(body.substr(0, kExcerptBytes)));
}

Error status_error(std::string_view call, int status, std::string_view body) {
  ErrorCode code = code_of(status);
  const auto parsed = json::parse(body);
  if (status == 404 && !(parsed && error_object(*parsed))) {
    code = ErrorCode::EngineProtocol;  // the route is missing, not the model
  }
  const std::string message = error_message(body);
  return Error{code,
               message.empty() ? fmt::format("{}: status {}", call, status)
                               : fmt::format("{}: {} (status {})", call, message, status),
               {}};
}

Error stream_error(std::string_view call, const json::Value& error) {
  const json::Value* code = error.find("code");
  const std::int64_t* status = code ? code->as_int() : nullptr;
  const bool known = status && *status >= 400 && *status < 600;
  std::string message = one_line(text_of(error.find("message")));
  if (message.empty()) {
    message = "an error without a message";
  }
  return Error{known ? code_of(static_cast<int>(*status)) : code_of_words(error),
               known ? fmt::format("{}: {} (status {} in the stream)", call, message, *status)
                     : fmt::format("{}: {} (in the stream)", call, message),
               {}};
}

}  // namespace fairlead::engine::vllm_http
