// links: fl_tokenizer
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "base/utf8.hpp"
#include "tokenizer/byte_level.hpp"
#include "tokenizer/incremental_decoder.hpp"
#include "tokenizer/normalization.hpp"
#include "tokenizer/pre_tokenizer.hpp"
#include "tokenizer/tokenizer.hpp"

namespace fairlead::tokenizer {
namespace {

constexpr std::string_view kPatterns[] = {
    kGpt2Pattern,
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
};

std::vector<Span> pieces(const Split& split, std::string_view text) {
  std::vector<Span> spans;
  if (!split.apply(text, 0, spans)) {
    std::abort();
  }
  return spans;
}

void scanners_equal_regexes(std::string_view text) {
  static const auto splits = [] {
    std::vector<std::pair<Split, Split>> both;
    for (const std::string_view pattern : kPatterns) {
      both.emplace_back(*Split::from_regex(pattern, SplitBehavior::Isolated, false),
                        *Split::from_regex(pattern, SplitBehavior::Isolated, false, true));
      if (both.back().first.scanner() == Scanner::None) {
        std::abort();
      }
    }
    return both;
  }();
  for (const auto& [scanner, regex] : splits) {
    if (pieces(scanner, text) != pieces(regex, text)) {
      std::abort();
    }
  }
}

void normalization_is_stable(std::string_view text) {
  std::string once;
  if (!normalize_nfc(text, once)) {
    return;
  }
  std::string twice;
  if (!utf8::valid(once) || (normalize_nfc(once, twice) && twice != once)) {
    std::abort();
  }
}

// Ids 0–255 are the bytes, 256 a half of a character, 257 special, the rest unknown.
std::shared_ptr<const Tokenizer> byte_tokenizer() {
  json::Object vocab;
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelling;
    utf8::append(spelling, byte_level_char(static_cast<unsigned char>(byte)));
    vocab.set(spelling, byte);
  }
  vocab.set("\u00e4\u00b8", 256);
  const std::string text =
      R"({"added_tokens":[{"id":257,"content":"<s>","single_word":false,"lstrip":false,"rstrip":false,)"
      R"("normalized":false,"special":true}],"pre_tokenizer":{"type":"ByteLevel"},)"
      R"("decoder":{"type":"ByteLevel"},"model":{"type":"BPE","merges":["\u00e4 \u00b8"],"vocab":)" +
      json::dump(vocab) + "}}";
  return *Tokenizer::parse(text, "");
}

void streaming_equals_decoding(std::string_view bytes) {
  static const std::shared_ptr<const Tokenizer> tokenizer = byte_tokenizer();
  std::vector<TokenId> ids;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    ids.push_back(byte == '\\' ? 256u : byte == '~' ? 257u : byte == '|' ? 900u : byte);
  }
  for (const bool skip : {false, true}) {
    IncrementalDecoder decoder(*tokenizer, skip);
    std::string joined;
    for (const TokenId id : ids) {
      decoder.push(id, joined);
      if (!utf8::valid(joined)) {
        std::abort();
      }
    }
    decoder.flush(joined);
    if (joined != tokenizer->decode(ids, skip)) {
      std::abort();
    }
    // Behind any prompt the text continues: what the prompt completes plus what follows.
    for (std::size_t cut = 0; cut <= ids.size() && ids.size() <= 16; ++cut) {
      const std::span<const TokenId> all(ids);
      IncrementalDecoder behind(*tokenizer, skip, all.first(cut));
      std::string rest;
      for (const TokenId id : all.subspan(cut)) {
        behind.push(id, rest);
      }
      behind.flush(rest);
      if (!joined.ends_with(rest) || !utf8::valid(rest)) {
        std::abort();
      }
    }
  }
}

}  // namespace

void check(std::string_view bytes) {
  const std::string text = utf8::lossy(bytes);
  scanners_equal_regexes(text);
  normalization_is_stable(text);
  streaming_equals_decoding(bytes);
}

}  // namespace fairlead::tokenizer

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fairlead::tokenizer::check({reinterpret_cast<const char*>(data), size});
  return 0;
}
