#include "tokenizer/tekken.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/json.hpp"
#include "tokenizer/base64.hpp"
#include "tokenizer/byte_path.hpp"
#include "tokenizer/json_text.hpp"
#include "tokenizer/rank_merges.hpp"
#include "tokenizer/scanners.hpp"
#include "tokenizer/vocabulary.hpp"

namespace fairlead::tokenizer {
namespace {

namespace ondemand = simdjson::ondemand;

constexpr std::string_view kFile = "tekken.json";
// Real files have 1000.
constexpr std::int64_t kMaxSpecials = 1 << 16;

// What files without `special_tokens` have: those up to version 7 (mistral-common,
// `Tekkenizer.DEPRECATED_SPECIAL_TOKENS`).
constexpr std::string_view kOldSpecials[] = {"<unk>",
                                             "<s>",
                                             "</s>",
                                             "[INST]",
                                             "[/INST]",
                                             "[AVAILABLE_TOOLS]",
                                             "[/AVAILABLE_TOOLS]",
                                             "[TOOL_RESULTS]",
                                             "[/TOOL_RESULTS]",
                                             "[TOOL_CALLS]",
                                             "[IMG]",
                                             "<pad>",
                                             "[IMG_BREAK]",
                                             "[IMG_END]",
                                             "[PREFIX]",
                                             "[MIDDLE]",
                                             "[SUFFIX]",
                                             "[SYSTEM_PROMPT]",
                                             "[/SYSTEM_PROMPT]",
                                             "[TOOL_CONTENT]"};
constexpr std::string_view kOldVersions[] = {"v1", "v2", "v3", "v7"};

constexpr std::string_view kBegin = "<s>";
constexpr std::pair<std::string_view, std::string_view> kNamed[] = {
    {"bos_token", kBegin}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}};

std::unexpected<Error> bad(std::string_view message) {
  return fail(ErrorCode::InvalidRequest, fmt::format("{}: {}", kFile, message));
}

// The members of the file.
struct Tekken {
  JsonText vocab;
  json::Value config;
  json::Value special_tokens;

