#include "mock/vllm_http_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "mock/vllm_http_error.hpp"

namespace fairlead::mock {
namespace {

using json::Value;

enum class Type : std::uint8_t {
  Boolean,
  Unsigned32,
  Integer32,
  Integer64,
  Real,
  Text,
  Ids,
  Texts,
  TextOrTexts,
  Object,
  Biases,
  Any,
};

// How the two schemas name a type.
struct Words {
  std::string_view serde;
  std::string_view pydantic;
  std::string_view message;  // pydantic's
};

Words words_of(Type type) {
  constexpr std::string_view kWhole = "Input should be a valid integer";
  switch (type) {
    case Type::Boolean: return {"a boolean", "bool_type", "Input should be a valid boolean"};
    case Type::Unsigned32: return {"u32", "int_type", kWhole};
    case Type::Integer32: return {"i32", "int_type", kWhole};
    case Type::Integer64: return {"i64", "int_type", kWhole};
    case Type::Real: return {"f32", "float_type", "Input should be a valid number"};
    case Type::Text:
    case Type::TextOrTexts: return {"a string", "string_type", "Input should be a valid string"};
    case Type::Ids:
    case Type::Texts: return {"a sequence", "list_type", "Input should be a valid list"};
    case Type::Object:
    case Type::Biases: return {"a map", "dict_type", "Input should be a valid dictionary"};
    case Type::Any: break;
  }
  return {};
}

enum class Server : std::uint8_t { Both, Rust, Python };

struct Field {
  std::string_view name;
  Type type;
  Server server = Server::Both;
  bool required = false;
};

constexpr std::array kBody = {
    Field{"token_ids", Type::Ids, Server::Both, true},
    Field{"sampling_params", Type::Object, Server::Both, true},
    Field{"request_id", Type::Text},
    Field{"model", Type::Text},
    Field{"stream", Type::Boolean},
    Field{"stream_options", Type::Object},
    Field{"cache_salt", Type::Text},
    Field{"priority", Type::Integer32},
    Field{"kv_transfer_params", Type::Object},
    Field{"ec_transfer_params", Type::Object},
    Field{"features", Type::Object},
    Field{"return_token_ids", Type::Boolean},
    Field{"output_mode", Type::Text, Server::Python},
};

constexpr std::array kSampling = {
    Field{"n", Type::Unsigned32},
    Field{"temperature", Type::Real},
    Field{"top_p", Type::Real},
    Field{"top_k", Type::Integer32},
    Field{"min_p", Type::Real},
    Field{"seed", Type::Integer64},
    Field{"max_tokens", Type::Unsigned32},
    Field{"min_tokens", Type::Unsigned32},
    Field{"thinking_token_budget", Type::Integer32},
    Field{"logprobs", Type::Integer32},
    Field{"prompt_logprobs", Type::Integer32},
    Field{"frequency_penalty", Type::Real},
    Field{"presence_penalty", Type::Real},
    Field{"repetition_penalty", Type::Real},
    Field{"repetition_detection", Type::Object},
    Field{"stop_token_ids", Type::Ids},
    Field{"ignore_eos", Type::Boolean},
    Field{"logit_bias", Type::Biases},
    Field{"allowed_token_ids", Type::Ids},
    Field{"bad_words", Type::Texts},
    Field{"logprob_token_ids", Type::Ids},
    Field{"structured_outputs", Type::Object},
    Field{"skip_reading_prefix_cache", Type::Boolean},
    Field{"stop", Type::TextOrTexts, Server::Python},
    Field{"include_stop_str_in_output", Type::Boolean, Server::Python},
    Field{"detokenize", Type::Boolean, Server::Python},
    Field{"skip_special_tokens", Type::Boolean, Server::Python},
    Field{"spaces_between_special_tokens", Type::Boolean, Server::Python},
};

constexpr std::array kStreamOptions = {
    Field{"include_usage", Type::Boolean},
    Field{"continuous_usage_stats", Type::Boolean},
};

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

// Collects faults in the words of one server.
class Faults {
 public:
  Faults(bool python, std::string_view text) : python_(python), text_(text) {}

