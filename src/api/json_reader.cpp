#include "api/json_reader.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "net/http.hpp"

namespace fairlead::api {

namespace od = simdjson::ondemand;

namespace {

// A body this large leaves a parser behind that is not worth keeping for the next small one.
constexpr std::size_t kKeepCapacity = 256 * 1024;

/// An object of the members; a repeated key keeps its first place and takes its last value.
json::Object unique_members(std::vector<json::Member> members) {
  std::vector<std::string_view> keys;
  keys.reserve(members.size());
  for (const json::Member& member : members) {
    keys.push_back(member.key);
  }
  std::ranges::sort(keys);
  if (std::ranges::adjacent_find(keys) == keys.end()) {
    return json::Object(std::move(members));
  }
  std::map<std::string, std::size_t, std::less<>> places;
  std::vector<json::Member> unique;
  for (json::Member& member : members) {
    const auto [place, added] = places.try_emplace(member.key, unique.size());
    if (added) {
      unique.push_back(std::move(member));
    } else {
      unique[place->second].value = std::move(member.value);
    }
  }
  return json::Object(std::move(unique));
}

}  // namespace

struct JsonReader::Impl {
  od::parser parser;
  od::value at;
  int depth = 0;
  std::size_t values = 0;
  std::optional<Error> error;

  bool bad(simdjson::error_code code) {
    if (code && !error) {
      error = Error{
          ErrorCode::InvalidRequest,
          fmt::format("The request body is not valid JSON: {}", simdjson::error_message(code)),
          {}};
    }
    return code != simdjson::SUCCESS;
  }

  /// The text of the number at hand.
  std::string_view number_token() {
    if (error) {
      return {};
    }
    const std::string_view token = at.raw_json_token();
    return token.substr(0, token.find_first_of(" \t\r\n"));
  }

  static bool exceeds_int64(std::string_view token) {
    std::int64_t ignored = 0;
    return std::from_chars(token.data(), token.data() + token.size(), ignored).ec ==
           std::errc::result_out_of_range;
  }

  static simdjson::error_code check_digits(std::string_view token) {
    const std::string_view digits = token.substr(token.starts_with('-') ? 1 : 0);
    const bool legal = !digits.starts_with('0') &&
                       digits.find_first_not_of("0123456789") == std::string_view::npos;
    return legal ? simdjson::SUCCESS : simdjson::NUMBER_ERROR;
  }

  json::Value number_value() {
    const std::string_view token = number_token();
    if (error) {
      return {};
    }
    if (token.find_first_of(".eE") != std::string_view::npos) {
      double value = 0;
      return bad(at.get_double().get(value)) ? json::Value() : json::Value(value);
    }
    if (exceeds_int64(token)) {
      return bad(check_digits(token)) ? json::Value() : json::BigInt{std::string(token)};
    }
    std::int64_t value = 0;
    return bad(at.get_int64().get(value)) ? json::Value() : json::Value(value);
  }

  bool enter() {
    if (++depth <= json::kMaxDepth) {
      return true;
    }
    if (!error) {
      error =
          Error{ErrorCode::InvalidRequest,
                fmt::format("The request body is nested deeper than {} levels", json::kMaxDepth),
                {}};
    }
    return false;
  }

