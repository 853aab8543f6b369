#include <fmt/format.h>

#include "api/openai/request_parser.hpp"
#include "engine/extra_args.hpp"

namespace fairlead::api::openai {
namespace {

bool scalar(const json::Value& value) {
  return !value.is_null() && !value.as_array() && !value.as_object();
}

std::string_view kind_of(const json::Value& value) {
  return type_name(value.is_null()    ? JsonType::Null
                   : value.as_array() ? JsonType::Array
                                      : JsonType::Object);
}

/// Adds the scalars in a member to `values`; errors name what may not stand there.
Result<> check_member(const json::Member& member, const std::string& path, std::size_t& values) {
  if (engine::is_connector_argument(member.key)) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("`{}` is not allowed: only the server sets it", path), path);
  }
  const json::Array* elements = member.value.as_array();
  if (!elements) {
    ++values;
    return scalar(member.value)
               ? Result<>()
               : fail(ErrorCode::InvalidRequest,
                      fmt::format("`{}` must be a string, a number, a boolean or an array of "
                                  "those, not {}",
                                  path, kind_of(member.value)),
                      path);
  }
  values += elements->size();
  for (const json::Value& element : *elements) {
    if (!scalar(element)) {
      return fail(ErrorCode::InvalidRequest,
                  fmt::format("`{}` must hold only strings, numbers and booleans, not {}", path,
                              kind_of(element)),
                  path);
    }
  }
  return {};
}

}  // namespace

// Unlike other fields it does not take null for "not given", as neither does vLLM's own frontend
// for the fields that it hands through.
void RequestParser::read_vllm_xargs(std::string_view name) {
  body_.vllm_xargs = {};
  xargs_values_ = 0;
  if (!expect(name, JsonType::Object)) {
    return;
  }
  json::Value value = reader_.value();
  if (reader_.failed()) {
    return;
  }
  std::string text;
  for (const json::Member& member : *value.as_object()) {
    const std::string path =
        fmt::format("{}.{}", name, std::string_view(member.key).substr(0, 128));
    if (Result<> checked = check_member(member, path, xargs_values_); !checked) {
      return reader_.fail(std::move(checked.error()));
    }
    text.push_back(',');
    json::append_string(text, member.key);
    text.push_back(':');
    json::append(text, member.value);
    if (text.size() + 1 > kMaxXargsBytes || xargs_values_ > kMaxXargsValues) {
      return invalid(name, fmt::format("`{}` must be at most {} bytes and {} values", name,
                                       kMaxXargsBytes, kMaxXargsValues));
    }
  }
  body_.vllm_xargs = std::move(*value.as_object());
}

Result<> RequestParser::check_xargs_total(std::size_t choices) const {
  if (xargs_values_ * choices > kMaxXargsTotal) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("`vllm_xargs` must hold at most {} values for {} choices",
                            kMaxXargsTotal / choices, choices),
                "vllm_xargs");
  }
  return {};
}

}  // namespace fairlead::api::openai
