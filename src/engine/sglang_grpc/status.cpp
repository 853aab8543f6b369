#include "engine/sglang_grpc/status.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/grpc_status.hpp"
#include "engine/message_text.hpp"

namespace fairlead::engine::sglang_grpc {
namespace {

using net::grpc::Status;
using net::grpc::StatusCode;

/// True for `NAME must be …` and `NAME cannot be …` with a parameter's name. A rank out of range is
/// not among them: this program chose it.
bool names_bad_parameter(std::string_view text) {
  const std::size_t end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789");
  if (end == 0 || end == std::string_view::npos) {
    return false;
  }
  const std::string_view behind = text.substr(end);
  constexpr std::array<std::string_view, 4> kVerbs{" must be ", " must has ", " cannot be ",
                                                   " should be "};
  return std::ranges::any_of(kVerbs,
                             [&](std::string_view verb) { return behind.starts_with(verb); });
}

/// Parts of the other messages with which the engine refuses a request.
constexpr std::array<std::string_view, 6> kRefusals{
    "is longer than the model's context length",
    "exceeds the model's maximum context length",
    "requires the server to be launched with",
    "LoRA adapter",
    "Only one of",
    "guided decoding",
};

bool blames_request(std::string_view text) {
  if (text.starts_with("Failed to submit request") || text.starts_with("failed to decode")) {
    return false;
  }
  return names_bad_parameter(text) ||
         std::ranges::any_of(kRefusals, [&](std::string_view part) { return text.contains(part); });
}

}  // namespace

Error generate_error(const Status& status) {
  Status told = status;
  told.message = one_line(std::move(told.message));
  Error error = status_error("Generate", told);
  if (status.origin != Status::Origin::Server) {
    return error;
  }
  if (status.code == StatusCode::NotFound ||
      (status.code == StatusCode::Internal && blames_request(status.message))) {
    error.code = ErrorCode::EngineRejected;
  }
  return error;
}

Error abort_error(const AbortReason& reason) {
  const bool blamed = reason.status_code && *reason.status_code >= 400 && *reason.status_code < 500;
  std::string text =
      fmt::format("Generate: {}", reason.message.empty() ? "the engine ended the generation"
                                                         : one_line(reason.message));
  text += fmt::format(" ({}", reason.type);
  if (reason.status_code) {
    text += fmt::format(", status {}", *reason.status_code);
  }
  if (!reason.error_type.empty()) {
    text += fmt::format(", {}", one_line(reason.error_type));
  }
  text += ')';
  return Error{blamed ? ErrorCode::EngineRejected : ErrorCode::EngineUnknown, std::move(text), {}};
}

}  // namespace fairlead::engine::sglang_grpc
