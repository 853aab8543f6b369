#include "mock/reply.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <utility>

#include "base/json.hpp"

namespace fairlead::mock {
namespace {

Result<std::vector<TokenId>> parse_list(const std::string& line) {
  auto value = json::parse(line);
  if (!value) {
    return std::unexpected(value.error());
  }
  const json::Array* array = value->as_array();
  if (!array) {
    return fail(ErrorCode::InvalidRequest, "not a list of token ids");
  }
  std::vector<TokenId> list;
  for (const json::Value& item : *array) {
    const std::int64_t* id = item.as_int();
    if (!id || *id < 0 || *id > std::numeric_limits<TokenId>::max()) {
      return fail(ErrorCode::InvalidRequest, "not a list of token ids");
    }
    list.push_back(static_cast<TokenId>(*id));
  }
  return list;
}

}  // namespace

Reply::Reply(TokenFormula formula, std::uint64_t vocabulary)
    : mode_(ReplyMode::Formula), formula_(formula), vocabulary_(vocabulary) {}

Reply::Reply(TokenChain chain, std::uint64_t vocabulary)
    : mode_(ReplyMode::Chain), chain_(chain), vocabulary_(vocabulary) {}

Reply Reply::echo() { return Reply(); }

Reply Reply::script(std::shared_ptr<const std::vector<TokenId>> list) {
  Reply reply;
  reply.mode_ = ReplyMode::Script;
  reply.list_ = std::move(list);
  return reply;
}

std::optional<std::uint64_t> Reply::length(std::span<const TokenId> prompt) const {
  switch (mode_) {
    case ReplyMode::Formula:
    case ReplyMode::Chain:
    case ReplyMode::Forced: return std::nullopt;
    case ReplyMode::Echo: return prompt.size();
    case ReplyMode::Script: return list_->size();
  }
  return std::nullopt;
}

TokenId Reply::pick(std::uint64_t position, std::span<const TokenId> prompt,
                    TokenId previous) const {
  if (mode_ == ReplyMode::Echo) {
    return prompt[position];
  }
  if (mode_ == ReplyMode::Script) {
    return (*list_)[position];
  }
  if (mode_ == ReplyMode::Forced) {
    return forced_;
  }
  const TokenId token = mode_ == ReplyMode::Chain ? chain_.at(prompt.size() + position, previous)
                                                  : formula_.at(position);
  return vocabulary_ == 0 || token < vocabulary_ ? token
                                                 : static_cast<TokenId>(token % vocabulary_);
}

std::optional<TokenId> Reply::at(std::uint64_t position, std::span<const TokenId> prompt,
                                 TokenId previous) const {
  if (put_ && position == put_->first) {
    return put_->second;
  }
  if (position < reasoning_tokens_) {
    if (position == 0) {
      return reasoning_.start_token;
    }
    if (position + 1 == reasoning_tokens_) {
      return reasoning_.end_token;
    }
  }
  const auto end = length(prompt);
  if (end && position >= *end) {
    return std::nullopt;
  }
  const TokenId token = pick(position, prompt, previous);
  return allowed_ ? (*allowed_)[token % allowed_->size()] : token;
}

std::optional<TokenId> Reply::repeated_at(std::uint64_t position, std::span<const TokenId> prompt,
                                          TokenId previous) const {
  const auto end = length(prompt);
  if (end && *end == 0) {
    return std::nullopt;
  }
  return at(end && position >= reasoning_tokens_ ? position % *end : position, prompt, previous);
}

void Reply::add_reasoning(const ReasoningOptions& options, std::uint64_t longest) {
  const auto wanted = static_cast<std::uint64_t>(static_cast<double>(longest) *
                                                 std::clamp(options.ratio, 0.0, 1.0));
  reasoning_ = options;
  reasoning_tokens_ =
      wanted == 0 || longest < 2 ? 0 : std::clamp<std::uint64_t>(wanted, 2, longest);
}

void Reply::force(TokenId token) {
  mode_ = ReplyMode::Forced;
  forced_ = token;
  allowed_.reset();
  reasoning_tokens_ = 0;
}

void Reply::put(std::uint64_t position, TokenId token) { put_.emplace(position, token); }

void Reply::restrict_to(std::vector<TokenId> allowed) {
  if (!allowed.empty()) {
    allowed_ = std::make_shared<const std::vector<TokenId>>(std::move(allowed));
  }
}

Result<ReplySource> ReplySource::parse(std::string_view text, std::uint64_t seed,
                                       std::uint64_t vocabulary) {
  constexpr std::string_view kScript = "script:";
  ReplySource source(seed, vocabulary);
  if (text == "formula") {
    return source;
  }
  if (text == "chain") {
    source.mode_ = ReplyMode::Chain;
    return source;
  }
  if (text == "echo") {
    source.mode_ = ReplyMode::Echo;
    return source;
  }
  if (!text.starts_with(kScript)) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("`{}` is not formula, chain, echo or script:FILE", text), "--reply");
  }
  source.mode_ = ReplyMode::Script;
  const std::string path(text.substr(kScript.size()));
  std::ifstream file(path);
  if (!file) {
    return fail(ErrorCode::InvalidRequest, fmt::format("cannot read {}", path), "--reply");
  }
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) {
      continue;
    }
    auto list = parse_list(line);
    if (!list) {
      return fail(ErrorCode::InvalidRequest,
                  fmt::format("{}:{}: {}", path, number, list.error().message), "--reply");
    }
    source.lists_.push_back(std::make_shared<const std::vector<TokenId>>(std::move(*list)));
  }
  if (source.lists_.empty()) {
    return fail(ErrorCode::InvalidRequest, fmt::format("{} holds no list", path), "--reply");
  }
  return source;
}

Reply ReplySource::next(std::string_view request_id, std::string_view lora) {
  switch (mode_) {
    case ReplyMode::Forced:
    case ReplyMode::Echo: return Reply::echo();
    case ReplyMode::Script: return Reply::script(lists_[next_list_++ % lists_.size()]);
    case ReplyMode::Chain: return Reply(TokenChain(adapter_seed(seed_, lora)), vocabulary_);
    case ReplyMode::Formula: break;
  }
  return Reply(TokenFormula(adapter_seed(seed_, lora), request_id), vocabulary_);
}

}  // namespace fairlead::mock
