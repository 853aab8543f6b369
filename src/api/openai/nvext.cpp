#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "api/openai/request_parser.hpp"
#include "base/utf8.hpp"

namespace fairlead::api::openai {
namespace {

/// Marks a rank as not given.
constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();

template <class T>
std::optional<T> parse_integer(std::string_view text) {
  T value = 0;
  const auto* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != end) {
    return std::nullopt;
  }
  return value;
}

/// The first of the names that the request carries.
std::optional<std::string_view> find_header(const net::http::HeaderList& headers,
                                            std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (const auto value = headers.find(name)) {
      return value;
    }
  }
  return std::nullopt;
}

}  // namespace

void RequestParser::read_nvext(std::string_view name) {
  backend_instance_id_.reset();
  decode_worker_id_.reset();
  body_.prefill_worker_id.reset();
  body_.prefill_rank.reset();
  body_.data_parallel_rank.reset();
  body_.annotate_request_id = false;
  body_.nvext_fields = {};
  body_.constraints = {};
  nvext_salt_.clear();
  if (take_null() || !expect(name, JsonType::Object)) {
    return;
  }
  reader_.object([this](std::string_view key) { read_nvext_member(key); });
}

void RequestParser::read_nvext_member(std::string_view key) {
  constexpr std::int64_t kMaxId = std::numeric_limits<std::int64_t>::max();
  const std::string path = fmt::format("nvext.{}", key.substr(0, 64));
  if (key == "backend_instance_id") {
    backend_instance_id_ = take_integer(path, 0, kMaxId);
  } else if (key == "decode_worker_id") {
    decode_worker_id_ = take_integer(path, 0, kMaxId);
  } else if (key == "prefill_worker_id") {
    body_.prefill_worker_id = take_integer(path, 0, kMaxId);
  } else if (key == "prefill_dp_rank") {
    body_.prefill_rank = take_integer(path, 0, kNoRank);
  } else if (key == "dp_rank") {
    body_.data_parallel_rank = take_integer(path, 0, kNoRank);
  } else if (key == "cache_salt") {
    nvext_salt_ = take_string(path).value_or(std::string());
    if (nvext_salt_.size() > kMaxSaltBytes) {
      invalid(path, fmt::format("`{}` must be at most {} bytes", path, kMaxSaltBytes));
    }
  } else if (key == "annotations") {
    read_annotations(path);
  } else if (key == "agent_hints") {
    read_agent_hints(path);
  } else if (key == "request_timestamp_ms") {
    reader_.skip();
  } else if (key == "greed_sampling" || key == "use_raw_prompt") {
    only_false(path);
  } else if (key == "extra_fields") {
    read_extra_fields(path);
  } else if (key == "routing_constraints") {
    read_constraints(path);
  } else if (key == "token_data" || key == "router") {
    only_empty(path);
  } else if (key == "max_thinking_tokens" || key == "metadata_upload") {
    only_null(path);
  } else {
    unsupported(path, "there is no such key");
  }
}

// Hints for scheduling: the output is the same without, so unknown ones are skipped.
void RequestParser::read_agent_hints(std::string_view path) {
  constexpr std::int64_t kMax = std::numeric_limits<std::uint32_t>::max();
  body_.queue = {};
  body_.expected_output.reset();
  if (take_null() || !expect(path, JsonType::Object)) {
    return;
  }
  reader_.object([&](std::string_view key) {
    const std::string member = fmt::format("{}.{}", path, key.substr(0, 64));
    if (key == "priority") {
      body_.queue.priority =
          static_cast<std::int32_t>(take_integer(member, std::numeric_limits<std::int32_t>::min(),
                                                 std::numeric_limits<std::int32_t>::max())
                                        .value_or(0));
    } else if (key == "strict_priority") {
      body_.queue.strict_priority =
          static_cast<std::uint32_t>(take_integer(member, 0, kMax).value_or(0));
    } else if (key == "osl") {
      body_.expected_output = take_integer(member, 0, kMax);
    } else {
      reader_.skip();
    }
  });
}

void RequestParser::read_constraints(std::string_view path) {
  body_.constraints = {};
  if (take_null() || !expect(path, JsonType::Object)) {
    return;
  }
  reader_.object([&](std::string_view key) {
    const std::string member = fmt::format("{}.{}", path, key.substr(0, 64));
    if (key == "required_taints") {
      read_required_taints(member);
    } else if (key == "preferred_taints") {
      read_preferred_taints(member);
    } else {
      unsupported(member, "there is no such key");
    }
  });
}

