#include <fmt/format.h>

#include "tokenizer/tokenizer_json.hpp"

namespace fairlead::tokenizer {

namespace {

constexpr int kMaxNesting = 16;

std::string_view type_of(const json::Value& config) {
  const json::Value* type = config.find("type");
  return type != nullptr && type->as_string() != nullptr ? std::string_view(*type->as_string())
                                                         : std::string_view();
}

std::unexpected<Error> bad(std::string_view part, std::string_view message) {
  return fail(ErrorCode::InvalidRequest, fmt::format("tokenizer.json: {}: {}", part, message),
              std::string(part));
}

std::unexpected<Error> unsupported(std::string_view part, std::string_view what) {
  return fail(ErrorCode::UnsupportedField,
              fmt::format("tokenizer.json: {}: '{}' is not supported", part, what),
              std::string(part));
}

// The steps of a Sequence, or null when `config` is none or broken.
const json::Array* steps(const json::Value& config, std::string_view member) {
  const json::Value* list = type_of(config) == "Sequence" ? config.find(member) : nullptr;
  return list != nullptr ? list->as_array() : nullptr;
}

Result<TokenId> token_id(const json::Value& value) {
  const std::int64_t* id = value.as_int();
  if (id == nullptr || *id < 0 || *id > kMaxTokenId) {
    return bad("post_processor", "a token id is not a number in range");
  }
  return static_cast<TokenId>(*id);
}

// {"SpecialToken": {"id": NAME}} stands for the ids under that name in `special_tokens`.
Result<> add_template_token(const json::Value& config, const json::Value& piece,
                            std::vector<TokenId>& ids) {
  const json::Value* name = piece.find("id");
  const json::Value* table = config.find("special_tokens");
  const json::Value* entry = name != nullptr && name->as_string() != nullptr && table != nullptr
                                 ? table->find(*name->as_string())
                                 : nullptr;
  const json::Value* list = entry != nullptr ? entry->find("ids") : nullptr;
  if (list == nullptr || list->as_array() == nullptr) {
    return bad("post_processor", "a template names a token without ids");
  }
  for (const json::Value& value : *list->as_array()) {
    const Result<TokenId> id = token_id(value);
    if (!id) {
      return std::unexpected(id.error());
    }
    ids.push_back(*id);
  }
  return {};
}

Result<AddedIds> read_template(const json::Value& config) {
  AddedIds ids;
  bool seen_text = false;
  const json::Value* single = config.find("single");
  if (single == nullptr || single->as_array() == nullptr) {
    return bad("post_processor", "TemplateProcessing without a list 'single'");
  }
  for (const json::Value& piece : *single->as_array()) {
    if (const json::Value* token = piece.find("SpecialToken")) {
      if (Result<> added = add_template_token(config, *token, seen_text ? ids.behind : ids.before);
          !added) {
        return std::unexpected(added.error());
      }
      continue;
    }
    const json::Value* text = piece.find("Sequence");
    const json::Value* id = text != nullptr ? text->find("id") : nullptr;
    if (id == nullptr || id->as_string() == nullptr || *id->as_string() != "A" || seen_text) {
      return unsupported("post_processor", "a template that is not one sequence A");
    }
    seen_text = true;
  }
  if (!seen_text) {
    return unsupported("post_processor", "a template without sequence A");
  }
  return ids;
}

// BertProcessing and RobertaProcessing: `cls` before, `sep` behind, each ["TEXT", id].
Result<AddedIds> read_cls_sep(const json::Value& config) {
  AddedIds ids;
  const std::pair<std::string_view, std::vector<TokenId>*> parts[] = {{"cls", &ids.before},
                                                                      {"sep", &ids.behind}};
  for (const auto& [name, target] : parts) {
    const json::Value* pair = config.find(name);
    const json::Array* list = pair != nullptr ? pair->as_array() : nullptr;
    if (list == nullptr || list->size() != 2) {
      return bad("post_processor", fmt::format("{} must be a token and its id", name));
    }
    const Result<TokenId> id = token_id((*list)[1]);
    if (!id) {
      return std::unexpected(id.error());
    }
    target->push_back(*id);
  }
  return ids;
}

Result<AddedIds> post_processor(const json::Value& config, int depth) {
  const std::string_view type = type_of(config);
  if (config.is_null() || type == "ByteLevel") {
    return AddedIds{};  // ByteLevel moves offsets only
  }
  if (type == "TemplateProcessing") {
    return read_template(config);
  }
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    return read_cls_sep(config);
  }
  const json::Array* list = steps(config, "processors");
  if (list == nullptr || depth == kMaxNesting) {
    return unsupported("post_processor", type);
  }
  AddedIds all;
  for (const json::Value& step : *list) {
    const Result<AddedIds> ids = post_processor(step, depth + 1);
    if (!ids) {
      return ids;
    }
    all.before.insert(all.before.begin(), ids->before.begin(), ids->before.end());
    all.behind.insert(all.behind.end(), ids->behind.begin(), ids->behind.end());
  }
  return all;
}

}  // namespace

Result<AddedIds> read_post_processor(const json::Value& config) {
  return post_processor(config, 0);
}

}  // namespace fairlead::tokenizer
