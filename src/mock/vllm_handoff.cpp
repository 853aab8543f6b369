#include "mock/vllm_handoff.hpp"

#include <fmt/format.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <array>
#include <charconv>
#include <string>
#include <utility>

namespace fairlead::mock {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

constexpr std::array<std::string_view, 4> kRemote = {"remote_engine_id", "remote_host",
                                                     "remote_port", "remote_block_ids"};
// Only this simulation knows it: a client that rebuilds the parameters loses it.
constexpr std::string_view kSentinel = "mocker_request_id";

const Value* find(const Struct& params, std::string_view key) {
  const auto it = params.fields().find(std::string(key));
  if (it == params.fields().end() || it->second.kind_case() == Value::kNullValue) {
    return nullptr;
  }
  return &it->second;
}

bool is_true(const Struct& params, std::string_view key) {
  const Value* value = find(params, key);
  return value && value->bool_value();
}

Refusal invalid(std::string message) {
  return {Refusal::Kind::Invalid, std::move(message), "kv_transfer_params"};
}

Refusal precondition(std::string message) {
  return {Refusal::Kind::Precondition, std::move(message), "kv_transfer_params"};
}

Check check_prefill(const Struct& params) {
  for (const std::string_view key : kRemote) {
    if (find(params, key)) {
      return invalid(
          fmt::format("kv_transfer_params.{} does not belong to a prefill request", key));
    }
  }
  if (!is_true(params, "do_remote_decode")) {
    return precondition("a prefill engine needs kv_transfer_params.do_remote_decode");
  }
  return std::nullopt;
}

Check check_decode(const Struct& params) {
  if (!is_true(params, "do_remote_prefill")) {
    for (const std::string_view key : kRemote) {
      if (find(params, key)) {
        return invalid(fmt::format("kv_transfer_params.{} without do_remote_prefill", key));
      }
    }
    return precondition("a decode engine needs the kv_transfer_params of a prefill");
  }
  for (const std::string_view key : kRemote) {
    if (!find(params, key)) {
      return invalid(fmt::format("kv_transfer_params.{} is missing", key));
    }
  }
  if (!find(params, kSentinel)) {
    return invalid(
        fmt::format("kv_transfer_params.{} is missing: the prefill's parameters must be "
                    "forwarded whole",
                    kSentinel));
  }
  const Value& port = *find(params, "remote_port");
  const Value& blocks = *find(params, "remote_block_ids");
  if (!port.has_number_value() && !port.has_string_value()) {
    return invalid("kv_transfer_params.remote_port must be a number");
  }
  if (!blocks.has_list_value() || blocks.list_value().values().empty()) {
    return invalid("kv_transfer_params.remote_block_ids must be a list that is not empty");
  }
  return std::nullopt;
}

}  // namespace

Check check_handoff(const Struct& params, Role role) {
  if (role == Role::Aggregated) {
    return std::nullopt;
  }
  if (is_true(params, "do_remote_decode") && is_true(params, "do_remote_prefill")) {
    return invalid("kv_transfer_params: do_remote_decode and do_remote_prefill exclude each other");
  }
  return role == Role::Prefill ? check_prefill(params) : check_decode(params);
}

std::optional<RemoteKv> remote_of(const Struct& params) {
  const Value* host = find(params, "remote_host");
  const Value* port = find(params, "remote_port");
  const Value* id = find(params, "remote_request_id");
  if (!host || !port || !id || !id->has_string_value()) {
    return std::nullopt;
  }
  // Protobuf's numbers are doubles; clients send the port as text, too.
  std::uint16_t number = 0;
  if (port->has_string_value()) {
    const std::string& text = port->string_value();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) {
      return std::nullopt;
    }
  } else if (const double value = port->number_value(); value > 0 && value < 65536) {
    number = static_cast<std::uint16_t>(value);
  }
  return number == 0 ? std::nullopt
                     : std::optional(RemoteKv{host->string_value(), number, id->string_value()});
}

std::optional<RemoteKv> remote_of(const json::Value& params) {
  Struct converted;
  if (!params.as_object() ||
      !google::protobuf::util::JsonStringToMessage(json::dump(params), &converted).ok()) {
    return std::nullopt;
  }
  return remote_of(converted);
}

void fill_handoff(Struct& params, const HandOff& hand_off) {
  auto& fields = *params.mutable_fields();
  fields["do_remote_decode"].set_bool_value(false);
  fields["do_remote_prefill"].set_bool_value(true);
  fields["remote_engine_id"].set_string_value(std::string(hand_off.engine_id));
  fields["remote_host"].set_string_value(hand_off.host.empty() ? "127.0.0.1"
                                                               : std::string(hand_off.host));
  fields["remote_port"].set_number_value(hand_off.port);
  fields["remote_request_id"].set_string_value(std::string(hand_off.request_id));
  fields["tp_size"].set_number_value(1);
  fields[std::string(kSentinel)].set_string_value(std::string(hand_off.request_id));
  auto* ids = fields["remote_block_ids"].mutable_list_value();
  for (std::size_t i = 0; i < hand_off.blocks; ++i) {
    ids->add_values()->set_number_value(static_cast<double>(i));
  }
}

Check check_handoff(const json::Value& params, Role role) {
  Struct converted;
  if (params.as_object() &&
      !google::protobuf::util::JsonStringToMessage(json::dump(params), &converted).ok()) {
    return invalid("kv_transfer_params cannot be read");
  }
  return check_handoff(converted, role);
}

std::string handoff_json(const HandOff& hand_off) {
  Struct params;
  fill_handoff(params, hand_off);
  std::string out;
  if (!google::protobuf::util::MessageToJsonString(params, &out).ok()) {
    return "null";
  }
  return out;
}

}  // namespace fairlead::mock
