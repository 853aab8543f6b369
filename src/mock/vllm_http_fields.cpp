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

#include "mock/type_faults.hpp"
#include "mock/vllm_http_error.hpp"

namespace fairlead::mock {
namespace {

using json::Value;

enum class Server : std::uint8_t { Both, Rust, Python };

struct Field {
  std::string_view name;
  FieldType type;
  Server server = Server::Both;
  bool required = false;
};

constexpr std::array kBody = {
    Field{"token_ids", FieldType::Ids, Server::Both, true},
    Field{"sampling_params", FieldType::Object, Server::Both, true},
    Field{"request_id", FieldType::Text},
    Field{"model", FieldType::Text},
    Field{"stream", FieldType::Boolean},
    Field{"stream_options", FieldType::Object},
    Field{"cache_salt", FieldType::Text},
    Field{"priority", FieldType::Integer32},
    Field{"kv_transfer_params", FieldType::Object},
    Field{"ec_transfer_params", FieldType::Object},
    Field{"features", FieldType::Object},
    Field{"return_token_ids", FieldType::Boolean},
    Field{"output_mode", FieldType::Text, Server::Python},
};

constexpr std::array kSampling = {
    Field{"n", FieldType::Unsigned32},
    Field{"temperature", FieldType::Real},
    Field{"top_p", FieldType::Real},
    Field{"top_k", FieldType::Integer32},
    Field{"min_p", FieldType::Real},
    Field{"seed", FieldType::Integer64},
    Field{"max_tokens", FieldType::Unsigned32},
    Field{"min_tokens", FieldType::Unsigned32},
    Field{"thinking_token_budget", FieldType::Integer32},
    Field{"logprobs", FieldType::Integer32},
    Field{"prompt_logprobs", FieldType::Integer32},
    Field{"frequency_penalty", FieldType::Real},
    Field{"presence_penalty", FieldType::Real},
    Field{"repetition_penalty", FieldType::Real},
    Field{"repetition_detection", FieldType::Object},
    Field{"stop_token_ids", FieldType::Ids},
    Field{"ignore_eos", FieldType::Boolean},
    Field{"logit_bias", FieldType::Biases},
    Field{"allowed_token_ids", FieldType::Ids},
    Field{"bad_words", FieldType::Texts},
    Field{"bad_words_token_ids", FieldType::IdLists, Server::Rust},
    Field{"logprob_token_ids", FieldType::Ids},
    Field{"structured_outputs", FieldType::Object},
    Field{"skip_reading_prefix_cache", FieldType::Boolean},
    Field{"stop", FieldType::TextOrTexts, Server::Python},
    Field{"include_stop_str_in_output", FieldType::Boolean, Server::Python},
    Field{"detokenize", FieldType::Boolean, Server::Python},
    Field{"skip_special_tokens", FieldType::Boolean, Server::Python},
    Field{"spaces_between_special_tokens", FieldType::Boolean, Server::Python},
};

constexpr std::array kStreamOptions = {
    Field{"include_usage", FieldType::Boolean},
    Field{"continuous_usage_stats", FieldType::Boolean},
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
      faults_.wrong_type(python_ ? "" : "body", FieldType::Object, body);
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
        faults_.wrong_type(fmt::format("sampling_params.{}", key), FieldType::Object, *value);
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
    if ((field.name == "logprob_token_ids" && !options_.has(Capability::LogprobTokenIds)) ||
        (field.name == "bad_words_token_ids" && !options_.has(Capability::BadWordsTokenIds))) {
      return false;
    }
    return field.server == Server::Both || (field.server == Server::Python) == python_;
  }

  bool is_number(const Value& value, FieldType type) const {
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
      case FieldType::Unsigned32:
        return *number >= 0 && *number <= std::numeric_limits<std::uint32_t>::max();
      case FieldType::Integer32:
        return *number >= std::numeric_limits<std::int32_t>::min() &&
               *number <= std::numeric_limits<std::int32_t>::max();
      default: return true;
    }
  }

  // What a list of this type holds.
  static FieldType item_type(FieldType list) {
    switch (list) {
      case FieldType::Ids: return FieldType::Unsigned32;
      case FieldType::IdLists: return FieldType::Ids;
      default: return FieldType::Text;
    }
  }

  void check_items(const std::string& path, FieldType type, const json::Array& items) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      check_value(fmt::format("{}.{}", path, i), type, items[i]);
    }
  }

  void check_biases(const std::string& path, const json::Object& biases) {
    for (const json::Member& member : biases) {
      std::uint32_t id = 0;
      const auto [end, error] =
          std::from_chars(member.key.data(), member.key.data() + member.key.size(), id);
      double bias = 0;
      // serde is given the names as texts here, whatever they hold.
      if (!python_ || error != std::errc() || end != member.key.data() + member.key.size()) {
        faults_.wrong_type(fmt::format("{}.{}", path, member.key), FieldType::Unsigned32,
                           Value(member.key));
      } else if (!member.value.number(bias)) {
        faults_.wrong_type(fmt::format("{}.{}", path, member.key), FieldType::Real, member.value);
      }
    }
  }

  void check_value(const std::string& path, FieldType type, const Value& value) {
    double real = 0;
    bool good = true;
    switch (type) {
      case FieldType::Boolean: good = value.as_bool() != nullptr; break;
      case FieldType::Unsigned32:
      case FieldType::Integer32:
      case FieldType::Integer64: good = is_number(value, type); break;
      case FieldType::Real: good = value.number(real); break;
      case FieldType::Text: good = value.as_string() != nullptr; break;
      case FieldType::TextOrTexts: good = value.as_string() || value.as_array(); break;
      case FieldType::Ids:
      case FieldType::IdLists:
      case FieldType::Texts: good = value.as_array() != nullptr; break;
      case FieldType::Object:
      case FieldType::Biases: good = value.as_object() != nullptr; break;
    }
    if (!good) {
      faults_.wrong_type(path, type, value);
    } else if (const json::Array* items = value.as_array()) {
      check_items(path, item_type(type), *items);
    } else if (type == FieldType::Biases) {
      check_biases(path, *value.as_object());
    }
  }

  const MockOptions& options_;
  bool python_;
  bool twice_;  // two names of one field are refused
  TypeFaults faults_;
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
