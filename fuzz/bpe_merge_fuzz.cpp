// links: fl_tokenizer
//
// A small model of the input's first part encodes words of its second part: whatever way it takes,
// the result is that of the definition of byte-pair encoding.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/utf8.hpp"
#include "tokenizer/bpe.hpp"
#include "tokenizer/byte_level.hpp"

namespace fairlead::tokenizer {
namespace {

constexpr std::size_t kMaxMerges = 120;
constexpr std::size_t kMaxTokenBytes = 40;
constexpr std::size_t kMaxWords = 64;

struct Input {
  const std::uint8_t* data;
  std::size_t size;

  std::uint8_t take() {
    if (size == 0) {
      return 0;
    }
    --size;
    return *data++;
  }
};

// What words are made of: letters, characters of two, three and four bytes, parts of them.
constexpr std::array<std::string_view, 16> kPieces = {
    "a",        "b",    " ",        "\xC3\xA9", "\xC3",         "\xE4\xB8\xAD",     "\xE4\xB8\xAE",
    "\xE4",     "\xB8", "\xE4\xB8", "\xAD",     "\xE5\x9B\xBD", "\xF0\x9F\x98\x80", "\xF0",
    "\x9F\x98", "\x80"};

struct Model {
  std::vector<std::string> tokens;
  std::vector<std::pair<std::string, std::string>> merges;
  std::map<std::pair<std::string, std::string>, std::size_t> ranks;
  bool ignore_merges = false;

  explicit Model(Input& input) {
    for (int byte = 0; byte < 256; ++byte) {
      tokens.emplace_back(1, static_cast<char>(byte));
    }
    std::vector<std::string> usable;
    for (const unsigned char byte :
         std::string_view("ab \xC3\xA9\xE4\xB8\xAD\xAE\xE5\x9B\xBD\xF0\x9F\x98\x80")) {
      usable.push_back(tokens[byte]);
    }
    const std::uint8_t options = input.take();
    ignore_merges = (options & 1) != 0;
    const bool any_order = (options & 2) != 0;
    std::set<std::string> known(tokens.begin(), tokens.end());
    for (std::size_t count = input.take() % kMaxMerges; count > 0; --count) {
      const std::string& left = usable[input.take() % usable.size()];
      const std::string& right = usable[input.take() % usable.size()];
      std::string merged = left + right;
      if (merged.size() > kMaxTokenBytes) {
        continue;
      }
      const std::size_t at = any_order ? input.take() % (merges.size() + 1) : merges.size();
      merges.insert(merges.begin() + static_cast<std::ptrdiff_t>(at), {left, right});
      if (known.insert(merged).second) {
        tokens.push_back(merged);
        usable.push_back(std::move(merged));
      }
    }
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
      ranks[merges[rank]] = rank;
    }
  }

  // The lowest rank, the leftmost of equals, until no pair merges.
  std::vector<std::string> by_definition(std::string_view word) const {
    for (const std::string& token : tokens) {
      if (ignore_merges && token == word) {
        return {token};
      }
    }
    std::vector<std::string> parts;
    for (const char c : word) {
      parts.emplace_back(1, c);
    }
    for (;;) {
      std::size_t best_rank = merges.size();
      std::size_t best = 0;
      for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto it = ranks.find({parts[i], parts[i + 1]});
        if (it != ranks.end() && it->second < best_rank) {
          best_rank = it->second;
          best = i;
        }
      }
      if (best_rank == merges.size()) {
        return parts;
      }
      parts[best] += parts[best + 1];
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
  }
};

std::string spelled(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    utf8::append(out, byte_level_char(static_cast<unsigned char>(c)));
  }
  return out;
}

BpeModel fast(const Model& model) {
  Vocabulary vocabulary;
  for (std::size_t id = 0; id < model.tokens.size(); ++id) {
    if (!vocabulary.add(spelled(model.tokens[id]), static_cast<TokenId>(id))) {
      std::abort();
    }
  }
  if (!vocabulary.finish()) {
    std::abort();
  }
  BpeOptions options;
  options.ignore_merges = model.ignore_merges;
  auto bpe = BpeModel::create(std::move(vocabulary), options);
  if (!bpe) {
    std::abort();
  }
  for (const auto& [left, right] : model.merges) {
    if (!bpe->add_merge(spelled(left), spelled(right))) {
      std::abort();
    }
  }
  bpe->finish();
  return std::move(*bpe);
}

void check(const Model& model, const BpeModel& bpe, std::string_view word) {
  const std::vector<std::string> expected = model.by_definition(word);
  for (int time = 0; time < 2; ++time) {  // the second time it may be remembered
    std::vector<TokenId> ids;
    bpe.encode(word, ids);
    bool equal = ids.size() == expected.size();
    for (std::size_t i = 0; equal && i < ids.size(); ++i) {
      equal = model.tokens[ids[i]] == expected[i];
    }
    if (!equal) {
      std::abort();
    }
  }
}

}  // namespace
}  // namespace fairlead::tokenizer

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead::tokenizer;
  Input input{data, size};
  const Model model(input);
  const BpeModel bpe = fast(model);
  for (const std::string& token : model.tokens) {
    if (token.size() > 1) {
      check(model, bpe, token);
    }
  }
  for (std::size_t words = 0; words < kMaxWords && input.size != 0; ++words) {
    std::string word;
    for (std::size_t length = 1 + input.take() % 40; length > 0 && input.size != 0; --length) {
      word += kPieces[input.take() % kPieces.size()];
    }
    check(model, bpe, word);
  }
  return 0;
}
