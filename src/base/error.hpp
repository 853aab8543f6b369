#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace fairlead {

/// Every failure a request can meet. The one table in error.cpp maps each to its HTTP status, its
/// names in the client APIs and its routing consequences.
enum class ErrorCode : std::uint8_t {
  // The client's mistake.
  InvalidRequest,         ///< A field is missing, malformed or out of range.
  UnsupportedField,       ///< A documented field that this server does not act on.
  ContextLengthExceeded,  ///< The prompt does not fit the model's context.
  ModelNotFound,          ///< No such model is known.
  RouteNotFound,          ///< No such path.
  MethodNotAllowed,       ///< The path exists, the method does not.
  RequestTimeout,         ///< The client sent its request too slowly.
  BodyTooLarge,           ///< The body is above the limit.
  UnsupportedMediaType,   ///< The content type is not JSON.
  HeadersTooLarge,        ///< The request head is above the limit.
  AnswerTooLarge,         ///< The answer outgrew what is gathered for one that is not streamed.
  CapabilityUnsupported,  ///< No worker of the model can honour an option.
  ClientGone,             ///< The client left; nobody reads the answer.
  // This server's state.
  Draining,               ///< The process is shutting down.
  ModelNotReady,          ///< The model is known but has no usable worker set.
  NoWorkers,              ///< Every worker of the model is down or excluded.
  TaintsUnmatched,        ///< No worker in routing has the taints that the request requires.
  CapabilityUnavailable,  ///< Only some workers, not the eligible ones, can honour an option.
  Overloaded,             ///< All eligible workers are busy.
  QueueFull,              ///< A queue or tenant limit refused the request.
  Internal,               ///< A fault of this program.
  // The engine's.
  EngineRejected,        ///< The engine blamed the request (INVALID_ARGUMENT and kin).
  EngineExhausted,       ///< RESOURCE_EXHAUSTED.
  EngineUnreachable,     ///< Could not connect, or UNAVAILABLE (`CannotConnect`).
  EngineDisconnected,    ///< The stream ended or broke before its terminal message.
  EngineConnectTimeout,  ///< DEADLINE_EXCEEDED.
  EngineSilent,          ///< No message for longer than the stream timeout (`ResponseTimeout`).
  EngineCancelled,       ///< The engine reports that the request was cancelled.
  EngineProtocol,        ///< A malformed answer; the engine is not blamed for routing.
  EngineUnknown,         ///< Any other engine failure.
  HandOffMissing,        ///< A prefill engine did not say where the KV cache is.
};

/// Number of `ErrorCode` values; the table has one row each.
inline constexpr int kErrorCodeCount = static_cast<int>(ErrorCode::HandOffMissing) + 1;

/// One row of the error table.
struct ErrorTraits {
  ErrorCode code;                   ///< The row's key.
  std::string_view name;            ///< Short snake_case name for logs and metric labels.
  int http_status;                  ///< Status on OpenAI routes.
  std::string_view openai_type;     ///< `error.type` on OpenAI routes.
  std::string_view openai_code;     ///< `error.code`; empty means null.
  std::string_view anthropic_type;  ///< `error.type` on Anthropic routes.
  std::string_view metric;          ///< Label `error_type` of `requests_total`.
  bool retryable;                   ///< A later identical request may succeed (adds `Retry-After`).
  bool worker_down;                 ///< Counts against the worker: it leaves routing at once.
  bool migratable;                  ///< The request may go on at another worker.
  bool public_message;              ///< The message may reach the client; otherwise `public_text`.
  std::string_view public_text;     ///< What the client reads when the message is not public.
};

/// The row of `code`.
const ErrorTraits& traits(ErrorCode code);

/// A failure: its code, a message for people and, for client mistakes, the field at fault.
struct Error {
  ErrorCode code = ErrorCode::Internal;  ///< Row of the error table.
  std::string message;  ///< One line; shown to the client only when the row allows.
  std::string param;    ///< Name of the request field at fault; empty when none.

  /// The text a client may read.
  std::string_view client_message() const {
    const ErrorTraits& row = traits(code);
    return row.public_message ? std::string_view(message) : row.public_text;
  }
};

/// A value or the reason why there is none. Hot-path failures are values, never exceptions.
template <class T = void>
using Result = std::expected<T, Error>;

/// Shorthand for returning a failure: `return fail(ErrorCode::InvalidRequest, "...", "field");`.
inline std::unexpected<Error> fail(ErrorCode code, std::string message, std::string param = {}) {
  return std::unexpected(Error{code, std::move(message), std::move(param)});
}

}  // namespace fairlead
