// links: fl_tokenizer
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/byte_path.hpp"
#include "tokenizer/rank_file.hpp"
#include "tokenizer/tekken.hpp"
#include "tokenizer/vocabulary.hpp"

namespace {

using fairlead::Result;
using namespace fairlead::tokenizer;

using Ranks = std::map<std::string, TokenId, std::less<>>;

void check(bool holds) {
  if (!holds) {
    std::abort();
  }
}

// Whatever loads has bytes and ids for every text.
void use(const Result<TokenizerSource>& source, std::string_view text) {
  if (!source) {
    check(!source.error().message.empty());
    return;
  }
  std::vector<TokenId> ids;
  check(source->path->encode(text, 1, ids, {}).has_value());
  std::string bytes;
  for (const TokenId id : ids) {
    check(source->path->contains(id));
    bytes += source->path->bytes(id);
  }
  check(bytes == text);
}

std::vector<TokenId> joined_by_rank(std::string_view word, const Ranks& ranks) {
  if (const auto whole = ranks.find(word); whole != ranks.end()) {
    return {whole->second};
  }
  std::vector<std::string> parts;
  for (const char c : word) {
    parts.emplace_back(1, c);
  }
  for (;;) {
    auto best = ranks.end();
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find(parts[i] + parts[i + 1]);
      if (found != ranks.end() && (best == ranks.end() || found->second < best->second)) {
        best = found;
        at = i;
      }
    }
    if (best == ranks.end()) {
      break;
    }
    parts[at] = best->first;
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  std::vector<TokenId> ids;
  for (const std::string& part : parts) {
    ids.push_back(ranks.find(part)->second);
  }
  return ids;
}

// Words of four letters, separated by line ends: tokens in the order of their ranks, then a text.
void merges_follow_the_rule(std::string_view input) {
  constexpr std::size_t kMaxText = 400;
  std::string text;
  Ranks ranks;
  Vocabulary vocabulary;
  const auto add = [&](const std::string& token) {
    const auto id = static_cast<TokenId>(ranks.size());
    if (ranks.emplace(token, id).second) {
      check(vocabulary.add_bytes(token, id).has_value());
    }
  };
  for (int byte = 0; byte < 256; ++byte) {
    add(std::string(1, static_cast<char>(byte)));
  }
  for (const char c : input) {
    if (c != '\n') {
      text += static_cast<char>('a' + (static_cast<unsigned char>(c) & 3));
    } else if (!text.empty() && text.size() <= 64) {
      add(text);
      text.clear();
    }
  }
  text.resize(std::min(text.size(), kMaxText));
  check(vocabulary.finish().has_value());
  const auto path = make_rank_path(std::move(vocabulary), Scanner::Gpt2);
  check(path.has_value());
  std::vector<TokenId> ids;
  check((*path)->encode(text, 1, ids, {}).has_value());
  check(text.empty() || ids == joined_by_rank(text, ranks));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  constexpr std::string_view kText = "ab I'm  12\n <x>\u00e9e\u0301\u4e2d <|s|> \n ";
  static const RankScheme kimi = *named_rank_scheme("kimi");
  static const RankScheme cl100k = *named_rank_scheme("cl100k_base");
  use(read_rank_file(input, size % 2 == 0 ? kimi : cl100k), kText);
  use(read_tekken(std::string(input)), kText);
  merges_follow_the_rule(input);
  return 0;
}
