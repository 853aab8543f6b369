#include "mock/type_faults.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fairlead::mock {
namespace {

using json::Value;

// An answer to a large wrong body stays small.
constexpr std::size_t kMostEntries = 32;

// How the two schemas name a type.
struct Words {
  std::string_view serde;
  std::string_view pydantic;
  std::string_view message;  // pydantic's
};

Words words_of(FieldType type) {
  constexpr std::string_view kWhole = "Input should be a valid integer";
  switch (type) {
    case FieldType::Boolean: return {"a boolean", "bool_type", "Input should be a valid boolean"};
    case FieldType::Unsigned32: return {"u32", "int_type", kWhole};
    case FieldType::Integer32: return {"i32", "int_type", kWhole};
    case FieldType::Integer64: return {"i64", "int_type", kWhole};
    case FieldType::Real: return {"f32", "float_type", "Input should be a valid number"};
    case FieldType::Text:
    case FieldType::TextOrTexts:
      return {"a string", "string_type", "Input should be a valid string"};
    case FieldType::Ids:
    case FieldType::IdLists:
    case FieldType::Texts: return {"a sequence", "list_type", "Input should be a valid list"};
    case FieldType::Object:
    case FieldType::Biases: return {"a map", "dict_type", "Input should be a valid dictionary"};
  }
  return {};
}

std::string serde_kind(const Value& value) {
  if (value.is_null()) {
    return "null";
  }
  if (const bool* flag = value.as_bool()) {
    return fmt::format("boolean `{}`", *flag);
  }
  if (const std::int64_t* number = value.as_int()) {
    return fmt::format("integer `{}`", *number);
  }
  if (const double* number = value.as_double()) {
    return fmt::format("floating point `{}`", *number);
  }
  if (const std::string* text = value.as_string()) {
    return fmt::format("string {}", json::dump(*text));
  }
  if (value.as_array()) {
    return "sequence";
  }
  return value.as_object() ? "map" : "number";
}

std::string pydantic_input(const Value& value) {
  if (const std::string* text = value.as_string()) {
    return fmt::format("'{}'", *text);
  }
  if (const json::Array* array = value.as_array()) {
    return fmt::format("'<list of {} items>'", array->size());
  }
  if (const json::Object* object = value.as_object()) {
    return fmt::format("'<dict of {} items>'", object->size());
  }
  if (const bool* flag = value.as_bool()) {
    return *flag ? "True" : "False";
  }
  return value.is_null() ? "None" : json::dump(value);
}

std::string serde_path(std::string_view path) {
  std::string out;
  while (!path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    const std::string_view part = path.substr(0, dot);
    const bool index = part.find_first_not_of("0123456789") == std::string_view::npos;
    out += index ? fmt::format("[{}]", part) : fmt::format("{}{}", out.empty() ? "" : ".", part);
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return out;
}

}  // namespace

void TypeFaults::wrong_type(const std::string& path, FieldType type, const Value& value) {
  const Words words = words_of(type);
  if (python_) {
    add(path, fmt::format("{{'type': '{}', 'loc': 'body.{}', 'msg': '{}', 'input': {}}}",
                          words.pydantic, path, words.message, pydantic_input(value)));
    return;
  }
  const bool range = value.as_int() && words.serde.size() == 3;
  add(path, fmt::format("{}: invalid {}: {}, expected {} at {}", serde_path(path),
                        range ? "value" : "type", serde_kind(value), words.serde, place()));
}

void TypeFaults::missing(std::string_view prefix, std::string_view name, std::size_t members) {
  const std::string path = fmt::format("{}{}", prefix, name);
  if (python_) {
    add(path, fmt::format("{{'type': 'missing', 'loc': 'body.{}', 'msg': 'Field required', "
                          "'input': '<dict of {} items>'}}",
                          path, members));
    return;
  }
  const std::string where =
      prefix.empty() ? "" : fmt::format("{}: ", prefix.substr(0, prefix.size() - 1));
  add(path, fmt::format("{}missing field `{}` at {}", where, name, place()));
}

void TypeFaults::twice(std::string_view path, std::string_view name) {
  add(path, fmt::format("{}: duplicate field `{}` at {}", path, name, place()));
}

void TypeFaults::too_short(std::string_view name) {
  add(name,
      fmt::format("{{'type': 'too_short', 'loc': 'body.{}', 'msg': 'List should have at least 1 "
                  "item after validation, not 0', 'input': '<list of 0 items>', 'ctx': "
                  "{{'field_type': 'List', 'min_length': 1, 'actual_length': 0}}}}",
                  name));
}

Check TypeFaults::result() const {
  if (entries_.empty()) {
    return std::nullopt;
  }
  Refusal refusal{Refusal::Kind::Malformed, {}, {}};
  if (!python_) {
    refusal.message =
        "Failed to deserialize the JSON body into the target type: " + entries_.front();
    return refusal;
  }
  refusal.param = "body." + first_path_;
  refusal.message = fmt::format("{} validation error{}:", count_, count_ == 1 ? "" : "s");
  for (const std::string& entry : entries_) {
    refusal.message += "\n  " + entry;
  }
  return refusal;
}

void TypeFaults::add(std::string_view path, std::string entry) {
  ++count_;
  if (entries_.empty()) {
    first_path_ = path;
  }
  if (entries_.size() < kMostEntries) {
    entries_.push_back(std::move(entry));
  }
}

std::string TypeFaults::place() const {
  const std::size_t end = text_.find_last_not_of(" \t\r\n") + 1;
  const std::string_view body = text_.substr(0, end);
  const auto line = std::ranges::count(body, '\n') + 1;
  const std::size_t last = body.rfind('\n');
  const std::size_t column = last == std::string_view::npos ? body.size() : body.size() - last - 1;
  return fmt::format("line {} column {}", line, column);
}

}  // namespace fairlead::mock
