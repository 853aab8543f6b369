#include "tokenizer/tokenizer_json.hpp"

#include <fmt/format.h>
#include <simdjson.h>

namespace fairlead::tokenizer {

namespace {

namespace ondemand = simdjson::ondemand;

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 30;

std::unexpected<Error> bad(std::string message, std::string part = {}) {
  return fail(ErrorCode::InvalidRequest, "tokenizer.json: " + std::move(message), std::move(part));
}

std::unexpected<Error> unsupported(std::string message, std::string part) {
  return fail(ErrorCode::UnsupportedField, "tokenizer.json: " + std::move(message),
              std::move(part));
}

std::unexpected<Error> bad(simdjson::error_code code, std::string part = {}) {
  return bad(fmt::format("{}{}{}", part, part.empty() ? "" : ": ", simdjson::error_message(code)),
             std::move(part));
}

// A member's JSON text. It lies inside the padded buffer, so it is padded itself.
struct Raw {
  std::string_view json;
  std::size_t capacity = 0;

  bool present() const { return !json.empty(); }
  simdjson::padded_string_view padded() const {
    return simdjson::padded_string_view(json, capacity);
  }
};

// Calls `visit(key, raw)` for every member of the object in `text`.
template <class Visit>
Result<> each_member(simdjson::padded_string_view text, Visit&& visit) {
  ondemand::parser parser;
  ondemand::document document;
  ondemand::object object;
  if (const auto code = parser.iterate(text).get(document)) {
    return bad(code);
  }
  if (const auto code = document.get_object().get(object)) {
    return bad(code);
  }
  const char* limit = text.data() + text.capacity();
  for (auto result : object) {
    ondemand::field field;
    std::string_view key;
    std::string_view json;
    if (const auto code = std::move(result).get(field)) {
      return bad(code);
    }
    if (const auto code = field.unescaped_key().get(key)) {
      return bad(code);
    }
    const std::string name(key);
    if (const auto code = simdjson::to_json_string(field.value()).get(json)) {
      return bad(code, name);
    }
    const Raw raw{json, static_cast<std::size_t>(limit - json.data())};
    if (Result<> visited = visit(name, raw); !visited) {
      return visited;
    }
  }
  if (document.current_location().error() == simdjson::SUCCESS) {
    return bad("text behind the document");
  }
  return {};
}

Result<json::Value> document(const Raw& raw, std::string_view name) {
  Result<json::Value> value = json::parse(raw.json);
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

Result<Vocabulary> read_vocabulary(const Raw& raw) {
  Vocabulary vocabulary;
  ondemand::parser parser;
  ondemand::document document;
  ondemand::object object;
  if (const auto code = parser.iterate(raw.padded()).get(document)) {
    return bad(code, "model.vocab");
  }
  if (const auto code = document.get_object().get(object)) {
    return bad(code, "model.vocab");
  }
  for (auto result : object) {
    ondemand::field field;
    std::string_view spelling;
    std::uint64_t id = 0;
    if (const auto code = std::move(result).get(field)) {
      return bad(code, "model.vocab");
    }
    if (const auto code = field.unescaped_key().get(spelling)) {
      return bad(code, "model.vocab");
    }
    if (const auto code = field.value().get_uint64().get(id)) {
      return bad(code, "model.vocab");
    }
    if (id > kMaxTokenId) {
      return bad(fmt::format("token id {} is above {}", id, kMaxTokenId), "model.vocab");
    }
    if (Result<> added = vocabulary.add(spelling, static_cast<TokenId>(id)); !added) {
      return std::unexpected(added.error());
    }
  }
  if (Result<> finished = vocabulary.finish(); !finished) {
    return std::unexpected(finished.error());
  }
  return vocabulary;
}

Result<> add_merge_text(std::string_view text, BpeModel& model) {
  if (text.starts_with("#version")) {
    return {};  // the first line of merges.txt, kept by some converters
  }
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
    return bad(fmt::format("merge '{}' is not two tokens", text), "model.merges");
  }
  return model.add_merge(text.substr(0, space), text.substr(space + 1));
}

Result<> add_merge_pair(ondemand::array pair, BpeModel& model) {
  std::string_view parts[2];
  std::size_t count = 0;
  for (auto element : pair) {
    if (count == 2) {
      return bad("a merge of more than two tokens", "model.merges");
    }
    if (const auto code = element.get_string().get(parts[count++])) {
      return bad(code, "model.merges");
    }
  }
  if (count != 2) {
    return bad("a merge of less than two tokens", "model.merges");
  }
  return model.add_merge(parts[0], parts[1]);
}

Result<> read_merges(const Raw& raw, BpeModel& model) {
  ondemand::parser parser;
  ondemand::document document;
  ondemand::array list;
  if (const auto code = parser.iterate(raw.padded()).get(document)) {
    return bad(code, "model.merges");
  }
  if (const auto code = document.get_array().get(list)) {
    return bad(code, "model.merges");
  }
  for (auto element : list) {
    ondemand::value value;
    ondemand::array pair;
    std::string_view text;
    if (const auto code = std::move(element).get(value)) {
      return bad(code, "model.merges");
    }
    Result<> added;
    if (value.get_string().get(text) == simdjson::SUCCESS) {
      added = add_merge_text(text, model);
    } else if (const auto code = value.get_array().get(pair)) {
      return bad(code, "model.merges");
    } else {
      added = add_merge_pair(pair, model);
    }
    if (!added) {
      return added;
    }
  }
  return {};
}

// The `model` member: small options as documents, the two large members unparsed.
struct ModelParts {
  Raw vocab;
  Raw merges;
  json::Object options;
};

Result<BpeOptions> model_options(const json::Object& options) {
  BpeOptions result;
  const json::Value* type = options.find("type");
  // Old files have no type; only BPE has merges.
  if (type != nullptr && (type->as_string() == nullptr || *type->as_string() != "BPE")) {
    return unsupported(fmt::format("model type {}", json::dump(*type)), "model.type");
  }
  for (const std::string_view name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const json::Value* value = options.find(name);
    if (value != nullptr && !value->is_null() &&
        (value->as_string() == nullptr || !value->as_string()->empty())) {
      return unsupported(fmt::format("model.{}", name), fmt::format("model.{}", name));
    }
  }
  double dropout = 0;
  if (const json::Value* value = options.find("dropout");
      value != nullptr && !value->is_null() && (!value->number(dropout) || dropout != 0)) {
    return unsupported("model.dropout", "model.dropout");
  }
  if (const json::Value* value = options.find("unk_token"); value != nullptr && !value->is_null()) {
    if (value->as_string() == nullptr) {
      return bad("model.unk_token must be a string or null", "model.unk_token");
    }
    result.unk_token = *value->as_string();
  }
  const std::pair<std::string_view, bool*> flags[] = {{"fuse_unk", &result.fuse_unk},
                                                      {"byte_fallback", &result.byte_fallback},
                                                      {"ignore_merges", &result.ignore_merges}};
  for (const auto& [name, flag] : flags) {
    if (const json::Value* value = options.find(name); value != nullptr && !value->is_null()) {
      if (value->as_bool() == nullptr) {
        return bad(fmt::format("model.{} must be true or false", name));
      }
      *flag = *value->as_bool();
    }
  }
  return result;
}

Result<BpeModel> read_model(const Raw& raw) {
  ModelParts parts;
  Result<> read =
      each_member(raw.padded(), [&](const std::string& key, const Raw& member) -> Result<> {
        if (key == "vocab") {
          parts.vocab = member;
        } else if (key == "merges") {
          parts.merges = member;
        } else {
          Result<json::Value> value = document(member, key);
          if (!value) {
            return std::unexpected(value.error());
          }
          parts.options.set(key, std::move(*value));
        }
        return {};
      });
  if (!read) {
    return std::unexpected(read.error());
  }
  const Result<BpeOptions> options = model_options(parts.options);
  if (!options) {
    return std::unexpected(options.error());
  }
  if (!parts.vocab.present() || !parts.merges.present()) {
    return bad("model without vocab and merges", "model");
  }
  Result<Vocabulary> vocabulary = read_vocabulary(parts.vocab);
  if (!vocabulary) {
    return std::unexpected(vocabulary.error());
  }
  Result<BpeModel> model = BpeModel::create(std::move(*vocabulary), *options);
  if (!model) {
    return model;
  }
  if (Result<> merges = read_merges(parts.merges, *model); !merges) {
    return std::unexpected(merges.error());
  }
  model->finish();
  return model;
}

}  // namespace

Result<TokenizerFile> read_tokenizer_json(std::string text) {
  if (text.size() > kMaxFileBytes) {
    return bad(fmt::format("larger than {} bytes", kMaxFileBytes));
  }
  const std::size_t size = text.size();
  text.resize(size + simdjson::SIMDJSON_PADDING);
  TokenizerFile file;
  Raw model;
  const auto member = [&](const std::string& key, const Raw& raw) -> Result<> {
    const std::pair<std::string_view, json::Value*> components[] = {
        {"normalizer", &file.normalizer},
        {"pre_tokenizer", &file.pre_tokenizer},
        {"post_processor", &file.post_processor},
        {"decoder", &file.decoder}};
    if (key == "model") {
      model = raw;
      return {};
    }
    if (key == "added_tokens") {
      const Result<json::Value> list = document(raw, key);
      Result<std::vector<AddedToken>> tokens =
          list ? added_tokens(*list) : std::unexpected(list.error());
      if (!tokens) {
        return std::unexpected(tokens.error());
      }
      file.added_tokens = std::move(*tokens);
      return {};
    }
    for (const auto& [name, target] : components) {
      if (key == name) {
        Result<json::Value> value = document(raw, key);
        if (!value) {
          return std::unexpected(value.error());
        }
        *target = std::move(*value);
      }
    }
    return {};
  };
  if (Result<> read =
          each_member(simdjson::padded_string_view(text.data(), size, text.size()), member);
      !read) {
    return std::unexpected(read.error());
  }
  if (!model.present()) {
    return bad("no model", "model");
  }
  Result<BpeModel> built = read_model(model);
  if (!built) {
    return std::unexpected(built.error());
  }
  file.model = std::move(*built);
  return file;
}

}  // namespace fairlead::tokenizer
