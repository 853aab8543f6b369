#include "tokenizer/tokenizer_files.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "tokenizer/json_text.hpp"
#include "tokenizer/rank_file.hpp"
#include "tokenizer/rank_scheme.hpp"
#include "tokenizer/sentencepiece.hpp"
#include "tokenizer/tekken.hpp"

namespace fairlead::tokenizer {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{1} << 30;
constexpr std::string_view kJsonSpace = " \t\r\n";
constexpr std::string_view kNames[] = {"tokenizer.json", "tekken.json", "tokenizer.model",
                                       "tiktoken.model"};
constexpr std::string_view kLookedFor =
    "tokenizer.json, tekken.json, tokenizer.model, tiktoken.model, *.tiktoken or "
    "tokenizer.model.v*";

std::unexpected<Error> bad(std::string message) {
  return fail(ErrorCode::InvalidRequest, std::move(message));
}

bool is_base64(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' ||
         c == '/' || c == '=';
}

// Whether a text begins with base64, a space and a digit.
bool begins_with_rank(std::string_view text) {
  const auto* const end = std::ranges::find_if_not(text, is_base64);
  const auto at = static_cast<std::size_t>(end - text.begin());
  return at > 0 && at + 1 < text.size() && text[at] == ' ' && text[at + 1] >= '0' &&
         text[at + 1] <= '9';
}

bool is_tekken(std::string_view text) {
  const simdjson::padded_string padded(text);
  bool config = false;
  bool vocab = false;
  // What is wrong with the text is told by who reads it.
  [[maybe_unused]] const Result<> read =
      each_member({std::string_view(padded), text.size() + simdjson::SIMDJSON_PADDING},
                  [&](const std::string& key, const JsonText&) {
                    config = config || key == "config";
                    vocab = vocab || key == "vocab";
                    return Result<>();
                  });
  return config && vocab;
}

}  // namespace

Result<std::string> read_file(const fs::path& path) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) {
    return bad(fmt::format("cannot read {}: {}", path.string(), error.message()));
  }
  if (size > kMaxFileBytes) {
    return bad(fmt::format("{} is larger than {} bytes", path.string(), kMaxFileBytes));
  }
  std::string text;
  text.reserve(static_cast<std::size_t>(size) + simdjson::SIMDJSON_PADDING);
  text.resize(static_cast<std::size_t>(size));
  std::ifstream stream(path, std::ios::binary);
  if (!stream.read(text.data(), static_cast<std::streamsize>(size))) {
    return bad(fmt::format("cannot read {}", path.string()));
  }
  return text;
}

Result<fs::path> find_tokenizer_file(const fs::path& folder) {
  std::error_code error;
  for (const std::string_view name : kNames) {
    if (fs::exists(folder / name, error)) {
      return folder / name;
    }
  }
  std::vector<fs::path> found;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.ends_with(".tiktoken") || name.starts_with("tokenizer.model.v")) {
      found.push_back(entry->path());
    }
  }
  if (error) {
    return bad(fmt::format("cannot read {}: {}", folder.string(), error.message()));
  }
  if (found.empty()) {
    return bad(fmt::format("{} has no tokenizer: no {}", folder.string(), kLookedFor));
  }
  if (found.size() > 1) {
    return bad(fmt::format("{} has {} tokenizer files: name the one to use", folder.string(),
                           found.size()));
  }
  return found.front();
}

TokenizerFileKind tokenizer_file_kind(std::string_view name, std::string_view text) {
  if (name == "tokenizer.json") {
    return TokenizerFileKind::TokenizerJson;
  }
  if (name == "tekken.json") {
    return TokenizerFileKind::Tekken;
  }
  // A protobuf can begin with a line end as well; a brace would then be the length of the first
  // piece, which is short: `<unk>` or the like.
  const std::size_t first = text.find_first_not_of(kJsonSpace);
  if (first == std::string_view::npos || text[first] == '{') {
    return is_tekken(text) ? TokenizerFileKind::Tekken : TokenizerFileKind::TokenizerJson;
  }
  return begins_with_rank(text) ? TokenizerFileKind::Ranks : TokenizerFileKind::SentencePiece;
}

Result<TokenizerSource> read_source(const fs::path& file, std::string text,
                                    const TokenizerConfig& config) {
  switch (tokenizer_file_kind(file.filename().string(), text)) {
    case TokenizerFileKind::TokenizerJson: {
      const Result<std::unique_ptr<const TokenizerFile>> read =
          read_tokenizer_json(std::move(text));
      return read ? make_source(**read) : std::unexpected(read.error());
    }
    case TokenizerFileKind::SentencePiece: return read_sentencepiece(text, config);
    case TokenizerFileKind::Tekken: return read_tekken(std::move(text));
    case TokenizerFileKind::Ranks: {
      Result<RankScheme> scheme = find_rank_scheme(file);
      return scheme ? read_rank_file(text, std::move(*scheme)) : std::unexpected(scheme.error());
    }
  }
  std::unreachable();
}

}  // namespace fairlead::tokenizer
