// links: fl_tokenizer
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "base/utf8.hpp"
#include "tokenizer/byte_level.hpp"
#include "tokenizer/incremental_decoder.hpp"
#include "tokenizer/normalization.hpp"
#include "tokenizer/pre_tokenizer.hpp"
#include "tokenizer/scanners.hpp"
#include "tokenizer/tokenizer.hpp"

namespace fairlead::tokenizer {
namespace {

using Spans = std::vector<Span>;

Spans by_scanner(Scanner scanner, std::string_view text) {
  Spans words;
  for_each_word(scanner, text,
                [&](std::size_t begin, std::size_t end) { words.push_back({begin, end}); });
  return words;
}

Spans by_regex(std::span<const Split> splits, std::string_view text) {
  Spans pieces;
  if (!text.empty()) {
    pieces.push_back({0, text.size()});
  }
  for (const Split& split : splits) {
    Spans next;
    for (const Span& piece : pieces) {
      if (!split.apply(text.substr(piece.begin, piece.end - piece.begin), piece.begin, next)) {
        std::abort();
      }
    }
    pieces = std::move(next);
  }
  return pieces;
}

void scanners_equal_regexes(std::string_view text) {
  static const auto all = [] {
    std::vector<std::pair<Scanner, std::vector<Split>>> both;
    for (const Scanner scanner : kAllScanners) {
      std::vector<Split> splits;
      for (const std::string_view pattern : scanner_patterns(scanner)) {
        splits.push_back(*Split::from_regex(pattern, SplitBehavior::Isolated, false, true));
      }
      if (splits.empty()) {
        std::abort();
      }
      both.emplace_back(scanner, std::move(splits));
    }
    return both;
  }();
  for (const auto& [scanner, splits] : all) {
    if (by_scanner(scanner, text) != by_regex(splits, text)) {
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