  Result<> read(const JsonText& text);
  Result<std::int64_t> number(std::string_view name) const;
  Result<Scanner> scanner() const;
  Result<std::vector<std::string>> specials(std::size_t count) const;
  Result<Vocabulary> vocabulary(std::size_t first, std::size_t count) const;
};

Result<> Tekken::read(const JsonText& text) {
  const auto member = [&](const std::string& key, const JsonText& json) -> Result<> {
    if (key == "vocab") {
      vocab = json;
      return {};
    }
    json::Value* const target = key == "config"           ? &config
                                : key == "special_tokens" ? &special_tokens
                                                          : nullptr;
    if (target != nullptr) {
      Result<json::Value> value = json::parse(json.json);
      if (!value) {
        return bad(fmt::format("{}: {}", key, value.error().message));
      }
      *target = std::move(*value);
    }
    return {};
  };
  return each_member(text, member, kFile);
}

Result<std::int64_t> Tekken::number(std::string_view name) const {
  const json::Value* value = config.find(name);
  if (value == nullptr || value->as_int() == nullptr || *value->as_int() < 0 ||
      *value->as_int() > kMaxTokenId) {
    return bad(fmt::format("config.{} must be a number up to {}", name, kMaxTokenId));
  }
  return *value->as_int();
}

Result<Scanner> Tekken::scanner() const {
  const json::Value* pattern = config.find("pattern");
  if (pattern == nullptr || pattern->as_string() == nullptr) {
    return bad("config.pattern must be a string");
  }
  // Only what reads the same in the reference's regex engine has a scanner.
  const Scanner scanner = recognize_pattern(*pattern->as_string());
  if (scanner == Scanner::None) {
    return fail(ErrorCode::UnsupportedField,
                fmt::format("{}: the pattern '{}' is not known", kFile, *pattern->as_string()));
  }
  return scanner;
}

// The contents of the special tokens, by id.
Result<std::vector<std::string>> Tekken::specials(std::size_t count) const {
  std::vector<std::string> contents;
  if (special_tokens.is_null()) {
    const json::Value* version = config.find("version");
    if (version == nullptr || version->as_string() == nullptr ||
        std::ranges::find(kOldVersions, *version->as_string()) == std::end(kOldVersions)) {
      return bad("no special_tokens, which only files up to version v7 do without");
    }
    contents.assign(std::begin(kOldSpecials), std::end(kOldSpecials));
  } else if (special_tokens.as_array() == nullptr) {
    return bad("special_tokens must be a list");
  } else {
    for (const json::Value& entry : *special_tokens.as_array()) {
      const json::Value* rank = entry.find("rank");
      const json::Value* text = entry.find("token_str");
      if (rank == nullptr || rank->as_int() == nullptr ||
          *rank->as_int() != static_cast<std::int64_t>(contents.size()) || text == nullptr ||
          text->as_string() == nullptr || text->as_string()->empty()) {
        return bad(fmt::format("special_tokens[{0}] is no token with rank {0}", contents.size()));
      }
      contents.push_back(*text->as_string());
    }
  }
  if (contents.size() > count) {
    return bad(fmt::format("{} special tokens, but default_num_special_tokens is {}",
                           contents.size(), count));
  }
  for (std::size_t id = contents.size(); id < count; ++id) {
    contents.push_back(fmt::format("<SPECIAL_{}>", id));
  }
  std::unordered_set<std::string_view> seen;
  for (const std::string& content : contents) {
    if (!seen.insert(content).second) {
      return bad(fmt::format("the special token '{}' is there twice", content));
    }
  }
  return contents;
}

// An entry of `vocab`; its members come in any order.
Result<> read_entry(ondemand::object entry, std::uint64_t expected, std::string& bytes) {
  std::uint64_t rank = 0;
  std::string_view base64;
  if (entry["rank"].get_uint64().get(rank) != simdjson::SUCCESS || rank != expected) {
    return bad(fmt::format("vocab[{0}] has not the rank {0}", expected));
  }
  bytes.clear();
  if (entry["token_bytes"].get_string().get(base64) != simdjson::SUCCESS ||
      !append_base64_bytes(bytes, base64) || bytes.empty()) {
    return bad(fmt::format("vocab[{}].token_bytes is not base64", expected));
  }
  if (bytes.size() > kMaxRankTokenBytes) {
    return bad(fmt::format("vocab[{}] has more than {} bytes", expected, kMaxRankTokenBytes));
  }
  return {};
}

Result<Vocabulary> Tekken::vocabulary(std::size_t first, std::size_t count) const {
  ondemand::parser parser;
  ondemand::document document;
  ondemand::array entries;
  if (!vocab.present() ||
      parser.iterate(simdjson::padded_string_view(vocab.json, vocab.capacity)).get(document) ||
      document.get_array().get(entries)) {
    return bad("vocab must be a list");
  }
  Vocabulary vocabulary;
  std::string bytes;
  std::size_t rank = 0;
  for (auto element : entries) {
    if (rank == count) {
      break;
    }
    ondemand::object entry;
    if (element.get_object().get(entry)) {
      return bad(fmt::format("vocab[{}] is not an object", rank));
    }
    if (Result<> read = read_entry(entry, rank, bytes); !read) {
      return std::unexpected(read.error());
    }
    if (Result<> added = vocabulary.add_bytes(bytes, static_cast<TokenId>(first + rank)); !added) {
      return std::unexpected(added.error());
    }
    ++rank;
  }
  if (rank < count) {
    return bad(fmt::format("vocab has {} entries, less than {}", rank, count));
  }
  if (Result<> finished = vocabulary.finish(); !finished) {
    return std::unexpected(finished.error());
  }
  if (vocabulary.size() != count) {
    return bad("a token is there twice");
  }
  return vocabulary;
}

void add_specials(TokenizerSource& source, std::vector<std::string> contents) {
  for (std::string& content : contents) {
    for (const auto& [name, usual] : kNamed) {
      if (content == usual) {
        source.named.emplace_back(name, content);
      }
    }
    AddedToken token;
    token.id = static_cast<TokenId>(source.added_tokens.size());
    if (content == kBegin) {
      source.around.before.push_back(*token.id);
    }
    token.content = std::move(content);
    token.special = true;
    source.added_tokens.push_back(std::move(token));
  }
}

}  // namespace

Result<TokenizerSource> read_tekken(std::string text) {
  const std::size_t size = text.size();
  text.resize(size + simdjson::SIMDJSON_PADDING);
  Tekken file;
  if (Result<> read = file.read({std::string_view(text).substr(0, size), text.size()}); !read) {
    return std::unexpected(read.error());
  }
  const Result<std::int64_t> all = file.number("default_vocab_size");
  const Result<std::int64_t> special = file.number("default_num_special_tokens");
  if (!all || !special) {
    return std::unexpected(!all ? all.error() : special.error());
  }
  if (*special > *all || *special > kMaxSpecials) {
    return bad("default_num_special_tokens is too large");
  }
  const auto specials = static_cast<std::size_t>(*special);
  const Result<Scanner> scanner = file.scanner();
  Result<std::vector<std::string>> contents = file.specials(specials);
  if (!scanner || !contents) {
    return std::unexpected(!scanner ? scanner.error() : contents.error());
  }
  Result<Vocabulary> vocabulary =
      file.vocabulary(specials, static_cast<std::size_t>(*all) - specials);
  if (!vocabulary) {
    return std::unexpected(vocabulary.error());
  }
  Result<std::unique_ptr<const TextPath>> path = make_rank_path(std::move(*vocabulary), *scanner);
  if (!path) {
    return bad(path.error().message);
  }
  TokenizerSource source;
  source.path = std::move(*path);
  source.written_ids = true;
  source.plain_text = true;
  add_specials(source, std::move(*contents));
  return source;
}

}  // namespace fairlead::tokenizer
