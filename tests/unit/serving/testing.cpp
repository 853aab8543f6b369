#include "serving/testing.hpp"

#include "base/json.hpp"
#include "base/utf8.hpp"

namespace fairlead::serving::testing {

std::shared_ptr<const tokenizer::Tokenizer> byte_tokenizer() {
  static const auto instance = [] {
    // The byte-level alphabet: printable bytes stand for themselves, the rest follow from U+0100.
    json::Object vocab;
    int shifted = 0;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable =
          (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
      std::string text;
      utf8::append(text, static_cast<char32_t>(printable ? byte : 256 + shifted));
      shifted += printable ? 0 : 1;
      vocab.set(text, byte);
    }
    const auto added = [](int id, const char* content, bool special) {
      json::Object token;
      token.set("id", id);
      token.set("content", content);
      for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"}) {
        token.set(flag, false);
      }
      token.set("special", special);
      return json::Value(std::move(token));
    };
    json::Object model;
    model.set("type", "BPE");
    model.set("vocab", std::move(vocab));
    model.set("merges", json::Array());
    json::Object byte_level;
    byte_level.set("type", "ByteLevel");
    byte_level.set("add_prefix_space", false);
    byte_level.set("trim_offsets", true);
    byte_level.set("use_regex", true);
    json::Object root;
    root.set("version", "1.0");
    root.set("added_tokens", json::Array{added(256, "<eos>", true), added(257, "<stop>", false)});
    root.set("normalizer", json::Value());
    root.set("pre_tokenizer", byte_level);
    root.set("post_processor", json::Value());
    root.set("decoder", byte_level);
    root.set("model", std::move(model));
    auto tokenizer = tokenizer::Tokenizer::parse(json::dump(root), "");
    if (!tokenizer) {
      ADD_FAILURE() << tokenizer.error().message;
    }
    return *tokenizer;
  }();
  return instance;
}

std::vector<std::uint32_t> ids_of(std::string_view text) {
  std::vector<std::uint32_t> ids;
  for (const char c : text) {
    ids.push_back(static_cast<unsigned char>(c));
  }
  return ids;
}

}  // namespace fairlead::serving::testing
