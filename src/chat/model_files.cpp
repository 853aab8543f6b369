#include "chat/model_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/json.hpp"
#include "chat/chat_template.hpp"

namespace fairlead::chat {
namespace {

namespace fs = std::filesystem;

// Model files of the text side are small; anything larger is not one.
constexpr std::uintmax_t kMaxConfigBytes = 64 * 1024 * 1024;

std::unexpected<Error> wrong(std::string message) {
  return fail(ErrorCode::InvalidRequest, std::move(message));
}

// A JSON object from a file; null when the file is not there and may be missing.
Result<json::Value> read_object(const fs::path& file, bool required) {
  std::error_code error;
  const auto bytes = fs::file_size(file, error);
  if (error) {
    if (!required && error == std::errc::no_such_file_or_directory) {
      return json::Value();
    }
    return wrong(fmt::format("cannot read {}: {}", file.string(), error.message()));
  }
  if (bytes > kMaxConfigBytes) {
    return wrong(fmt::format("{} has {} bytes, which no such file has", file.string(), bytes));
  }
  std::string text(bytes, '\0');
  std::ifstream in(file, std::ios::binary);
  if (!in.read(text.data(), static_cast<std::streamsize>(bytes))) {
    return wrong(fmt::format("cannot read {}", file.string()));
  }
  auto value = json::parse(text);
  if (!value) {
    return wrong(fmt::format("{}: {}", file.string(), value.error().message));
  }
  if (!value->as_object()) {
    return wrong(fmt::format("{}: not a JSON object", file.string()));
  }
  return value;
}

std::optional<std::uint32_t> as_count(const json::Value* value) {
  const std::int64_t* number = value ? value->as_int() : nullptr;
  if (!number || *number < 0 || *number > std::numeric_limits<std::uint32_t>::max()) {
    return std::nullopt;
  }
  return static_cast<std::uint32_t>(*number);
}

// `eos_token_id` is one id or a list.
void add_eos(const json::Value& config, std::vector<std::uint32_t>& out) {
  const json::Value* value = config.find("eos_token_id");
  if (const auto id = as_count(value)) {
    out.push_back(*id);
  } else if (const json::Array* list = value ? value->as_array() : nullptr) {
    for (const json::Value& entry : *list) {
      if (const auto one = as_count(&entry)) {
        out.push_back(*one);
      }
    }
  }
}

std::optional<double> as_number(const json::Value* value) {
  double number = 0;
  return value && value->number(number) ? std::optional(number) : std::nullopt;
}

// vLLM takes these keys of generation_config.json as its server-wide defaults, and nothing else
// (`do_sample` among them is ignored); `extra_args` is this program's addition.
SamplingDefaults read_defaults(const json::Value& config) {
  SamplingDefaults out;
  out.temperature = as_number(config.find("temperature"));
  out.top_p = as_number(config.find("top_p"));
  out.min_p = as_number(config.find("min_p"));
  out.repetition_penalty = as_number(config.find("repetition_penalty"));
  if (const auto top_k = as_number(config.find("top_k"))) {
    out.top_k = static_cast<std::int64_t>(*top_k);
  }
  out.max_new_tokens = as_count(config.find("max_new_tokens"));
  if (const json::Value* extra = config.find("extra_args"); extra && extra->as_object()) {
    out.extra_args = *extra;
  }
  return out;
}

// Multimodal models keep the language model's values in a nested object.
std::optional<std::uint32_t> text_value(const json::Value& config, const char* key) {
  if (const auto value = as_count(config.find(key))) {
    return value;
  }
  const json::Value* nested = config.find("text_config");
  return nested ? as_count(nested->find(key)) : std::nullopt;
}

Result<json::Value> read_generation_config(const fs::path& folder, const std::string& option) {
  if (option == "none") {
    return json::Value();
  }
  if (option.empty() || option == "auto") {
    return read_object(folder / "generation_config.json", false);
  }
  return read_object(fs::path(option) / "generation_config.json", true);
}

}  // namespace

Result<> check_model_folder(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    return {};
  }
  if (fs::exists(path, error)) {
    return wrong(fmt::format("model path `{}` is not a folder", path.string()));
  }
  return wrong(fmt::format("model folder `{}` does not exist", path.string()));
}

Result<ModelAssets> load_model_assets(const ModelAssetsOptions& options) {
  if (Result<> checked = check_model_folder(options.path); !checked) {
    return std::unexpected(checked.error());
  }
  const fs::path folder = options.path;
  const auto config = read_object(folder / "config.json", false);
  if (!config) {
    return std::unexpected(config.error());
  }
  // The ends of generation count even when its sampling values are not wanted.
  const auto model_generation = read_object(folder / "generation_config.json", false);
  if (!model_generation) {
    return std::unexpected(model_generation.error());
  }
  const auto generation = read_generation_config(folder, options.generation_config);
  if (!generation) {
    return fail(generation.error().code, generation.error().message, "generation_config");
  }
  auto tokenizer = tokenizer::Tokenizer::load(folder);
  if (!tokenizer) {
    return std::unexpected(tokenizer.error());
  }
  ModelAssets assets;
  assets.folder = folder.string();
  assets.tokenizer = std::move(*tokenizer);
  // Files of some kinds name special tokens themselves.
  auto chat_template = ChatTemplate::load(folder, assets.tokenizer->special_tokens().named);
  if (!chat_template) {
    return std::unexpected(chat_template.error());
  }
  assets.chat_template = std::move(*chat_template);
  add_eos(*config, assets.eos_token_ids);
  add_eos(*model_generation, assets.eos_token_ids);
  add_eos(*generation, assets.eos_token_ids);
  if (const std::string* eos = assets.tokenizer->special_tokens().find("eos_token")) {
    if (const auto id = assets.tokenizer->token_to_id(*eos)) {
      assets.eos_token_ids.push_back(*id);
    }
  }
  std::ranges::sort(assets.eos_token_ids);
  const auto repeated = std::ranges::unique(assets.eos_token_ids);
  assets.eos_token_ids.erase(repeated.begin(), repeated.end());
  // Without the file, the model's config.json may hold the values, as older models have it.
  const bool from_config = options.generation_config != "none" && generation->is_null();
  assets.defaults = read_defaults(from_config ? *config : *generation);
  assets.context_length = text_value(*config, "max_position_embeddings").value_or(0);
  // The rows of the embedding, which are what an engine can take; the tokenizer may have fewer ids,
  // or, with tokens added later, more.
  assets.vocab_size = text_value(*config, "vocab_size").value_or(0);
  if (assets.vocab_size == 0) {
    assets.vocab_size = static_cast<std::uint32_t>(assets.tokenizer->vocab_size());
  }
  return assets;
}

}  // namespace fairlead::chat
