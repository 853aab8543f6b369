#include "api/openai/logprobs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "base/utf8.hpp"

namespace fairlead::api::openai {
namespace {

bool has_repeats(const std::vector<engine::Candidate>& candidates) {
  std::vector<engine::TokenId> ids(candidates.size());
  std::ranges::transform(candidates, ids.begin(), &engine::Candidate::id);
  std::ranges::sort(ids);
  return std::ranges::adjacent_find(ids) != ids.end();
}

/// Calls `visit` for the token itself and then for its alternatives.
template <class Visit>
void each_alternative(engine::TokenId id, const engine::TokenLogprob& entry, std::uint32_t limit,
                      Visit&& visit) {
  if (limit == 0) {
    return;
  }
  visit(engine::Candidate{id, entry.logprob, entry.rank});
  const bool repeats = has_repeats(entry.candidates);
  std::unordered_set<engine::TokenId> seen;
  std::uint32_t count = 1;
  for (const engine::Candidate& candidate : entry.candidates) {
    if (count >= limit) {
      return;
    }
    if (candidate.id == id || (repeats && !seen.insert(candidate.id).second)) {
      continue;
    }
    visit(candidate);
    ++count;
  }
}

void append_placeholder(std::string& out, engine::TokenId id) {
  fmt::format_to(std::back_inserter(out), "token_id:{}", id);
}

void append_bytes(std::string& out, std::string_view bytes) {
  char separator = '[';
  for (const char byte : bytes) {
    out += separator;
    json::append_number(out, std::uint64_t{static_cast<unsigned char>(byte)});
    separator = ',';
  }
  out += bytes.empty() ? "null" : "]";
}

}  // namespace

void LogprobWriter::token(std::string& out, engine::TokenId id) const {
  if (tokens_as_ids_) {
    out += '"';
    append_placeholder(out, id);
    out += '"';
    return;
  }
  const std::string_view bytes = tokenizer_.token_bytes(id);
  if (utf8::valid(bytes)) {
    json::append_string(out, bytes);
  } else {
    json::append_string(out, utf8::lossy(bytes));
  }
}

// Up to and without the closing brace.
void LogprobWriter::token_and_logprob(std::string& out, engine::TokenId id, float logprob) const {
  out += "{\"token\":";
  token(out, id);
  out += ",\"logprob\":";
  json::append_number(out, double{logprob});
  out += ",\"bytes\":";
  if (tokens_as_ids_) {
    std::string text;
    append_placeholder(text, id);
    append_bytes(out, text);
  } else {
    append_bytes(out, tokenizer_.token_bytes(id));
  }
}

void LogprobWriter::chat_entry(std::string& out, engine::TokenId id,
                               const engine::TokenLogprob& entry, std::uint32_t limit) const {
  token_and_logprob(out, id, entry.logprob);
  out += ",\"token_id\":";
  json::append_number(out, std::uint64_t{id});
  out += ",\"top_logprobs\":[";
  bool first = true;
  each_alternative(id, entry, entry.missing ? 0 : limit, [&](const engine::Candidate& candidate) {
    if (!std::exchange(first, false)) {
      out += ',';
    }
    token_and_logprob(out, candidate.id, candidate.logprob);
    out += '}';
  });
  out += "]}";
}

void LogprobWriter::text_map(std::string& out, engine::TokenId id,
                             const engine::TokenLogprob& entry, std::uint32_t limit) const {
  out += '{';
  std::vector<std::pair<std::size_t, std::size_t>> keys;  // where they are in `out`, and how long
  each_alternative(id, entry, entry.missing ? 0 : limit, [&](const engine::Candidate& candidate) {
    const std::size_t before = out.size();
    if (!keys.empty()) {
      out += ',';
    }
    const std::size_t start = out.size();
    token(out, candidate.id);
    const std::string_view key = std::string_view(out).substr(start);
    const bool taken = std::ranges::any_of(keys, [&](const auto& other) {
      return std::string_view(out).substr(other.first, other.second) == key;
    });
    if (taken) {
      out.resize(before);
      return;
    }
    keys.emplace_back(start, key.size());
    out += ':';
    json::append_number(out, double{candidate.logprob});
  });
  out += '}';
}

void LogprobWriter::id_map(std::string& out, engine::TokenId id, const engine::TokenLogprob& entry,
                           std::uint32_t limit) const {
  char separator = '{';
  each_alternative(id, entry, limit, [&](const engine::Candidate& candidate) {
    fmt::format_to(std::back_inserter(out), "{}\"{}\":{{\"logprob\":", separator, candidate.id);
    json::append_number(out, double{candidate.logprob});
    out += ",\"rank\":";
    if (candidate.rank == 0) {
      out += "null";
    } else {
      json::append_number(out, std::uint64_t{candidate.rank});
    }
    out += ",\"decoded_token\":";
    token(out, candidate.id);
    out += '}';
    separator = ',';
  });
  out += '}';
}

}  // namespace fairlead::api::openai
