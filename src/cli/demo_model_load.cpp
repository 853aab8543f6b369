#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "base/json.hpp"
#include "chat/chat_template.hpp"
#include "cli/demo_model.hpp"
#include "tokenizer/tokenizer.hpp"

namespace fairlead::cli {
namespace {

/// A whole number of config.json; 0 when it is not there.
std::uint32_t count_of(const json::Value& config, std::string_view key) {
  const json::Value* value = config.find(key);
  const std::int64_t* number = value ? value->as_int() : nullptr;
  return number ? static_cast<std::uint32_t>(*number) : 0;
}

}  // namespace

Result<std::shared_ptr<const chat::ModelAssets>> load_demo_model() {
  auto tokenizer = tokenizer::Tokenizer::parse(demo_tokenizer_json(), demo_tokenizer_config_json());
  if (!tokenizer) {
    return std::unexpected(tokenizer.error());
  }
  const Result<json::Value> config = json::parse(demo_config_json());
  if (!config) {
    return std::unexpected(config.error());
  }
  auto chat_template = chat::ChatTemplate::make({{"default", std::string(demo_chat_template())}},
                                                (*tokenizer)->special_tokens().named);
  if (!chat_template) {
    return std::unexpected(chat_template.error());
  }
  chat::ModelAssets assets;
  assets.tokenizer = std::move(*tokenizer);
  assets.chat_template = std::move(*chat_template);
  assets.eos_token_ids = {count_of(*config, "eos_token_id")};
  assets.context_length = count_of(*config, "max_position_embeddings");
  assets.vocab_size = count_of(*config, "vocab_size");
  assets.folder = "(embedded)";
  return std::make_shared<const chat::ModelAssets>(std::move(assets));
}

}  // namespace fairlead::cli
