#include "tokenizer/tokenizer_json.hpp"

#include <fmt/format.h>
#include <simdjson.h>

namespace fairlead::tokenizer {

namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 30;

std::unexpected<Error> bad(std::string message, std::string part = {}) {
  return fail(ErrorCode::InvalidRequest, "tokenizer.json: " + std::move(message), std::move(part));
}

Result<json::Value> document(const JsonText& text, std::string_view name) {
  Result<json::Value> value = json::parse(text.json);
  if (!value) {
    return bad(fmt::format("{}: {}", name, value.error().message), std::string(name));
  }
  return value;
}

Result<AddedToken> added_token(const json::Value& entry) {
  AddedToken token;
  const json::Value* content = entry.find("content");
  if (content == nullptr || content->as_string() == nullptr) {
    return bad("an added token without content", "added_tokens");
  }
  token.content = *content->as_string();
  const std::pair<std::string_view, bool*> flags[] = {{"single_word", &token.single_word},
                                                      {"lstrip", &token.lstrip},
                                                      {"rstrip", &token.rstrip},
                                                      {"normalized", &token.normalized},
                                                      {"special", &token.special}};
  for (const auto& [name, flag] : flags) {
    const json::Value* value = entry.find(name);
    if (value == nullptr || value->as_bool() == nullptr) {
      return bad(fmt::format("added token '{}': {} must be true or false", token.content, name),
                 "added_tokens");
    }
    *flag = *value->as_bool();
  }
  return token;
}

Result<std::vector<AddedToken>> added_tokens(const json::Value& list) {
  std::vector<AddedToken> tokens;
  if (list.is_null()) {
    return tokens;
  }
  if (list.as_array() == nullptr) {
    return bad("added_tokens must be a list", "added_tokens");
  }
  for (const json::Value& entry : *list.as_array()) {
    Result<AddedToken> token = added_token(entry);
    if (!token) {
      return std::unexpected(token.error());
    }
    tokens.push_back(std::move(*token));
  }
  return tokens;
}

}  // namespace

Result<std::unique_ptr<const TokenizerFile>> read_tokenizer_json(std::string text) {
  if (text.size() > kMaxFileBytes) {
    return bad(fmt::format("larger than {} bytes", kMaxFileBytes));
  }
  auto file = std::make_unique<TokenizerFile>();
  file->text = std::move(text);
  const std::size_t size = file->text.size();
  file->text.resize(size + simdjson::SIMDJSON_PADDING);
  const JsonText whole{std::string_view(file->text).substr(0, size), file->text.size()};
  JsonText model;
  const auto member = [&](const std::string& key, const JsonText& json) -> Result<> {
    if (key == "model") {
      model = json;
      return {};
    }
    if (key == "added_tokens") {
      const Result<json::Value> list = document(json, key);
      Result<std::vector<AddedToken>> tokens =
          list ? added_tokens(*list) : std::unexpected(list.error());
      if (!tokens) {
        return std::unexpected(tokens.error());
      }
      file->added_tokens = std::move(*tokens);
      return {};
    }
    const std::pair<std::string_view, json::Value*> components[] = {
        {"normalizer", &file->normalizer},         {"pre_tokenizer", &file->pre_tokenizer},
        {"post_processor", &file->post_processor}, {"decoder", &file->decoder},
        {"truncation", &file->truncation},         {"padding", &file->padding}};
    for (const auto& [name, target] : components) {
      if (key == name) {
        Result<json::Value> value = document(json, key);
        if (!value) {
          return std::unexpected(value.error());
        }
        *target = std::move(*value);
      }
    }
    return {};
  };
  if (Result<> read = each_member(whole, member); !read) {
    return std::unexpected(read.error());
  }
  if (!model.present()) {
    return bad("no model", "model");
  }
  Result<ModelSource> source = open_model(model);
  if (!source) {
    return std::unexpected(source.error());
  }
  file->model = std::move(*source);
  return file;
}

}  // namespace fairlead::tokenizer
