#include <fmt/format.h>

#include "tokenizer/component_config.hpp"
#include "tokenizer/tokenizer_json.hpp"

namespace fairlead::tokenizer {

namespace {

Result<TokenId> token_id(const ComponentConfig& config, const json::Value& value) {
  const std::int64_t* id = value.as_int();
  if (id == nullptr || *id < 0 || *id > kMaxTokenId) {
    return config.bad("a token id is not a number in range");
  }
  return static_cast<TokenId>(*id);
}

// {"SpecialToken": {"id": NAME}} stands for the ids under that name in `special_tokens`.
Result<> add_template_token(const ComponentConfig& config, const json::Value& piece,
                            std::vector<TokenId>& ids) {
  const json::Value* name = piece.find("id");
  const json::Value* table = config.find("special_tokens");
  const json::Value* entry = name != nullptr && name->as_string() != nullptr && table != nullptr
                                 ? table->find(*name->as_string())
                                 : nullptr;
  const json::Value* list = entry != nullptr ? entry->find("ids") : nullptr;
  if (list == nullptr || list->as_array() == nullptr) {
    return config.bad("a template names a token without ids");
  }
  for (const json::Value& value : *list->as_array()) {
    const Result<TokenId> id = token_id(config, value);
    if (!id) {
      return std::unexpected(id.error());
    }
    ids.push_back(*id);
  }
  return {};
}

Result<AddedIds> read_template(const ComponentConfig& config) {
  AddedIds ids;
  bool seen_text = false;
  const Result<const json::Array*> single = config.array("single");
  if (!single) {
    return std::unexpected(single.error());
  }
  for (const json::Value& piece : **single) {
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
      return config.unsupported("a template that is not one sequence A");
    }
    seen_text = true;
  }
  if (!seen_text) {
    return config.unsupported("a template without sequence A");
  }
  return ids;
}

// BertProcessing and RobertaProcessing: `cls` before, `sep` behind, each ["TEXT", id].
Result<AddedIds> read_cls_sep(const ComponentConfig& config) {
  AddedIds ids;
  const std::pair<std::string_view, std::vector<TokenId>*> parts[] = {{"cls", &ids.before},
                                                                      {"sep", &ids.behind}};
  for (const auto& [name, target] : parts) {
    const Result<const json::Array*> pair = config.array(name);
    if (!pair) {
      return std::unexpected(pair.error());
    }
    if ((*pair)->size() != 2) {
      return config.bad(fmt::format("{} must be a token and its id", name));
    }
    const Result<TokenId> id = token_id(config, (**pair)[1]);
    if (!id) {
      return std::unexpected(id.error());
    }
    target->push_back(*id);
  }
  return ids;
}

Result<AddedIds> read_step(const ComponentConfig& config) {
  if (config.type() == "ByteLevel") {
    return AddedIds{};  // moves offsets only
  }
  if (config.type() == "TemplateProcessing") {
    return read_template(config);
  }
  if (config.type() == "BertProcessing" || config.type() == "RobertaProcessing") {
    return read_cls_sep(config);
  }
  return config.unsupported("not a known type");
}

}  // namespace

Result<AddedIds> read_post_processor(const json::Value& config) {
  AddedIds all;
  const Result<> read =
      each_step("post_processor", "processors", config, [&](const ComponentConfig& one) {
        const Result<AddedIds> ids = read_step(one);
        if (!ids) {
          return Result<>(std::unexpected(ids.error()));
        }
        all.before.insert(all.before.begin(), ids->before.begin(), ids->before.end());
        all.behind.insert(all.behind.end(), ids->behind.begin(), ids->behind.end());
        return Result<>();
      });
  return read ? Result<AddedIds>(std::move(all)) : std::unexpected(read.error());
}

}  // namespace fairlead::tokenizer
