#include "engine/vllm_grpc/json_struct.hpp"

#include <fmt/format.h>
#include <google/protobuf/struct.pb.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace fairlead::engine::vllm_grpc {
namespace {

using google::protobuf::ListValue;
using google::protobuf::NULL_VALUE;
using google::protobuf::Struct;
using google::protobuf::Value;

constexpr double kMaxExactInteger = 9007199254740991.0;  // 2^53 - 1

bool fill_value(const json::Value& from, Value& to, int depth);

bool fill_struct(const json::Object& from, Struct& to, int depth) {
  if (depth > kMaxStructDepth) {
    return false;
  }
  auto& fields = *to.mutable_fields();
  for (const json::Member& member : from) {
    if (!fill_value(member.value, fields[member.key], depth + 1)) {
      return false;
    }
  }
  return true;
}

bool fill_list(const json::Array& from, ListValue& to, int depth) {
  if (depth > kMaxStructDepth) {
    return false;
  }
  to.mutable_values()->Reserve(static_cast<int>(from.size()));
  for (const json::Value& element : from) {
    if (!fill_value(element, *to.add_values(), depth + 1)) {
      return false;
    }
  }
  return true;
}

bool fill_value(const json::Value& from, Value& to, int depth) {
  if (const json::Object* object = from.as_object()) {
    return fill_struct(*object, *to.mutable_struct_value(), depth);
  }
  if (const json::Array* array = from.as_array()) {
    return fill_list(*array, *to.mutable_list_value(), depth);
  }
  if (const std::string* text = from.as_string()) {
    to.set_string_value(*text);
  } else if (const bool* boolean = from.as_bool()) {
    to.set_bool_value(*boolean);
  } else if (double number = 0; from.number(number)) {
    to.set_number_value(number);
  } else {
    to.set_null_value(NULL_VALUE);
  }
  return true;
}

json::Value from_number(double number) {
  if (std::trunc(number) == number && std::abs(number) <= kMaxExactInteger) {
    return json::Value(static_cast<std::int64_t>(number));
  }
  return json::Value(number);
}

json::Value from_value(const Value& value) {
  switch (value.kind_case()) {
    case Value::kNumberValue: return from_number(value.number_value());
    case Value::kStringValue: return json::Value(value.string_value());
    case Value::kBoolValue: return json::Value(value.bool_value());
    case Value::kStructValue: return from_struct(value.struct_value());
    case Value::kListValue: {
      json::Array array;
      array.reserve(static_cast<std::size_t>(value.list_value().values_size()));
      for (const Value& element : value.list_value().values()) {
        array.push_back(from_value(element));
      }
      return json::Value(std::move(array));
    }
    case Value::kNullValue:
    case Value::KIND_NOT_SET: break;
  }
  return {};
}

}  // namespace

Result<> to_struct(const json::Value& object, std::string_view param, Struct& out) {
  const json::Object* members = object.as_object();
  if (!members) {
    return fail(ErrorCode::InvalidRequest, fmt::format("`{}` must be an object", param),
                std::string(param));
  }
  if (!fill_struct(*members, out, 1)) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("`{}` is nested deeper than {} levels", param, kMaxStructDepth),
                std::string(param));
  }
  return {};
}

json::Value from_struct(const Struct& object) {
  std::vector<json::Member> members;
  members.reserve(object.fields().size());
  for (const auto& [key, value] : object.fields()) {
    members.push_back({key, from_value(value)});
  }
  std::ranges::sort(members, {}, &json::Member::key);
  return json::Value(json::Object(std::move(members)));
}

void fix_remote_port(Struct& kv_transfer_params) {
  auto& fields = *kv_transfer_params.mutable_fields();
  const auto port = fields.find("remote_port");
  if (port == fields.end() || port->second.kind_case() != Value::kNumberValue) {
    return;
  }
  const double number = port->second.number_value();
  if (number >= 0 && std::trunc(number) == number && number <= kMaxExactInteger) {
    port->second.set_string_value(fmt::format("{}", static_cast<std::uint64_t>(number)));
  }
}

}  // namespace fairlead::engine::vllm_grpc
