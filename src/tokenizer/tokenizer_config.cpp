#include "tokenizer/tokenizer_config.hpp"

#include <fmt/format.h>

#include <charconv>
#include <map>

#include "base/json.hpp"

namespace fairlead::tokenizer {

namespace {

std::unexpected<Error> bad(std::string_view message) {
  return fail(ErrorCode::InvalidRequest, fmt::format("tokenizer_config.json: {}", message));
}

// A token written as a string or as {"content": …}; null for anything else.
const std::string* token_text(const json::Value& value) {
  if (value.as_string() != nullptr) {
    return value.as_string();
  }
  const json::Value* content = value.find("content");
  return content != nullptr ? content->as_string() : nullptr;
}

SpecialTokens special_tokens(const json::Value& config) {
  SpecialTokens result;
  for (const std::string_view name : {"bos_token", "eos_token", "unk_token", "sep_token",
                                      "pad_token", "cls_token", "mask_token"}) {
    const json::Value* value = config.find(name);
    const std::string* text = value != nullptr ? token_text(*value) : nullptr;
    if (text != nullptr) {
      result.named.emplace_back(name, *text);
    }
  }
  for (const std::string_view name : {"extra_special_tokens", "additional_special_tokens"}) {
    const json::Value* value = config.find(name);
    if (value != nullptr && value->as_array() != nullptr) {
      for (const json::Value& entry : *value->as_array()) {
        if (const std::string* text = token_text(entry)) {
          result.additional.push_back(*text);
        }
      }
    } else if (value != nullptr && value->as_object() != nullptr) {
      for (const json::Member& member : *value->as_object()) {
        if (const std::string* text = token_text(member.value)) {
          result.named.emplace_back(member.key, *text);
        }
      }
    }
  }
  return result;
}

bool flag(const json::Value& entry, std::string_view name) {
  const json::Value* value = entry.find(name);
  return value != nullptr && value->as_bool() != nullptr && *value->as_bool();
}

Result<std::vector<AddedToken>> added_tokens(const json::Value& decoder) {
  if (decoder.as_object() == nullptr) {
    return bad("added_tokens_decoder must be an object");
  }
  std::map<std::uint64_t, AddedToken> by_id;
  for (const json::Member& member : *decoder.as_object()) {
    std::uint64_t id = 0;
    const char* end = member.key.data() + member.key.size();
    if (const auto [at, code] = std::from_chars(member.key.data(), end, id);
        at != end || code != std::errc()) {
      return bad(fmt::format("added_tokens_decoder: '{}' is not an id", member.key));
    }
    const json::Value* content = member.value.find("content");
    if (content == nullptr || content->as_string() == nullptr || content->as_string()->empty()) {
      continue;
    }
    if (id > kMaxTokenId) {
      return bad(fmt::format("added_tokens_decoder: {} is above {}", id, kMaxTokenId));
    }
    by_id[id] = {*content->as_string(),
                 flag(member.value, "single_word"),
                 flag(member.value, "lstrip"),
                 flag(member.value, "rstrip"),
                 flag(member.value, "normalized"),
                 flag(member.value, "special"),
                 static_cast<TokenId>(id)};
  }
  std::vector<AddedToken> tokens;
  for (auto& [id, token] : by_id) {
    tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace

Result<TokenizerConfig> read_tokenizer_config(std::string_view text) {
  TokenizerConfig result;
  if (text.empty()) {
    return result;
  }
  const Result<json::Value> config = json::parse(text);
  if (!config) {
    return bad(config.error().message);
  }
  if (config->as_object() == nullptr) {
    return bad("not an object");
  }
  result.special_tokens = special_tokens(*config);
  const std::pair<std::string_view, std::optional<bool>*> flags[] = {
      {"add_bos_token", &result.add_bos_token},
      {"add_eos_token", &result.add_eos_token},
      {"legacy", &result.legacy}};
  for (const auto& [name, target] : flags) {
    const json::Value* value = config->find(name);
    if (value != nullptr && value->as_bool() != nullptr) {
      *target = *value->as_bool();
    }
  }
  // Only this class of transformers has another default.
  const json::Value* tokenizer_class = config->find("tokenizer_class");
  const std::string* name = tokenizer_class != nullptr ? tokenizer_class->as_string() : nullptr;
  if (!result.legacy && name != nullptr) {
    result.legacy = *name != "LlamaTokenizer" && *name != "LlamaTokenizerFast";
  }
  if (const json::Value* decoder = config->find("added_tokens_decoder");
      decoder != nullptr && !decoder->is_null()) {
    Result<std::vector<AddedToken>> tokens = added_tokens(*decoder);
    if (!tokens) {
      return std::unexpected(tokens.error());
    }
    result.added_tokens = std::move(*tokens);
  }
  return result;
}

}  // namespace fairlead::tokenizer
