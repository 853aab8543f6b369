#include "api/thresholds.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "api/error_response.hpp"
#include "api/kv_mode.hpp"
#include "api/openai/preparation.hpp"
#include "base/json.hpp"

namespace fairlead::api {
namespace {

constexpr std::string_view kModel = "model";
constexpr std::string_view kDecodeBlocks = "active_decode_blocks_threshold";
constexpr std::string_view kPrefillTokens = "active_prefill_tokens_threshold";
constexpr std::string_view kPrefillTokensFrac = "active_prefill_tokens_threshold_frac";
// As on the command line.
constexpr std::int64_t kMostTokens = 1'000'000'000'000;
constexpr double kMostFrac = 1'000'000;
constexpr std::size_t kMostBytes = 65'536;
constexpr std::string_view kLack = "there are no busy thresholds";

void invalid(JsonReader& reader, std::string_view field, std::string_view rule) {
  reader.fail(
      {ErrorCode::InvalidRequest, fmt::format("`{}` must be {}", field, rule), std::string(field)});
}

// The number at hand, or null.
std::optional<std::optional<double>> take_number(JsonReader& reader, std::string_view field,
                                                 double most) {
  const JsonType type = reader.type();
  if (type == JsonType::Null) {
    reader.null();
    return std::optional<double>();
  }
  const double value = type == JsonType::Number ? reader.number().value : -1;
  if (!(value >= 0 && value <= most)) {
    invalid(reader, field, fmt::format("a number from 0 to {}, or null for none", most));
  }
  return value;
}

std::optional<std::optional<std::int64_t>> take_tokens(JsonReader& reader, std::string_view field) {
  const JsonType type = reader.type();
  if (type == JsonType::Null) {
    reader.null();
    return std::optional<std::int64_t>();
  }
  const JsonNumber value = type == JsonType::Number ? reader.number() : JsonNumber{};
  if (!value.integral || value.integer < 0 || value.integer > kMostTokens) {
    invalid(reader, field,
            fmt::format("a whole number from 0 to {}, or null for none", kMostTokens));
  }
  return value.integer;
}

void write_optional(json::Writer& writer, std::string_view key, std::optional<double> value) {
  writer.key(key);
  value ? writer.number(*value == 0 ? 0 : *value) : writer.null();  // without a sign
}

void write_thresholds(json::Writer& writer, std::string_view model,
                      const routing::BusyThresholds& thresholds) {
  writer.begin_object().key(kModel).string(model);
  write_optional(writer, kDecodeBlocks, thresholds.active_decode_blocks);
  writer.key(kPrefillTokens);
  thresholds.active_prefill_tokens ? writer.integer(*thresholds.active_prefill_tokens)
                                   : writer.null();
  write_optional(writer, kPrefillTokensFrac, thresholds.active_prefill_tokens_frac);
  writer.end_object();
}

}  // namespace

Result<ThresholdRequest> parse_threshold_request(JsonReader& reader, const std::string& body) {
  ThresholdRequest out;
  const Result<> read = reader.read(body, [&](std::string_view key) {
    if (key == kModel) {
      if (reader.type() == JsonType::String) {
        out.model = reader.string();
      } else {
        invalid(reader, kModel, "a string");
      }
    } else if (key == kDecodeBlocks) {
      out.change.active_decode_blocks = take_number(reader, kDecodeBlocks, 1);
    } else if (key == kPrefillTokens) {
      out.change.active_prefill_tokens = take_tokens(reader, kPrefillTokens);
    } else if (key == kPrefillTokensFrac) {
      out.change.active_prefill_tokens_frac = take_number(reader, kPrefillTokensFrac, kMostFrac);
    } else {
      const std::string name(key.substr(0, 64));
      reader.fail(
          {ErrorCode::InvalidRequest, fmt::format("`{}` is no field of this request", name), name});
    }
  });
  if (!read) {
    return std::unexpected(read.error());
  }
  if (out.model.empty()) {
    return fail(ErrorCode::InvalidRequest, "`model` must be given", std::string(kModel));
  }
  return out;
}

int ThresholdsHandler::list(net::http::Exchange& exchange) const {
  if (const auto error = check_kv_mode(service_, kLack)) {
    respond_error(exchange, *error, options_);
    return error_status(*error, options_);
  }
  std::string out;
  json::Writer writer(out);
  writer.begin_object().key("thresholds").begin_array();
  for (const auto& model : service_.fleet()->models) {
    write_thresholds(writer, model->name, service_.router().thresholds(*model));
  }
  writer.end_array().end_object();
  respond_json(exchange, 200, out);
  return 200;
}

Result<std::string> ThresholdsHandler::answer(const net::http::Request& request) {
  if (const auto error = check_kv_mode(service_, kLack)) {
    return std::unexpected(*error);
  }
  if (const auto error = openai::refusal(service_, request)) {
    return std::unexpected(*error);
  }
  if (request.body.size() > kMostBytes) {
    return fail(ErrorCode::BodyTooLarge, fmt::format("The body is above {} bytes", kMostBytes));
  }
  const Result<ThresholdRequest> wanted = parse_threshold_request(reader_, request.body);
  if (!wanted) {
    return std::unexpected(wanted.error());
  }
  const auto model = service_.fleet()->find(wanted->model);
  if (!model) {
    return fail(ErrorCode::ModelNotFound,
                fmt::format("The model `{}` does not exist.",
                            std::string_view(wanted->model).substr(0, 512)),
                std::string(kModel));
  }
  std::string out;
  json::Writer writer(out);
  write_thresholds(writer, model->name,
                   service_.router().change_thresholds(*model, wanted->change));
  return out;
}

int ThresholdsHandler::change(net::http::Exchange& exchange) {
  const Result<std::string> body = answer(exchange.request());
  if (!body) {
    respond_error(exchange, body.error(), options_);
    return error_status(body.error(), options_);
  }
  respond_json(exchange, 200, *body);
  return 200;
}

}  // namespace fairlead::api
