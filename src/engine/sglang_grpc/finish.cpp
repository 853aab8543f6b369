#include "engine/sglang_grpc/finish.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "base/json.hpp"
#include "engine/sglang_grpc/lenient_json.hpp"
#include "engine/sglang_grpc/status.hpp"

namespace fairlead::engine::sglang_grpc {
namespace {

/// Unknown types are cut to this for the error's text.
constexpr std::size_t kShownBytes = 64;

struct Reason {
  AbortReason abort;  ///< `type` is set in any case.
  std::optional<std::int64_t> matched;
};

std::unexpected<Error> protocol_error(std::string message) {
  return fail(ErrorCode::EngineProtocol, "Generate: " + std::move(message));
}

/// What comes behind `'key':` in Python's text of an object.
std::optional<std::string_view> python_value(std::string_view text, std::string_view key) {
  const std::string quoted = fmt::format("'{}':", key);
  const std::size_t at = text.find(quoted);
  return at == std::string_view::npos ? std::nullopt
                                      : std::optional(text.substr(at + quoted.size()));
}

std::string python_string(std::string_view text, std::string_view key) {
  const std::optional<std::string_view> value = python_value(text, key);
  const std::size_t start = value ? value->find_first_not_of(' ') : std::string_view::npos;
  if (start == std::string_view::npos) {
    return {};
  }
  const char quote = (*value)[start];
  if (quote != '\'' && quote != '"') {
    return {};
  }
  const std::string_view inside = value->substr(start + 1);
  return std::string(inside.substr(0, inside.find(quote)));
}

std::optional<std::int64_t> python_int(std::string_view text, std::string_view key) {
  const std::optional<std::string_view> value = python_value(text, key);
  return value ? LenientJson(*value).integer() : std::nullopt;
}

Reason of_python(std::string_view text) {
  Reason out;
  out.abort = {.type = python_string(text, "type"),
               .message = python_string(text, "message"),
               .error_type = python_string(text, "err_type"),
               .status_code = python_int(text, "status_code")};
  out.matched = python_int(text, "matched");
  return out;
}

std::string string_member(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  const std::string* text = value ? value->as_string() : nullptr;
  return text ? *text : std::string();
}

std::optional<std::int64_t> int_member(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  const std::int64_t* number = value ? value->as_int() : nullptr;
  return number ? std::optional(*number) : std::nullopt;
}

Reason of_object(const json::Value& object) {
  Reason out;
  out.abort = {.type = string_member(object, "type"),
               .message = string_member(object, "message"),
               .error_type = string_member(object, "err_type"),
               .status_code = int_member(object, "status_code")};
  out.matched = int_member(object, "matched");
  return out;
}

/// The reason that a text of any of these forms says; its type is empty when it says none.
Reason parse_reason(std::string_view text) {
  const Result<json::Value> parsed = json::parse(text);
  if (!parsed) {
    return of_python(text);
  }
  if (parsed->as_object()) {
    return of_object(*parsed);
  }
  if (const std::string* word = parsed->as_string()) {
    if (word->starts_with('{')) {
      return of_python(*word);
    }
    Reason out;
    out.abort.type = *word;
    return out;
  }
  return {};
}

}  // namespace

Result<> read_finish(std::string_view text, std::span<const TokenId> stop_token_ids,
                     Finish& finish) {
  const Reason reason = parse_reason(text);
  const std::string& type = reason.abort.type;
  if (type.empty()) {
    return protocol_error("the stream ended without a finish reason");
  }
  if (type == "error" || type.starts_with("abort")) {
    return std::unexpected(abort_error(reason.abort));
  }
  if (type == "length") {
    finish.reason = FinishReason::Length;
  } else if (type == "stop" || type == "eos" || type == "content_filter") {
    finish.reason = FinishReason::Stop;
  } else if (type == "cancelled") {
    finish.reason = FinishReason::Aborted;
  } else {
    return protocol_error(fmt::format("finish_reason `{}`", type.substr(0, kShownBytes)));
  }
  if (finish.reason == FinishReason::Stop && reason.matched && *reason.matched >= 0 &&
      *reason.matched <= std::numeric_limits<std::int32_t>::max()) {
    const auto id = static_cast<TokenId>(*reason.matched);
    if (std::ranges::find(stop_token_ids, id) != stop_token_ids.end()) {
      finish.stop_token_id = id;
    } else {
      finish.eos_token_id = id;
    }
  }
  return {};
}

}  // namespace fairlead::engine::sglang_grpc