  // `path` has dots; an index is a part of digits.
  void wrong_type(const std::string& path, Type type, const Value& value) {
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

  void missing(std::string_view prefix, std::string_view name, std::size_t members) {
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

  void twice(const std::string& path, std::string_view name) {
    add(path, fmt::format("{}: duplicate field `{}` at {}", path, name, place()));
  }

  void too_short(std::string_view name) {
    add(std::string(name),
        fmt::format("{{'type': 'too_short', 'loc': 'body.{}', 'msg': 'List should have at least 1 "
                    "item after validation, not 0', 'input': '<list of 0 items>', 'ctx': "
                    "{{'field_type': 'List', 'min_length': 1, 'actual_length': 0}}}}",
                    name));
  }

  Check result() const {
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

 private:
  // An answer to a large wrong body stays small.
  static constexpr std::size_t kMostEntries = 32;

  void add(const std::string& path, std::string entry) {
    ++count_;
    if (entries_.empty()) {
      first_path_ = path;
    }
    if (entries_.size() < kMostEntries) {
      entries_.push_back(std::move(entry));
    }
  }

  static std::string serde_path(std::string_view path) {
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

  std::string place() const {
    const std::size_t end = text_.find_last_not_of(" \t\r\n") + 1;
    const std::string_view body = text_.substr(0, end);
    const auto line = std::ranges::count(body, '\n') + 1;
    const std::size_t last = body.rfind('\n');
    const std::size_t column =
        last == std::string_view::npos ? body.size() : body.size() - last - 1;
    return fmt::format("line {} column {}", line, column);
  }

  bool python_;
  std::string_view text_;
  std::string first_path_;
  std::vector<std::string> entries_;
  std::size_t count_ = 0;
};

class Checker {
 public:
  Checker(const MockOptions& options, std::string_view text)
      : options_(options),
        python_(is_python(options.flavor)),
        twice_(options.flavor == HttpFlavor::Rust033),
        faults_(python_, text) {}

  Check check(const Value& body) {
    const json::Object* object = body.as_object();
    if (!object) {
      faults_.wrong_type(python_ ? "" : "body", Type::Object, body);
      return faults_.result();
    }
    check_fields(*object, kBody, "");
    if (const Value* ids = object->find("token_ids");
        python_ && ids && ids->as_array() && ids->as_array()->empty()) {
      faults_.too_short("token_ids");
    }
    if (const Value* sampling = object->find("sampling_params");
        sampling && sampling->as_object()) {
      check_sampling(*sampling->as_object());
    }
    if (const Value* stream = object->find("stream_options"); stream && stream->as_object()) {
      check_fields(*stream->as_object(), kStreamOptions, "stream_options.");
    }
    return faults_.result();
  }

 private:
  void check_sampling(const json::Object& sampling) {
    check_fields(sampling, kSampling, "sampling_params.");
    std::size_t given = 0;
    for (const std::string_view key : extra_args_keys(options_)) {
      const Value* value = sampling.find(key);
      given += value ? 1 : 0;
      if (value && !value->is_null() && !value->as_object()) {
        faults_.wrong_type(fmt::format("sampling_params.{}", key), Type::Object, *value);
      }
    }
    if (twice_ && given > 1) {
      faults_.twice("sampling_params", "vllm_xargs");
    }
  }

  void check_fields(const json::Object& object, std::span<const Field> fields,
                    std::string_view prefix) {
    for (const json::Member& member : object) {
      const auto field = std::ranges::find(fields, member.key, &Field::name);
      if (field != fields.end() && knows(*field) && (field->required || !member.value.is_null())) {
        check_value(fmt::format("{}{}", prefix, member.key), field->type, member.value);
      }
    }
    for (const Field& field : fields) {
      if (field.required && !object.find(field.name)) {
        faults_.missing(prefix, field.name, object.size());
      }
    }
  }

  bool knows(const Field& field) const {
    if (field.name == "logprob_token_ids" && !options_.has(Capability::LogprobTokenIds)) {
      return false;
    }
    return field.server == Server::Both || (field.server == Server::Python) == python_;
  }

  bool is_number(const Value& value, Type type) const {
    if (const double* real = value.as_double()) {
      constexpr double kExact = 9007199254740992.0;
      return python_ && *real >= -kExact && *real <= kExact &&
             *real == static_cast<double>(static_cast<std::int64_t>(*real));
    }
    const std::int64_t* number = value.as_int();
    if (!number || python_) {
      return number != nullptr;
    }
    switch (type) {
      case Type::Unsigned32:
        return *number >= 0 && *number <= std::numeric_limits<std::uint32_t>::max();
      case Type::Integer32:
        return *number >= std::numeric_limits<std::int32_t>::min() &&
               *number <= std::numeric_limits<std::int32_t>::max();
      default: return true;
    }
  }

  void check_items(const std::string& path, Type type, const json::Array& items) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      const bool good =
          type == Type::Text ? items[i].as_string() != nullptr : is_number(items[i], type);
      if (!good) {
        faults_.wrong_type(fmt::format("{}.{}", path, i), type, items[i]);
      }
    }
  }

  void check_biases(const std::string& path, const json::Object& biases) {
    for (const json::Member& member : biases) {
      std::uint32_t id = 0;
      const auto [end, error] =
          std::from_chars(member.key.data(), member.key.data() + member.key.size(), id);
      double bias = 0;
      if (error != std::errc() || end != member.key.data() + member.key.size()) {
        faults_.wrong_type(fmt::format("{}.{}", path, member.key), Type::Unsigned32,
                           Value(member.key));
      } else if (!member.value.number(bias)) {
        faults_.wrong_type(fmt::format("{}.{}", path, member.key), Type::Real, member.value);
      }
    }
  }

  void check_value(const std::string& path, Type type, const Value& value) {
    double real = 0;
    bool good = true;
    switch (type) {
      case Type::Boolean: good = value.as_bool() != nullptr; break;
      case Type::Unsigned32:
      case Type::Integer32:
      case Type::Integer64: good = is_number(value, type); break;
      case Type::Real: good = value.number(real); break;
      case Type::Text: good = value.as_string() != nullptr; break;
      case Type::TextOrTexts: good = value.as_string() || value.as_array(); break;
      case Type::Ids:
      case Type::Texts: good = value.as_array() != nullptr; break;
      case Type::Object:
      case Type::Biases: good = value.as_object() != nullptr; break;
      case Type::Any: break;
    }
    if (!good) {
      faults_.wrong_type(path, type, value);
    } else if (const json::Array* items = value.as_array()) {
      check_items(path, type == Type::Ids ? Type::Unsigned32 : Type::Text, *items);
    } else if (type == Type::Biases) {
      check_biases(path, *value.as_object());
    }
  }

  const MockOptions& options_;
  bool python_;
  bool twice_;  // two names of one field are refused
  Faults faults_;
};

}  // namespace

std::vector<std::string_view> extra_args_keys(const MockOptions& options) {
  if (!options.has(Capability::VllmXargs)) {
    return {};
  }
  switch (options.flavor) {
    case HttpFlavor::Rust033: return {"vllm_xargs", "extra_args"};
    case HttpFlavor::Rust032: return {"vllm_xargs"};
    case HttpFlavor::Python032: return {"extra_args"};
  }
  return {};
}

Check check_types(const MockOptions& options, std::string_view text, const json::Value& body) {
  return Checker(options, text).check(body);
}

Refusal not_json(HttpFlavor flavor, std::string_view text, std::string_view why) {
  if (is_python(flavor)) {
    return {Refusal::Kind::Malformed,
            fmt::format("1 validation error:\n  {{'type': 'json_invalid', 'loc': 'body.{}', 'msg': "
                        "'JSON decode error', 'input': '<dict of 0 items>', 'ctx': {{'error': "
                        "'{}'}}}}",
                        text.size(), why),
            fmt::format("body.{}", text.size())};
  }
  return {Refusal::Kind::Malformed,
          fmt::format("Failed to parse the request body as JSON: {} at line 1 column {}", why,
                      text.size()),
          {}};
}

}  // namespace fairlead::mock
