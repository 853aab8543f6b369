#include <fmt/format.h>

#include <array>
#include <concepts>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>

#include "base/json.hpp"
#include "mock/options.hpp"

namespace fairlead::mock {
namespace {

using json::Value;

constexpr std::string_view kFlag = "--extra-engine-args";

Result<> wrong(std::string_view key, std::string_view why) {
  return fail(ErrorCode::InvalidRequest, fmt::format("{}: {}", key, why), std::string(kFlag));
}

template <std::unsigned_integral T>
Result<> set(std::string_view key, const Value& value, T& out) {
  const std::int64_t* number = value.as_int();
  if (!number || *number < 0 ||
      static_cast<std::uint64_t>(*number) > std::numeric_limits<T>::max()) {
    return wrong(key, "must be a non-negative integer");
  }
  out = static_cast<T>(*number);
  return {};
}

Result<> set(std::string_view key, const Value& value, double& out) {
  if (!value.number(out) || !(out >= 0)) {
    return wrong(key, "must be a non-negative number");
  }
  return {};
}

Result<> set(std::string_view key, const Value& value, bool& out) {
  const bool* flag = value.as_bool();
  if (!flag) {
    return wrong(key, "must be true or false");
  }
  out = *flag;
  return {};
}

Result<> set_port(std::string_view key, const Value& value, std::string& out) {
  std::uint16_t port = 0;
  if (auto result = set(key, value, port); !result) {
    return result;
  }
  out = fmt::format("0.0.0.0:{}", port);
  return {};
}

Result<> set_text(std::string_view key, const Value& value,
                  const std::function<Result<>(const std::string&)>& use) {
  const std::string* text = value.as_string();
  if (!text) {
    return wrong(key, "must be a string");
  }
  return use(*text);
}

Result<> only(std::string_view key, const Value& value, std::string_view wanted,
              std::string_view why) {
  return set_text(key, value, [&](const std::string& text) {
    return text == wanted ? Result<>() : wrong(key, why);
  });
}

Result<> set_preemption(std::string_view key, const Value& value, MockOptions& options) {
  return set_text(key, value, [&](const std::string& text) -> Result<> {
    if (text != "lifo" && text != "fifo") {
      return wrong(key, "must be lifo or fifo");
    }
    options.scheduler.preemption = text == "lifo" ? PreemptionMode::Newest : PreemptionMode::Oldest;
    return {};
  });
}

Result<> set_reasoning(std::string_view key, const Value& value, MockOptions& options) {
  const json::Object* object = value.as_object();
  if (!object) {
    return wrong(key, "must be an object");
  }
  ReasoningOptions reasoning;
  bool start = false;
  bool end = false;
  for (const json::Member& member : *object) {
    Result<> result;
    if (member.key == "start_thinking_token_id") {
      result = set(member.key, member.value, reasoning.start_token);
      start = true;
    } else if (member.key == "end_thinking_token_id") {
      result = set(member.key, member.value, reasoning.end_token);
      end = true;
    } else if (member.key == "thinking_ratio") {
      result = set(member.key, member.value, reasoning.ratio);
    } else {
      result = wrong(key, fmt::format("unknown key {}", member.key));
    }
    if (!result) {
      return result;
    }
  }
  if (!start || !end || reasoning.ratio > 1) {
    return wrong(key,
                 "needs start_thinking_token_id, end_thinking_token_id and a thinking_ratio "
                 "of 0 to 1");
  }
  options.reasoning = reasoning;
  return {};
}

// Options of Dynamo's mockers that describe what is not simulated here.
Result<> refuse(std::string_view key, const Value& value, MockOptions&) {
  const bool* flag = value.as_bool();
  return flag && !*flag ? Result<>() : wrong(key, "is not simulated");
}

Result<> ignore(std::string_view, const Value&, MockOptions&) { return {}; }

using Setter = Result<> (*)(std::string_view, const Value&, MockOptions&);

struct Row {
  std::string_view key;
  Setter setter;
};

// NOLINTBEGIN(readability-identifier-length)
constexpr std::array kRows = {
    Row{"engine_type", [](std::string_view k, const Value& v,
                          MockOptions&) { return only(k, v, "vllm", "must be vllm"); }},
    Row{"worker_type",
        [](std::string_view k, const Value& v, MockOptions&) {
          return only(k, v, "aggregated", "must be aggregated; --role sets the role");
        }},
    Row{"num_gpu_blocks", [](std::string_view k, const Value& v,
                             MockOptions& o) { return set(k, v, o.num_gpu_blocks); }},
    Row{"block_size",
        [](std::string_view k, const Value& v, MockOptions& o) { return set(k, v, o.block_size); }},
    Row{"max_num_seqs", [](std::string_view k, const Value& v,
                           MockOptions& o) { return set(k, v, o.scheduler.max_running); }},
    Row{"max_num_batched_tokens",
        [](std::string_view k, const Value& v, MockOptions& o) {
          return set(k, v, o.scheduler.max_batched_tokens);
        }},
    Row{"max_model_len", [](std::string_view k, const Value& v,
                            MockOptions& o) { return set(k, v, o.max_model_len); }},
    Row{"enable_prefix_caching", [](std::string_view k, const Value& v,
                                    MockOptions& o) { return set(k, v, o.enable_prefix_caching); }},
    Row{"enable_chunked_prefill",
        [](std::string_view k, const Value& v, MockOptions& o) {
          return set(k, v, o.scheduler.chunked_prefill);
        }},
    Row{"speedup_ratio", [](std::string_view k, const Value& v,
                            MockOptions& o) { return set(k, v, o.speedup_ratio); }},
    Row{"decode_speedup_ratio", [](std::string_view k, const Value& v,
                                   MockOptions& o) { return set(k, v, o.decode_speedup_ratio); }},
    Row{"dp_size", [](std::string_view k, const Value& v,
                      MockOptions& o) { return set(k, v, o.data_parallel_size); }},
    Row{"startup_time", [](std::string_view k, const Value& v,
                           MockOptions& o) { return set(k, v, o.startup_time_s); }},
    Row{"kv_bytes_per_token", [](std::string_view k, const Value& v,
                                 MockOptions& o) { return set(k, v, o.kv_bytes_per_token); }},
    Row{"kv_transfer_bandwidth", [](std::string_view k, const Value& v,
                                    MockOptions& o) { return set(k, v, o.kv_transfer_bandwidth); }},
    Row{"kv_transfer_timing_mode",
        [](std::string_view k, const Value& v, MockOptions&) {
          return only(k, v, "full_prompt", "only full_prompt is simulated");
        }},
    Row{"preemption_mode", set_preemption},
    Row{"reasoning", set_reasoning},
    Row{"zmq_kv_events_port", [](std::string_view k, const Value& v,
                                 MockOptions& o) { return set_port(k, v, o.kv_events); }},
    Row{"zmq_replay_port", [](std::string_view k, const Value& v,
                              MockOptions& o) { return set_port(k, v, o.kv_replay); }},
    Row{"bootstrap_port", ignore},
    Row{"handoff_session_timeout_ms", ignore},
    Row{"sglang", ignore},
    Row{"planner_profile_data", refuse},
    Row{"num_g2_blocks", refuse},
    Row{"num_g3_blocks", refuse},
    Row{"enable_g4_storage", refuse},
};
// NOLINTEND(readability-identifier-length)

Result<> apply(MockOptions& options, const json::Member& member) {
  if (member.value.is_null()) {
    return {};
  }
  for (const Row& row : kRows) {
    if (row.key == member.key) {
      return row.setter(row.key, member.value, options);
    }
  }
  return wrong(member.key, "unknown key");
}

}  // namespace

Result<> apply_extra_engine_args(MockOptions& options, std::string_view text_or_path) {
  std::string text(text_or_path);
  if (!text_or_path.starts_with('{')) {
    std::ifstream file(text);
    if (!file) {
      return fail(ErrorCode::InvalidRequest, fmt::format("cannot read {}", text),
                  std::string(kFlag));
    }
    std::ostringstream content;
    content << file.rdbuf();
    text = content.str();
  }
  const auto document = json::parse(text);
  if (!document) {
    return fail(ErrorCode::InvalidRequest, document.error().message, std::string(kFlag));
  }
  const json::Object* object = document->as_object();
  if (!object) {
    return fail(ErrorCode::InvalidRequest, "not a JSON object", std::string(kFlag));
  }
  for (const json::Member& member : *object) {
    if (auto result = apply(options, member); !result) {
      return result;
    }
  }
  return {};
}

}  // namespace fairlead::mock
