#include "engine/vllm_http/discovery.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/json.hpp"
#include "engine/vllm_http/metrics_text.hpp"

namespace fairlead::engine::vllm_http {
namespace {

std::unexpected<Error> protocol_error(std::string message) {
  return fail(ErrorCode::EngineProtocol, std::move(message));
}

bool blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

std::string text_at(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  const std::string* text = value ? value->as_string() : nullptr;
  return text ? *text : std::string();
}

std::uint32_t count_at(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  const std::int64_t* number = value ? value->as_int() : nullptr;
  return number && *number > 0 && *number <= std::numeric_limits<std::uint32_t>::max()
             ? static_cast<std::uint32_t>(*number)
             : 0;
}

const json::Array* model_list(const json::Value& models) {
  const json::Value* data = models.find("data");
  return data ? data->as_array() : nullptr;
}

/// Models with a parent are LoRA adapters; the first of the others is the primary name and the rest
/// are aliases.
Result<> read_models(std::string_view text, EngineInfo& info) {
  const auto parsed = json::parse(text);
  const json::Array* list = parsed ? model_list(*parsed) : nullptr;
  if (!list) {
    return protocol_error("/v1/models: the answer is no list of models");
  }
  for (const json::Value& entry : *list) {
    std::string id = text_at(entry, "id");
    if (blank(id)) {
      return protocol_error("/v1/models: a model without a name");
    }
    if (!text_at(entry, "parent").empty()) {
      info.lora_adapters.push_back(std::move(id));
      info.lora_paths.push_back(text_at(entry, "root"));
    } else if (info.served_model_name.empty()) {
      info.model_id = text_at(entry, "root");
      info.max_model_len = count_at(entry, "max_model_len");
      info.served_model_name = std::move(id);
    } else {
      info.aliases.push_back(std::move(id));
    }
  }
  if (info.served_model_name.empty()) {
    return protocol_error("/v1/models: no model is served");
  }
  if (blank(info.model_id)) {
    info.model_id = info.served_model_name;
  }
  if (!info.lora_adapters.empty()) {
    info.capabilities.add(Capability::Lora);
  }
  return {};
}

void use_metrics(const MetricFacts& facts, EngineInfo& info) {
  if (facts.block_sizes.empty()) {
    return;
  }
  const auto first = *facts.block_sizes.begin();
  const std::size_t ranks = facts.block_sizes.size();
  if (facts.block_sizes.rbegin()->first - first.first + 1 != ranks) {
    info.warnings.emplace_back(
        "/metrics: the engine's data-parallel ranks have gaps; assuming one");
    return;
  }
  info.data_parallel_start = first.first;
  info.data_parallel_size = static_cast<std::uint32_t>(ranks);
  const bool agree = std::ranges::all_of(
      facts.block_sizes, [&](const auto& entry) { return entry.second == first.second; });
  if (agree) {
    info.kv_block_size = first.second;
  } else {
    info.warnings.emplace_back("/metrics: the engine's ranks differ in their KV block size");
  }
  info.total_kv_blocks = facts.blocks;
}

/// Why a source cannot be used; empty when it can, or is off.
std::string source_problem(std::string_view rank, const json::Value& source,
                           const EngineInfo& info) {
  const std::optional<std::uint32_t> number = parse_number(rank);
  if (!number || *number < info.data_parallel_start ||
      *number - info.data_parallel_start >= info.data_parallel_size) {
    return fmt::format("rank {} outside the engine's own {} to {}", rank, info.data_parallel_start,
                       info.data_parallel_start + info.data_parallel_size - 1);
  }
  if (const std::string publisher = text_at(source, "publisher"); publisher != "zmq") {
    return fmt::format("publisher `{}`", publisher);
  }
  if (blank(text_at(source, "endpoint"))) {
    return "a blank endpoint";
  }
  return {};
}

bool events_are_on(const json::Value& source) {
  const json::Value* enabled = source.find("enable_kv_cache_events");
  return enabled && enabled->as_bool() && *enabled->as_bool();
}

void read_sources(std::string_view text, EngineInfo& info) {
  const auto parsed = json::parse(text);
  const json::Object* ranks = parsed ? parsed->as_object() : nullptr;
  std::string problem = ranks ? "" : "something that is no map of ranks";
  for (const json::Member& member : ranks ? *ranks : json::Object()) {
    if (!events_are_on(member.value)) {
      continue;
    }
    problem = source_problem(member.key, member.value, info);
    if (!problem.empty()) {
      break;
    }
    std::string replay = text_at(member.value, "replay_endpoint");
    info.kv_event_sources.push_back(
        {.endpoint = text_at(member.value, "endpoint"),
         .replay_endpoint = blank(replay) ? std::string() : std::move(replay),
         .topic = text_at(member.value, "topic"),
         .data_parallel_rank = *parse_number(member.key),
         .buffer_steps = count_at(member.value, "buffer_steps")});
  }
  if (problem.empty() && !info.kv_event_sources.empty() &&
      info.kv_event_sources.size() < info.data_parallel_size) {
    problem = fmt::format("{} sources for {} ranks", info.kv_event_sources.size(),
                          info.data_parallel_size);
  }
  if (!problem.empty()) {
    info.kv_event_sources.clear();
    info.warnings.push_back(
        fmt::format("the engine's KV events are not used: /kv_event_sources reports {}", problem));
  }
  std::ranges::sort(info.kv_event_sources, {}, &KvEventSource::data_parallel_rank);
}

}  // namespace

Dialect dialect_of_answers(const DiscoveryAnswers& answers) {
  const auto version = json::parse(answers.version);
  const auto models = json::parse(answers.models);
  const json::Array* list = models ? model_list(*models) : nullptr;
  const bool rust =
      (version && !text_at(*version, "rust_frontend_version").empty()) ||
      (list && !list->empty() && text_at(list->front(), "owned_by") == "vllm-frontend-rs");
  Dialect out;
  out.frontend = rust ? Dialect::Frontend::Rust : Dialect::Frontend::Python;
  return out;
}

Result<EngineInfo> read_discovery(const DiscoveryAnswers& answers, const Dialect& dialect) {
  EngineInfo info;
  info.dialect = dialect_text(dialect);
  if (const auto version = json::parse(answers.version)) {
    info.engine_version = text_at(*version, "version");
  }
  if (Result<> read = read_models(answers.models, info); !read) {
    return std::unexpected(std::move(read.error()));
  }
  const MetricFacts facts = read_metrics(answers.metrics);
  use_metrics(facts, info);
  info.instance_id = facts.started;
  if (!answers.kv_event_sources.empty()) {
    read_sources(answers.kv_event_sources, info);
  }
  info.capabilities.add(Capability::PromptLogprobs);
  if (dialect.args_key != Dialect::ArgsKey::None) {
    info.capabilities.add(Capability::VllmXargs);
  }
  if (dialect.logprob_token_ids) {
    info.capabilities.add(Capability::LogprobTokenIds);
  }
  if (dialect.bad_words_token_ids) {
    info.capabilities.add(Capability::BadWordsTokenIds);
  }
  return info;
}

}  // namespace fairlead::engine::vllm_http
