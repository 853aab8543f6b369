#include "tokenizer/component_config.hpp"

#include <fmt/format.h>

#include <charconv>

#include "base/utf8.hpp"

namespace fairlead::tokenizer {

std::unexpected<Error> stopped() {
  return fail(ErrorCode::ClientGone, "nobody waits for the tokens any more");
}

std::unexpected<Error> grown_too_long() {
  return fail(ErrorCode::InvalidRequest,
              fmt::format("the tokenizer makes the text more than {} times as long", kMaxGrowth));
}

ComponentConfig::ComponentConfig(std::string_view part, const json::Value& config)
    : part_(part), config_(config) {
  const json::Value* type = config.find("type");
  if (type != nullptr && type->as_string() != nullptr) {
    type_ = *type->as_string();
  }
}

Result<bool> ComponentConfig::flag(std::string_view name) const {
  const json::Value* value = config_.find(name);
  if (value == nullptr || value->as_bool() == nullptr) {
    return bad(fmt::format("{} must be true or false", name));
  }
  return *value->as_bool();
}

Result<bool> ComponentConfig::flag(std::string_view name, bool fallback) const {
  return has(name) ? flag(name) : Result<bool>(fallback);
}

Result<std::string_view> ComponentConfig::string(std::string_view name) const {
  const json::Value* value = config_.find(name);
  if (value == nullptr || value->as_string() == nullptr) {
    return bad(fmt::format("{} must be a string", name));
  }
  return std::string_view(*value->as_string());
}

Result<std::string_view> ComponentConfig::character(std::string_view name) const {
  Result<std::string_view> text = string(name);
  if (text && utf8::count(*text) != 1) {
    return bad(fmt::format("{} must be one character", name));
  }
  return text;
}

Result<const json::Array*> ComponentConfig::array(std::string_view name) const {
  const json::Value* value = config_.find(name);
  if (value == nullptr || value->as_array() == nullptr) {
    return bad(fmt::format("without {}", name));
  }
  return value->as_array();
}

Result<std::size_t> ComponentConfig::count(std::string_view name) const {
  const json::Value* value = config_.find(name);
  if (value != nullptr && value->as_int() != nullptr && *value->as_int() >= 0) {
    return static_cast<std::size_t>(*value->as_int());
  }
  // The reference keeps 64 unsigned bits.
  const auto* big = value != nullptr ? std::get_if<json::BigInt>(&value->storage()) : nullptr;
  std::size_t number = 0;
  if (big == nullptr ||
      std::from_chars(big->digits.data(), big->digits.data() + big->digits.size(), number).ec !=
          std::errc{}) {
    return bad(fmt::format("{} must be a number from 0 on", name));
  }
  return number;
}

Result<std::size_t> ComponentConfig::count(std::string_view name, std::size_t fallback) const {
  return has(name) ? count(name) : Result<std::size_t>(fallback);
}

Result<ComponentConfig::Pattern> ComponentConfig::pattern() const {
  const json::Value* pattern = config_.find("pattern");
  if (pattern != nullptr &&
      (pattern->as_object() == nullptr || pattern->as_object()->size() != 1)) {
    return bad("pattern must be of one kind");
  }
  for (const bool is_regex : {true, false}) {
    const json::Value* text =
        pattern != nullptr ? pattern->find(is_regex ? "Regex" : "String") : nullptr;
    if (text != nullptr && text->as_string() != nullptr) {
      return Pattern{is_regex, *text->as_string()};
    }
  }
  return bad("without a Regex or String pattern");
}

std::unexpected<Error> ComponentConfig::bad(std::string_view message) const {
  return fail(ErrorCode::InvalidRequest, fmt::format("{}: {}: {}", part_, type_, message),
              std::string(part_));
}

std::unexpected<Error> ComponentConfig::unsupported(std::string_view message) const {
  return fail(ErrorCode::UnsupportedField, fmt::format("{}: {}: {}", part_, type_, message),
              std::string(part_));
}

Error ComponentConfig::wrap(Error error) const {
  error.message = fmt::format("{}: {}: {}", part_, type_, error.message);
  error.param = part_;
  return error;
}

Result<> each_step(std::string_view part, std::string_view list, const json::Value& component,
                   const std::function<Result<>(const ComponentConfig&)>& add, int depth) {
  if (component.is_null() && depth == 0) {
    return {};
  }
  const ComponentConfig config(part, component);
  if (config.type() != "Sequence") {
    return add(config);
  }
  const Result<const json::Array*> steps = config.array(list);
  if (!steps) {
    return std::unexpected(steps.error());
  }
  if (depth == kMaxSequenceDepth) {
    return config.unsupported("nested this deep");
  }
  for (const json::Value& step : **steps) {
    if (Result<> added = each_step(part, list, step, add, depth + 1); !added) {
      return added;
    }
  }
  return {};
}

}  // namespace fairlead::tokenizer