// A set: what comes twice counts once.
void RequestParser::read_required_taints(std::string_view path) {
  std::vector<std::string>& taints = body_.constraints.required_taints;
  taints.clear();
  if (take_null() || !expect(path, JsonType::Array)) {
    return;
  }
  reader_.array([&](std::size_t) {
    if (!expect(path, JsonType::String)) {
      return;
    }
    const std::string_view taint = reader_.string();
    if (std::ranges::find(taints, taint) == taints.end() &&
        check_taint(path, taint, taints.size())) {
      taints.emplace_back(taint);
    }
  });
}

// Of a taint that comes twice the last weight counts.
void RequestParser::read_preferred_taints(std::string_view path) {
  constexpr double kMost = std::numeric_limits<float>::max();
  std::vector<routing::PreferredTaint>& taints = body_.constraints.preferred_taints;
  taints.clear();
  if (take_null() || !expect(path, JsonType::Object)) {
    return;
  }
  reader_.object([&](std::string_view key) {
    auto found = std::ranges::find(taints, key, &routing::PreferredTaint::name);
    if (found == taints.end()) {
      if (!check_taint(path, key, taints.size())) {
        return;
      }
      taints.push_back({.name = std::string(key)});
      found = taints.end() - 1;
    }
    if (expect(path, JsonType::Number)) {
      found->weight = take_number(path, -kMost, kMost).value_or(0);
    }
  });
}

bool RequestParser::check_taint(std::string_view path, std::string_view taint, std::size_t before) {
  if (taint.empty() || taint.size() > kMaxTaintBytes) {
    invalid(path, fmt::format("`{}` must hold texts of 1 to {} bytes", path, kMaxTaintBytes));
    return false;
  }
  if (before >= kMaxTaints) {
    invalid(path, fmt::format("`{}` must hold at most {} taints", path, kMaxTaints));
    return false;
  }
  return true;
}

void RequestParser::read_annotations(std::string_view path) {
  if (take_null() || !expect(path, JsonType::Array)) {
    return;
  }
  reader_.array([&](std::size_t) {
    if (!expect(path, JsonType::String)) {
      return;
    }
    const std::string_view annotation = reader_.string();
    if (annotation == "request_id") {
      body_.annotate_request_id = true;
    } else {
      unsupported(path, fmt::format("annotation `{}`", annotation.substr(0, 64)));
    }
  });
}

// Names of fields that there are not select nothing.
void RequestParser::read_extra_fields(std::string_view path) {
  body_.nvext_fields = {};
  if (take_null() || !expect(path, JsonType::Array)) {
    return;
  }
  reader_.array([&](std::size_t) {
    if (!expect(path, JsonType::String)) {
      return;
    }
    const std::string_view field = reader_.string();
    body_.nvext_fields.completion_token_ids |= field == "completion_token_ids";
    body_.nvext_fields.prompt_logprobs |= field == "prompt_logprobs";
    body_.nvext_fields.stop_reason |= field == "stop_reason";
  });
}

Result<> apply_headers(const net::http::HeaderList& headers, const ApiOptions& options,
                       RequestBody& body) {
  if (const auto tenant = headers.find("x-tenant-id"); tenant && !tenant->empty()) {
    if (tenant->size() > kMaxSaltBytes || !utf8::valid(*tenant)) {
      return fail(
          ErrorCode::InvalidRequest,
          fmt::format("The header `x-tenant-id` must be at most {} bytes of UTF-8", kMaxSaltBytes),
          "x-tenant-id");
    }
    body.cache_salt = *tenant;
  }
  if (options.disable_nvext) {
    return {};
  }
  if (const auto text =
          find_header(headers, {"x-dynamo-worker-instance-id", "x-worker-instance-id"})) {
    if (const auto id = parse_integer<std::uint64_t>(*text)) {
      body.worker_id = id;
    }
  }
  if (const auto text =
          find_header(headers, {"x-dynamo-prefill-instance-id", "x-prefill-instance-id"})) {
    if (const auto id = parse_integer<std::uint64_t>(*text)) {
      body.prefill_worker_id = id;
    }
  }
  if (const auto text =
          find_header(headers, {"x-dynamo-dp-rank", "x-dp-rank", "x-data-parallel-rank"})) {
    if (const auto rank = parse_integer<std::uint32_t>(*text); rank && *rank != kNoRank) {
      body.data_parallel_rank = rank;
    }
  }
  if (const auto text = headers.find("x-dynamo-request-priority")) {
    body.queue.priority = parse_integer<std::int32_t>(*text).value_or(body.queue.priority);
  }
  if (const auto text = headers.find("x-dynamo-request-strict-priority")) {
    body.queue.strict_priority =
        parse_integer<std::uint32_t>(*text).value_or(body.queue.strict_priority);
  }
  if (const auto name = headers.find("x-dynamo-meta-policy-class")) {
    body.queue.policy_class = *name;
  }
  if (const auto session = headers.find("x-dynamo-session-id")) {
    body.routing_session = *session;
  }
  return {};
}

}  // namespace fairlead::api::openai
