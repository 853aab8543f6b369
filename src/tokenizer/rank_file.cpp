#include "tokenizer/rank_file.hpp"

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <utility>

#include "tokenizer/base64.hpp"
#include "tokenizer/byte_path.hpp"
#include "tokenizer/rank_merges.hpp"
#include "tokenizer/vocabulary.hpp"

namespace fairlead::tokenizer {
namespace {

std::unexpected<Error> bad(std::size_t line, std::string_view message) {
  return fail(ErrorCode::InvalidRequest, fmt::format("rank file: line {}: {}", line, message));
}

Result<> add_line(std::string_view line, std::size_t number, std::string& bytes,
                  Vocabulary& vocabulary) {
  const std::size_t space = line.find(' ');
  bytes.clear();
  if (space == 0 || space == std::string_view::npos ||
      !append_base64_bytes(bytes, line.substr(0, space)) || bytes.empty()) {
    return bad(number, "not base64, a space and a rank");
  }
  if (bytes.size() > kMaxRankTokenBytes) {
    return bad(number, fmt::format("a token of more than {} bytes", kMaxRankTokenBytes));
  }
  TokenId rank = 0;
  const char* const end = line.data() + line.size();
  const auto [at, code] = std::from_chars(line.data() + space + 1, end, rank);
  if (code != std::errc() || at != end || rank > kMaxTokenId) {
    return bad(number, fmt::format("the rank is no number up to {}", kMaxTokenId));
  }
  return vocabulary.add_bytes(bytes, rank);
}

Result<Vocabulary> read_vocabulary(std::string_view text) {
  Vocabulary vocabulary;
  std::string bytes;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    if (line.empty()) {
      continue;
    }
    if (Result<> added = add_line(line, number, bytes, vocabulary); !added) {
      return std::unexpected(added.error());
    }
  }
  if (Result<> finished = vocabulary.finish(); !finished) {
    return std::unexpected(finished.error());
  }
  return vocabulary;
}

}  // namespace

Result<TokenizerSource> read_rank_file(std::string_view text, RankScheme scheme) {
  Result<Vocabulary> vocabulary = read_vocabulary(text);
  if (!vocabulary) {
    return std::unexpected(vocabulary.error());
  }
  // Kimi's class counts the ranks and numbers on from there.
  const auto first = static_cast<TokenId>(vocabulary->size());
  Result<std::unique_ptr<const TextPath>> path =
      make_rank_path(std::move(*vocabulary), scheme.scanner);
  if (!path) {
    Error error = path.error();
    error.message = "rank file: " + error.message;
    return std::unexpected(std::move(error));
  }
  TokenizerSource source;
  source.path = std::move(*path);
  source.written_ids = true;
  source.with_config = true;
  source.added_tokens = std::move(scheme.added_tokens);
  for (TokenId id = first; id < first + scheme.reserved; ++id) {
    AddedToken token;
    token.content = fmt::format("<|reserved_token_{}|>", id);
    token.id = id;
    source.added_tokens.push_back(std::move(token));
  }
  return source;
}

}  // namespace fairlead::tokenizer