  template <class Source>
  void walk_object(Source& source, FunctionRef<void(std::string_view)> on_member) {
    od::object object;
    if (!enter() || bad(source.get_object().get(object))) {
      return;
    }
    for (auto field : object) {
      std::string_view key;
      if (bad(field.unescaped_key().get(key)) || bad(field.value().get(at))) {
        return;
      }
      on_member(key);
      if (error) {
        return;
      }
    }
    --depth;
  }
};

std::string_view type_name(JsonType type) {
  switch (type) {
    case JsonType::Null: return "null";
    case JsonType::Bool: return "a boolean";
    case JsonType::Number: return "a number";
    case JsonType::String: return "a string";
    case JsonType::Array: return "an array";
    case JsonType::Object: return "an object";
  }
  return {};
}

JsonReader::JsonReader() : impl_(std::make_unique<Impl>()) {}

JsonReader::~JsonReader() = default;

Result<> JsonReader::read(const std::string& body,
                          FunctionRef<void(std::string_view key)> on_member) {
  Impl& impl = *impl_;
  impl.error.reset();
  impl.depth = 0;
  impl.values = 0;
  if (impl.parser.capacity() > kKeepCapacity && body.size() < kKeepCapacity / 8) {
    impl.parser = od::parser();
  }
  if (body.capacity() - body.size() < net::http::kBodyPadding) {
    std::string padded;
    padded.reserve(body.size() + net::http::kBodyPadding);
    padded = body;
    return read(padded, on_member);
  }
  od::document document;
  od::json_type type{};
  if (!impl.bad(impl.parser.iterate(body.data(), body.size(), body.capacity()).get(document)) &&
      !impl.bad(document.type().get(type))) {
    if (type != od::json_type::object) {
      fail({ErrorCode::InvalidRequest, "The request body must be a JSON object", {}});
    } else {
      impl.walk_object(document, on_member);
    }
  }
  if (!impl.error && document.current_location().error() != simdjson::OUT_OF_BOUNDS) {
    impl.bad(simdjson::TAPE_ERROR);
  }
  if (impl.error) {
    return std::unexpected(*std::exchange(impl.error, std::nullopt));
  }
  return {};
}

JsonType JsonReader::type() {
  od::json_type type{};
  if (impl_->error || impl_->bad(impl_->at.type().get(type))) {
    return JsonType::Null;
  }
  switch (type) {
    case od::json_type::array: return JsonType::Array;
    case od::json_type::object: return JsonType::Object;
    case od::json_type::number: return JsonType::Number;
    case od::json_type::string: return JsonType::String;
    case od::json_type::boolean: return JsonType::Bool;
    case od::json_type::null: return JsonType::Null;
  }
  return JsonType::Null;
}

void JsonReader::object(FunctionRef<void(std::string_view key)> on_member) {
  if (!impl_->error) {
    od::value source = impl_->at;
    impl_->walk_object(source, on_member);
  }
}

void JsonReader::array(FunctionRef<void(std::size_t index)> on_element) {
  Impl& impl = *impl_;
  od::array array;
  if (impl.error || !impl.enter() || impl.bad(impl.at.get_array().get(array))) {
    return;
  }
  std::size_t index = 0;
  for (auto element : array) {
    if (impl.bad(element.get(impl.at))) {
      return;
    }
    on_element(index++);
    if (impl.error) {
      return;
    }
  }
  --impl.depth;
}

std::string_view JsonReader::string() {
  std::string_view text;
  if (impl_->error || impl_->bad(impl_->at.get_string().get(text))) {
    return {};
  }
  return text;
}

bool JsonReader::boolean() {
  bool value = false;
  return !impl_->error && !impl_->bad(impl_->at.get_bool().get(value)) && value;
}

JsonNumber JsonReader::number() {
  Impl& impl = *impl_;
  JsonNumber out;
  const std::string_view token = impl.number_token();
  if (impl.error) {
    return out;
  }
  if (token.find_first_of(".eE") != std::string_view::npos) {
    if (impl.bad(impl.at.get_double().get(out.value))) {
      return {};
    }
    if (out.value == std::floor(out.value) && std::abs(out.value) < 9.0e18) {
      out.integral = true;
      out.integer = static_cast<std::int64_t>(out.value);
    }
    return out;
  }
  if (Impl::exceeds_int64(token)) {
    // Legal JSON, but no field takes it: only its sign and size matter.
    if (impl.bad(Impl::check_digits(token))) {
      return {};
    }
    out.value = token.starts_with('-') ? -1e300 : 1e300;
    return out;
  }
  if (impl.bad(impl.at.get_int64().get(out.integer))) {
    return {};
  }
  out.integral = true;
  out.value = static_cast<double>(out.integer);
  return out;
}

void JsonReader::null() {
  bool is_null = false;
  if (!impl_->error && !impl_->bad(impl_->at.is_null().get(is_null)) && !is_null) {
    impl_->bad(simdjson::N_ATOM_ERROR);
  }
}

void JsonReader::skip() {
  switch (type()) {
    case JsonType::Null: return null();
    case JsonType::Bool: boolean(); return;
    case JsonType::Number: number(); return;
    case JsonType::String: string(); return;
    case JsonType::Array: return array([this](std::size_t) { skip(); });
    case JsonType::Object: return object([this](std::string_view) { skip(); });
  }
}

json::Value JsonReader::value() {
  if (++impl_->values > kMaxValues) {
    fail({ErrorCode::InvalidRequest,
          fmt::format("The request body holds more than {} values", kMaxValues),
          {}});
    return {};
  }
  switch (type()) {
    case JsonType::Null: null(); return {};
    case JsonType::Bool: return boolean();
    case JsonType::String: return string();
    case JsonType::Number: return impl_->number_value();
    case JsonType::Array: {
      json::Array elements;
      array([&](std::size_t) { elements.push_back(value()); });
      return elements;
    }
    case JsonType::Object: {
      std::vector<json::Member> members;
      object([&](std::string_view key) {
        std::string name(key);
        members.push_back({std::move(name), value()});
      });
      return unique_members(std::move(members));
    }
  }
  return {};
}

void JsonReader::fail(Error error) {
  if (!impl_->error) {
    impl_->error = std::move(error);
  }
}

bool JsonReader::failed() const { return impl_->error.has_value(); }

}  // namespace fairlead::api
