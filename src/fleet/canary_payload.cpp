#include "fleet/canary_payload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>

#include "engine/extra_args.hpp"

namespace fairlead::fleet {
namespace {

constexpr std::size_t kMaxTokens = 65536;

/// One member that may stand in an object: what to do with its value, which is never null.
struct Row {
  std::string_view key;
  Result<> (*read)(const json::Value& value, std::string_view path, CanaryPayload& out);
};

std::unexpected<Error> wrong(std::string_view path, std::string_view rule) {
  return fail(ErrorCode::InvalidRequest, fmt::format("`{}` {}", path, rule), std::string(path));
}

Result<> read_members(const json::Value& value, std::string_view prefix, std::span<const Row> rows,
                      CanaryPayload& out) {
  const json::Object* object = value.as_object();
  if (!object) {
    return wrong(prefix, "must be an object");
  }
  std::string unknown;
  for (const json::Member& member : *object) {
    const auto row = std::ranges::find(rows, member.key, &Row::key);
    const std::string path = prefix.empty() ? member.key : fmt::format("{}.{}", prefix, member.key);
    if (row == rows.end()) {
      unknown += fmt::format("{}`{}`", unknown.empty() ? "" : ", ", path.substr(0, 128));
    } else if (!member.value.is_null()) {
      if (Result<> read = row->read(member.value, path, out); !read) {
        return read;
      }
    }
  }
  if (unknown.empty()) {
    return {};
  }
  const std::string found = fmt::format("unknown key(s) {}", unknown);
  std::string known;
  for (const Row& row : rows) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", row.key);
  }
  return fail(ErrorCode::InvalidRequest, fmt::format("{}; known are {}", found, known));
}

Result<> read_ids(const json::Value& value, std::string_view path,
                  std::vector<engine::TokenId>& out) {
  const json::Array* elements = value.as_array();
  if (!elements || elements->size() > kMaxTokens) {
    return wrong(path, fmt::format("must be an array of at most {} token ids", kMaxTokens));
  }
  for (const json::Value& element : *elements) {
    const std::int64_t* id = element.as_int();
    if (!id || *id < 0 || *id > std::numeric_limits<engine::TokenId>::max()) {
      return wrong(path, "must hold token ids: whole numbers from 0");
    }
    out.push_back(static_cast<engine::TokenId>(*id));
  }
  return {};
}

Result<std::int64_t> whole(const json::Value& value, std::string_view path, std::int64_t minimum,
                           std::int64_t maximum) {
  const std::int64_t* number = value.as_int();
  if (!number || *number < minimum || *number > maximum) {
    return wrong(path, fmt::format("must be a whole number from {} to {}", minimum, maximum));
  }
  return *number;
}

template <float engine::SamplingParams::* kMember>
Result<> sampling_number(const json::Value& value, std::string_view path, CanaryPayload& out) {
  double number = 0;
  if (!value.number(number)) {
    return wrong(path, "must be a number");
  }
  out.sampling.*kMember = static_cast<float>(number);
  out.sampling.unset = false;
  return {};
}

Result<> read_top_k(const json::Value& value, std::string_view path, CanaryPayload& out) {
  const auto number = whole(value, path, -1, std::numeric_limits<std::int32_t>::max());
  if (!number) {
    return std::unexpected(number.error());
  }
  out.sampling.top_k = static_cast<std::uint32_t>(std::max<std::int64_t>(*number, 0));
  out.sampling.unset = false;
  return {};
}

Result<> read_seed(const json::Value& value, std::string_view path, CanaryPayload& out) {
  const std::int64_t* seed = value.as_int();
  if (!seed) {
    return wrong(path, "must be a whole number");
  }
  out.sampling.seed = *seed;
  out.sampling.unset = false;
  return {};
}

Result<> read_extra_args(const json::Value& value, std::string_view path, CanaryPayload& out) {
  const json::Object* object = value.as_object();
  if (!object) {
    return wrong(path, "must be an object");
  }
  for (const json::Member& member : *object) {
    if (engine::is_connector_argument(member.key)) {
      return wrong(fmt::format("{}.{}", path, member.key), "is not allowed");
    }
  }
  out.extra_args = object->empty() ? json::Value() : value;
  return {};
}

template <std::uint32_t engine::StopConditions::* kMember, std::int64_t kMinimum>
Result<> stop_count(const json::Value& value, std::string_view path, CanaryPayload& out) {
  const auto number = whole(value, path, kMinimum, std::numeric_limits<std::int32_t>::max());
  if (!number) {
    return std::unexpected(number.error());
  }
  out.stop.*kMember = static_cast<std::uint32_t>(*number);
  return {};
}

/// Accepted only in the form that changes nothing: no text is read, so nothing looks for stops.
Result<> only_empty_array(const json::Value& value, std::string_view path, CanaryPayload&) {
  const json::Array* elements = value.as_array();
  return elements && elements->empty() ? Result<>() : wrong(path, "must be null or empty");
}

Result<> any_boolean(const json::Value& value, std::string_view path, CanaryPayload&) {
  return value.as_bool() ? Result<>() : wrong(path, "must be true or false");
}

constexpr Row kSampling[] = {
    {"temperature", sampling_number<&engine::SamplingParams::temperature>},
    {"top_p", sampling_number<&engine::SamplingParams::top_p>},
    {"top_k", read_top_k},
    {"min_p", sampling_number<&engine::SamplingParams::min_p>},
    {"presence_penalty", sampling_number<&engine::SamplingParams::presence_penalty>},
    {"frequency_penalty", sampling_number<&engine::SamplingParams::frequency_penalty>},
    {"repetition_penalty", sampling_number<&engine::SamplingParams::repetition_penalty>},
    {"seed", read_seed},
    {"extra_args", read_extra_args},
};

constexpr Row kStops[] = {
    {"max_tokens", stop_count<&engine::StopConditions::max_tokens, 1>},
    {"min_tokens", stop_count<&engine::StopConditions::min_tokens, 0>},
    {"stop", only_empty_array},
    {"stop_token_ids",
     [](const json::Value& value, std::string_view path, CanaryPayload& out) {
       out.stop.stop_token_ids.clear();
       Result<> read = read_ids(value, path, out.stop.stop_token_ids);
       std::ranges::sort(out.stop.stop_token_ids);
       return read;
     }},
    {"include_stop_str_in_output", any_boolean},
    {"ignore_eos",
     [](const json::Value& value, std::string_view path, CanaryPayload& out) {
       out.stop.ignore_eos = value.as_bool() && *value.as_bool();
       return any_boolean(value, path, out);
     }},
};

// The members without effect are what other frontends' payloads carry.
constexpr Row kPayload[] = {
    {"token_ids",
     [](const json::Value& value, std::string_view path, CanaryPayload& out) -> Result<> {
       if (Result<> read = read_ids(value, path, out.token_ids); !read) {
         return read;
       }
       return out.token_ids.empty() ? wrong(path, "must not be empty") : Result<>();
     }},
    {"sampling_options",
     [](const json::Value& value, std::string_view path, CanaryPayload& out) {
       return read_members(value, path, kSampling, out);
     }},
    {"stop_conditions", [](const json::Value& value, std::string_view path,
                           CanaryPayload& out) { return read_members(value, path, kStops, out); }},
    {"eos_token_ids", only_empty_array},
    {"annotations", only_empty_array},
    {"_HEALTH_CHECK", any_boolean},
};

}  // namespace

CanaryPayload::CanaryPayload() {
  sampling.unset = true;
  stop.max_tokens = 1;
}

Result<CanaryPayload> parse_canary_payload(std::string_view text) {
  const Result<json::Value> value = json::parse(text);
  if (!value || !value->as_object()) {
    return fail(ErrorCode::InvalidRequest,
                value ? std::string("not a JSON object")
                      : fmt::format("not a JSON object: {}", value.error().message));
  }
  CanaryPayload out;
  if (Result<> read = read_members(*value, {}, kPayload, out); !read) {
    return std::unexpected(std::move(read.error()));
  }
  if (out.stop.min_tokens > out.stop.max_tokens) {
    return wrong("stop_conditions.min_tokens", "must not exceed max_tokens");
  }
  return out;
}

}  // namespace fairlead::fleet
