#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "base/utf8.hpp"
#include "tokenizer/byte_level.hpp"
#include "tokenizer/tokenizer.hpp"

namespace fairlead::tokenizer::testing {

/// How a byte-level vocabulary spells these bytes.
inline std::string spelled(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    utf8::append(out, byte_level_char(static_cast<unsigned char>(c)));
  }
  return out;
}

/// A small `tokenizer.json`: ids 0–255 are the bytes in order, then one token per merge.
struct SmallModel {
  std::vector<std::pair<std::string, std::string>> merges;  ///< Pairs of bytes, by rank.
  std::string added_tokens = "[]";                          ///< JSON of the member.
  std::string normalizer = "null";                          ///< Likewise below.
  std::string pre_tokenizer =
      R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true})";
  std::string post_processor = "null";
  std::string decoder = R"({"type":"ByteLevel"})";
  std::string model_options = "";  ///< Further members of the model, each with a comma behind.

  /// The file's text.
  std::string json() const {
    json::Object vocab;
    for (int byte = 0; byte < 256; ++byte) {
      vocab.set(spelled(std::string(1, static_cast<char>(byte))), byte);
    }
    json::Array list;
    for (const auto& [left, right] : merges) {
      if (vocab.find(spelled(left + right)) == nullptr) {
        vocab.set(spelled(left + right), static_cast<std::int64_t>(vocab.size()));
      }
      list.emplace_back(json::Array{spelled(left), spelled(right)});
    }
    return R"({"version":"1.0","added_tokens":)" + added_tokens + R"(,"normalizer":)" + normalizer +
           R"(,"pre_tokenizer":)" + pre_tokenizer + R"(,"post_processor":)" + post_processor +
           R"(,"decoder":)" + decoder + R"(,"model":{"type":"BPE",)" + model_options +
           R"("vocab":)" + json::dump(vocab) + R"(,"merges":)" + json::dump(list) + "}}";
  }
};

/// An entry of `added_tokens`; `flags` names those that are true, separated by spaces.
inline std::string added_token(std::string_view content, std::string_view flags = "") {
  std::string out = R"({"id":0,"content":)";
  json::append_string(out, content);
  for (const std::string_view flag : {"single_word", "lstrip", "rstrip", "normalized", "special"}) {
    out += ",\"" + std::string(flag) + "\":";
    out += flags.find(flag) != std::string_view::npos ? "true" : "false";
  }
  return out + "}";
}

/// The tokenizer of a file's text; fails the test when it does not load.
inline std::shared_ptr<const Tokenizer> make(const std::string& json,
                                             std::string_view config = "") {
  auto tokenizer = Tokenizer::parse(json, config);
  if (!tokenizer) {
    ADD_FAILURE() << tokenizer.error().message;
    return nullptr;
  }
  return *tokenizer;
}

/// The ids of a text.
inline std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text,
                                   bool add_special_tokens = false) {
  std::vector<TokenId> ids;
  const Result<> done = tokenizer.encode(text, add_special_tokens, ids);
  EXPECT_TRUE(done) << done.error().message;
  return ids;
}

/// What the ids stand for, separated by `|`.
inline std::string pieces(const Tokenizer& tokenizer, std::string_view text) {
  std::string out;
  for (const TokenId id : encode(tokenizer, text)) {
    out += out.empty() ? "" : "|";
    out += tokenizer.token_bytes(id);
  }
  return out;
}

/// Random well-formed text in which spaces, contractions, digits, marks and rare planes meet often.
inline std::string random_text(std::mt19937& random, std::size_t characters) {
  static constexpr char32_t kOften[] = {' ',  ' ',    '\n', '\r',   '\t',   '\'',  's',   'S',
                                        't',  'l',    'r',  'e',    'v',    'a',   '1',   '9',
                                        '!',  '_',    '<',  0x17F,  0xA0,   0x301, 0x316, 0x4E2D,
                                        0x85, 0x2028, 0xE9, 0x1100, 0x1161, 0x11A8};
  std::string text;
  for (std::size_t i = 0; i < characters; ++i) {
    if (random() % 4 != 0) {
      utf8::append(text, kOften[random() % std::size(kOften)]);
    } else {
      utf8::append(text, random() % 2 == 0 ? random() % 0x3000 : random() % 0x110000);
    }
  }
  return text;
}

}  // namespace fairlead::tokenizer::testing
