#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "api/openai/request.hpp"

namespace fairlead::api::openai {
namespace {

constexpr std::array<std::string_view, 6> kRoles{"system",    "developer", "user",
                                                 "assistant", "tool",      "function"};

template <class... Args>
std::unexpected<Error> bad(std::string path, fmt::format_string<Args...> rule, Args&&... args) {
  std::string text = fmt::format("`{}` ", path);
  fmt::format_to(std::back_inserter(text), rule, std::forward<Args>(args)...);
  return fail(ErrorCode::InvalidRequest, std::move(text), std::move(path));
}

/// Part types that carry plain text, under any of the names that clients give them.
bool is_text_part(std::string_view type) {
  return type == "text" || type == "input_text" || type == "output_text";
}

Result<> check_part(json::Value& part, const std::string& path) {
  if (part.as_string()) {
    return {};
  }
  json::Object* object = part.as_object();
  if (!object) {
    return bad(path, "must be an object");
  }
  const json::Value* type = object->find("type");
  const std::string* name = type ? type->as_string() : nullptr;
  if (!name) {
    return bad(path + ".type", "must be a string");
  }
  if (*name == "refusal") {
    const json::Value* refusal = object->find("refusal");
    return refusal && refusal->as_string() ? Result<>()
                                           : bad(path + ".refusal", "must be a string");
  }
  if (!is_text_part(*name)) {
    return fail(ErrorCode::UnsupportedField,
                fmt::format("`{}.type`: content of type `{}` is not supported", path,
                            std::string_view(*name).substr(0, 64)),
                path + ".type");
  }
  const json::Value* text = object->find("text");
  if (!text || !text->as_string()) {
    return bad(path + ".text", "must be a string");
  }
  if (*name != "text") {
    object->set("type", "text");
  }
  return {};
}

Result<> check_content(json::Value& content, const std::string& path) {
  if (content.as_string()) {
    return {};
  }
  json::Array* parts = content.as_array();
  if (!parts) {
    return bad(path, "must be a string or an array of parts");
  }
  for (std::size_t i = 0; i < parts->size(); ++i) {
    if (Result<> part = check_part((*parts)[i], fmt::format("{}[{}]", path, i)); !part) {
      return part;
    }
  }
  return {};
}

Result<> check_tool_call(json::Value& call, const std::string& path) {
  json::Object* object = call.as_object();
  if (!object) {
    return bad(path, "must be an object");
  }
  const json::Value* function = object->find("function");
  if (!function || !function->as_object()) {
    return bad(path + ".function", "must be an object");
  }
  const json::Value* name = function->find("name");
  if (!name || !name->as_string() || name->as_string()->empty()) {
    return bad(path + ".function.name", "must be a string that is not empty");
  }
  const json::Value* arguments = function->find("arguments");
  if (arguments && !arguments->is_null() && !arguments->as_string() && !arguments->as_object()) {
    return bad(path + ".function.arguments", "must be a string of JSON, or an object");
  }
  if (!object->find("type")) {
    object->set("type", "function");
  }
  return {};
}

Result<> check_message(json::Value& message, const std::string& path) {
  json::Object* object = message.as_object();
  if (!object) {
    return bad(path, "must be an object");
  }
  const json::Value* role_value = object->find("role");
  const std::string* role = role_value ? role_value->as_string() : nullptr;
  if (!role || std::ranges::find(kRoles, *role) == kRoles.end()) {
    return bad(path + ".role", "must be one of {}", fmt::join(kRoles, ", "));
  }
  const bool assistant = *role == "assistant";
  json::Value* content = object->find("content");
  if (content && !content->is_null()) {
    if (Result<> checked = check_content(*content, path + ".content"); !checked) {
      return checked;
    }
  } else if (!assistant && *role != "function" && *role != "tool") {
    return bad(path + ".content", "is required");
  }
  if (const json::Value* name = object->find("name");
      name && !name->is_null() && !name->as_string()) {
    return bad(path + ".name", "must be a string");
  }
  json::Value* calls = object->find("tool_calls");
  if (!calls || calls->is_null()) {
    return {};
  }
  json::Array* list = calls->as_array();
  if (!list) {
    return bad(path + ".tool_calls", "must be an array");
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    if (Result<> call = check_tool_call((*list)[i], fmt::format("{}.tool_calls[{}]", path, i));
        !call) {
      return call;
    }
  }
  return {};
}

}  // namespace

Result<> check_tools(const json::Value& tools) {
  const json::Array& list = *tools.as_array();
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string path = fmt::format("tools[{}]", i);
    if (!list[i].as_object()) {
      return bad(path, "must be an object");
    }
    const json::Value* type = list[i].find("type");
    if (type && (!type->as_string() || *type->as_string() != "function")) {
      return bad(path + ".type", "must be `function`");
    }
    const json::Value* function = list[i].find("function");
    if (!function || !function->as_object()) {
      return bad(path + ".function", "must be an object");
    }
    const json::Value* name = function->find("name");
    if (!name || !name->as_string() || name->as_string()->empty()) {
      return bad(path + ".function.name", "must be a string that is not empty");
    }
    const json::Value* parameters = function->find("parameters");
    if (parameters && !parameters->is_null() && !parameters->as_object()) {
      return bad(path + ".function.parameters", "must be an object");
    }
  }
  return {};
}

Result<> check_messages(json::Value& messages) {
  json::Array& list = *messages.as_array();
  if (list.empty()) {
    return bad("messages", "must not be empty");
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (Result<> message = check_message(list[i], fmt::format("messages[{}]", i)); !message) {
      return message;
    }
  }
  return {};
}

}  // namespace fairlead::api::openai
