#include "engine/vllm_http/logprobs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "engine/vllm_http/answer_json.hpp"

namespace fairlead::engine::vllm_http {
namespace {

std::unexpected<Error> protocol_error(std::string message) {
  return fail(ErrorCode::EngineProtocol, "generate: " + std::move(message));
}

std::optional<TokenId> to_id(const json::Value* value) {
  const std::int64_t* id = value ? value->as_int() : nullptr;
  if (!id || *id < 0 || *id > std::numeric_limits<TokenId>::max()) {
    return std::nullopt;
  }
  return static_cast<TokenId>(*id);
}

std::optional<TokenId> parse_id(std::string_view digits) {
  TokenId id = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  return read.ec == std::errc{} && read.ptr == digits.data() + digits.size() ? std::optional(id)
                                                                             : std::nullopt;
}

/// The id of an entry of either form; nothing when it has none.
std::optional<TokenId> entry_id(const json::Value& entry) {
  constexpr std::string_view kPrefix = "token_id:";
  if (const json::Value* id = entry.find("token_id")) {
    return to_id(id);
  }
  const json::Value* token = entry.find("token");
  const std::string* text = token ? token->as_string() : nullptr;
  return text && text->starts_with(kPrefix)
             ? parse_id(std::string_view(*text).substr(kPrefix.size()))
             : std::nullopt;
}

/// The finite value of an entry.
std::optional<float> entry_logprob(const json::Value& entry) {
  const json::Value* value = entry.find("logprob");
  double number = 0;
  if (!value || !value->number(number) || !std::isfinite(static_cast<float>(number))) {
    return std::nullopt;  // as is what no float can hold
  }
  return std::max(static_cast<float>(number), kLowestLogprob);
}

std::uint32_t entry_rank(const json::Value& entry) { return to_id(entry.find("rank")).value_or(0); }

void make_missing(TokenLogprob& out) {
  out.missing = true;
  out.logprob = kLowestLogprob;
  out.rank = 0;
  out.candidates.clear();
}

/// Fills in the token's own values. vLLM writes the floor without a rank where it has none.
void fill_own(const json::Value& entry, TokenLogprob& out) {
  const std::optional<float> logprob = entry_logprob(entry);
  const std::uint32_t rank = entry_rank(entry);
  if (!logprob || (*logprob == kLowestLogprob && rank == 0)) {
    make_missing(out);
    return;
  }
  out.missing = false;
  out.logprob = *logprob;
  out.rank = rank;
}

void add_candidate(std::optional<TokenId> id, const json::Value& entry, TokenLogprob& out) {
  const std::optional<float> logprob = entry_logprob(entry);
  if (id && logprob) {
    out.candidates.push_back({*id, *logprob, entry_rank(entry)});
  }
}

/// The `count` most likely ones: lists lead with the token itself, however unlikely.
void keep_likeliest(std::uint32_t count, std::vector<Candidate>& candidates) {
  if (count == kAllCandidates) {
    return;
  }
  std::erase_if(candidates, [&](const Candidate& candidate) { return candidate.rank > count; });
  std::ranges::sort(candidates, [](const Candidate& a, const Candidate& b) {
    return a.logprob != b.logprob ? a.logprob > b.logprob : a.rank < b.rank;
  });
  if (candidates.size() > count) {
    candidates.resize(count);
  }
}

/// The requested ones in their order.
void keep_requested(std::span<const TokenId> ids, std::vector<Candidate>& candidates) {
  std::vector<Candidate> found;
  found.reserve(ids.size());
  for (const TokenId id : ids) {
    const auto place = std::ranges::find(candidates, id, &Candidate::id);
    if (place != candidates.end()) {
      found.push_back({place->id, place->logprob, 0});
    }
  }
  candidates = std::move(found);
}

void read_entry(const json::Value& entry, TokenId id, const OutputOptions& output,
                TokenLogprob& out) {
  out.candidates.clear();
  const bool has_id = entry.find("token_id") || entry.find("token");
  if (!entry.as_object() || (has_id && entry_id(entry) != id)) {
    make_missing(out);
    return;
  }
  fill_own(entry, out);
  const json::Value* top = entry.find("top_logprobs");
  const json::Array* list = top ? top->as_array() : nullptr;
  if (out.missing || !list) {
    return;
  }
  for (const json::Value& candidate : *list) {
    add_candidate(entry_id(candidate), candidate, out);
  }
  if (output.logprob_token_ids.empty()) {
    keep_likeliest(output.logprobs.value_or(0), out.candidates);
  } else {
    keep_requested(output.logprob_token_ids, out.candidates);
    if (std::ranges::count(output.logprob_token_ids, id) > 0) {
      out.rank = 0;  // its place in the list, on some servers
    }
  }
}

void read_position(const json::Value& map, TokenId own, std::uint32_t count, TokenLogprob& out) {
  out.candidates.clear();
  const json::Object* entries = map.as_object();
  const json::Value* entry = entries ? entries->find(fmt::format_int(own).c_str()) : nullptr;
  if (!entry) {
    make_missing(out);
    return;
  }
  fill_own(*entry, out);
  if (out.missing) {
    return;
  }
  for (const json::Member& member : *entries) {
    add_candidate(parse_id(member.key), member.value, out);
  }
  keep_likeliest(count, out.candidates);
}

}  // namespace

Result<> read_token_logprobs(const json::Value* logprobs, std::span<const TokenId> ids,
                             std::size_t from, const OutputOptions& output,
                             std::vector<TokenLogprob>& out) {
  const json::Value* content = logprobs ? logprobs->find("content") : nullptr;
  const json::Array* entries = content ? content->as_array() : nullptr;
  if (!entries) {
    return protocol_error(fmt::format("no log-probabilities for {} tokens", ids.size()));
  }
  if (entries->size() != ids.size()) {
    return protocol_error(
        fmt::format("{} log-probabilities for {} tokens", entries->size(), ids.size()));
  }
  out.resize(std::max(out.size(), ids.size() - from));
  for (std::size_t i = from; i < ids.size(); ++i) {
    read_entry((*entries)[i], ids[i], output, out[i - from]);
  }
  return {};
}

Result<> read_answer_logprobs(std::optional<ArrayText> entries, std::span<const TokenId> ids,
                              const OutputOptions& output, std::vector<TokenLogprob>& out) {
  if (!entries) {
    return protocol_error(fmt::format("no log-probabilities for {} tokens", ids.size()));
  }
  if (entries->size() != ids.size()) {
    return protocol_error(
        fmt::format("{} log-probabilities for {} tokens", entries->size(), ids.size()));
  }
  out.resize(std::max(out.size(), ids.size()));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Result<json::Value> entry = parse_answer(entries->next());
    if (!entry) {
      return protocol_error("the answer is not JSON");
    }
    read_entry(*entry, ids[i], output, out[i]);
  }
  return {};
}

Result<> read_prompt_logprobs(std::optional<ArrayText> entries, std::span<const TokenId> prompt,
                              std::uint32_t count, std::vector<TokenLogprob>& out) {
  if (!entries) {
    return protocol_error("no log-probabilities of the prompt");
  }
  if (entries->size() != prompt.size()) {
    return protocol_error(
        fmt::format("{} log-probabilities for {} prompt tokens", entries->size(), prompt.size()));
  }
  out.resize(std::max(out.size(), prompt.size()));
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    const Result<json::Value> entry = parse_answer(entries->next());
    if (!entry) {
      return protocol_error("the answer is not JSON");
    }
    if (i == 0 && entry->is_null()) {
      out[0] = TokenLogprob{};
    } else {
      read_position(*entry, prompt[i], count, out[i]);
    }
  }
  return {};
}

}  // namespace fairlead::engine::vllm_http
