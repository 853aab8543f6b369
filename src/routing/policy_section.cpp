#include "routing/policy_section.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

namespace fairlead::routing {
namespace {

bool valid_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxPolicyNameBytes &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '.' || c == '-';
         });
}

}  // namespace

std::string_view kind_of(const json::Value& value) {
  constexpr std::string_view kKinds[] = {
      "nothing", "true or false", "a whole number", "a number", "a number beyond 64 bits",
      "text",    "a list",        "a mapping"};
  static_assert(std::size(kKinds) == std::variant_size_v<json::Value::Storage>);
  return kKinds[value.storage().index()];
}

std::string shown(std::string_view text) {
  std::string out;
  json::append_string(out, text.substr(0, kMaxPolicyNameBytes));
  return out;
}

void PolicyFindings::add(std::string_view path, std::string_view what) {
  if (!error_) {
    error_ = Error{.code = ErrorCode::InvalidRequest,
                   .message = path.empty() ? std::string(what) : fmt::format("{}: {}", path, what),
                   .param = std::string(path)};
  }
}

Error PolicyFindings::take() { return std::move(*error_); }

PolicySection::PolicySection(const json::Value& value, std::string path, PolicyFindings& findings,
                             std::initializer_list<std::string_view> known)
    : object_(value.as_object()), path_(std::move(path)), findings_(findings) {
  if (!object_) {
    findings_.add(path_, fmt::format("expected a mapping, found {}", kind_of(value)));
    return;
  }
  for (const json::Member& member : *object_) {
    if (std::ranges::find(known, member.key) == known.end()) {
      findings_.add(path_, fmt::format("unknown field {}", shown(member.key)));
    }
  }
}

std::string PolicySection::field(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

const json::Value* PolicySection::required(std::string_view key) {
  const json::Value* value = find(key);
  if (!value) {
    findings_.add(field(key), "missing");
  }
  return value;
}

std::optional<std::string> PolicySection::text(std::string_view key) {
  const json::Value* value = find(key);
  if (!value) {
    return std::nullopt;
  }
  const std::string* found = value->as_string();
  if (!found) {
    findings_.add(field(key), fmt::format("expected text, found {}", kind_of(*value)));
    return std::nullopt;
  }
  return *found;
}

std::optional<std::string> PolicySection::name(std::string_view key) {
  auto found = text(key);
  if (found && !valid_name(*found)) {
    findings_.add(field(key), fmt::format("expected 1 to {} letters, digits, `_`, `.` or `-`",
                                          kMaxPolicyNameBytes));
    return std::nullopt;
  }
  return found;
}

std::string PolicySection::required_name(std::string_view key) {
  return required(key) ? name(key).value_or(std::string()) : std::string();
}

std::optional<std::uint64_t> PolicySection::count(std::string_view key, std::uint64_t least,
                                                  std::uint64_t most) {
  const json::Value* value = find(key);
  if (!value) {
    return std::nullopt;
  }
  const std::int64_t* found = value->as_int();
  if (!found) {
    findings_.add(field(key), fmt::format("expected a whole number, found {}", kind_of(*value)));
    return std::nullopt;
  }
  const auto number = static_cast<std::uint64_t>(*found);
  if (*found < 0 || number < least || number > most) {
    findings_.add(field(key), most == kNoBound ? fmt::format("expected at least {}", least)
                                               : fmt::format("expected {} to {}", least, most));
    return std::nullopt;
  }
  return number;
}

std::uint64_t PolicySection::required_count(std::string_view key, std::uint64_t least,
                                            std::uint64_t most) {
  return required(key) ? count(key, least, most).value_or(least) : least;
}

std::optional<double> PolicySection::number(std::string_view key) {
  const json::Value* value = find(key);
  if (!value) {
    return std::nullopt;
  }
  double found = 0;
  if (!value->number(found)) {
    findings_.add(field(key), fmt::format("expected a number, found {}", kind_of(*value)));
    return std::nullopt;
  }
  return found;
}

const json::Array& PolicySection::list(std::string_view key, std::size_t most) {
  static const json::Array kNone;
  const json::Value* value = required(key);
  if (!value) {
    return kNone;
  }
  const json::Array* found = value->as_array();
  if (!found) {
    findings_.add(field(key), fmt::format("expected a list, found {}", kind_of(*value)));
    return kNone;
  }
  if (found->empty() || found->size() > most) {
    findings_.add(field(key), fmt::format("expected 1 to {} elements", most));
    return kNone;
  }
  return *found;
}

}  // namespace fairlead::routing
