#include "tokenizer/normalizer.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "charsmap_testing.hpp"
#include "tokenizer/charsmap.hpp"
#include "tokenizer/grapheme.hpp"

// Expected texts are what `tokenizers` 0.23.3 gives.
namespace fairlead::tokenizer {
namespace {

Result<Normalizer> create(std::string_view config) {
  return Normalizer::create(*json::parse(config));
}

std::string normalized(std::string_view config, std::string text) {
  const Result<Normalizer> normalizer = create(config);
  EXPECT_TRUE(normalizer) << normalizer.error().message;
  EXPECT_TRUE(normalizer && normalizer->apply(text));
  return text;
}

std::string type(std::string_view name) { return R"({"type":")" + std::string(name) + "\"}"; }

TEST(Normalizer, UnicodeForms) {
  const std::string text = "\u1E69\uFB01\uAC01\u0958\u1E9B\uFF21\u2460\u0F73 \u00B5";
  EXPECT_EQ(normalized(type("NFD"), text),
            "s\u0323\u0307\uFB01\u1100\u1161\u11A8\u0915\u093C\u017F\u0307\uFF21\u2460\u0F71\u0F72 "
            "\u00B5");
  EXPECT_EQ(normalized(type("NFKD"), text),
            "s\u0323\u0307fi\u1100\u1161\u11A8\u0915\u093Cs\u0307A1\u0F71\u0F72 \u03BC");
  EXPECT_EQ(normalized(type("NFC"), text),
            "\u1E69\uFB01\uAC01\u0915\u093C\u1E9B\uFF21\u2460\u0F71\u0F72 \u00B5");
  EXPECT_EQ(normalized(type("NFKC"), text),
            "\u1E69fi\uAC01\u0915\u093C\u1E61A1\u0F71\u0F72 \u03BC");
  // A digit of Unicode 13; the tables are of Unicode 9.
  EXPECT_EQ(normalized(type("NFKC"), "\U0001FBF0"), "\U0001FBF0");
}

TEST(Normalizer, LowercaseLooksAtOneCharacter) {
  EXPECT_EQ(normalized(type("Lowercase"), "A\u03A3 \u0130\u1E9E\U00010400"),
            "a\u03C3 i\u0307\u00DF\U00010428");
}

TEST(Normalizer, StripAccentsTakesMarksOnly) {
  EXPECT_EQ(normalized(type("StripAccents"), "\u00E9e\u0301\u0903\u20DDx"), "\u00E9ex");
}

TEST(Normalizer, Strip) {
  const auto strip = [](std::string_view left, std::string_view right) {
    return normalized(R"({"type":"Strip","strip_left":)" + std::string(left) +
                          R"(,"strip_right":)" + std::string(right) + "}",
                      " \u3000\u0085x y\u00A0\n");
  };
  EXPECT_EQ(strip("true", "true"), "x y");
  EXPECT_EQ(strip("true", "false"), "x y\u00A0\n");
  EXPECT_EQ(strip("false", "true"), " \u3000\u0085x y");
  EXPECT_EQ(normalized(R"({"type":"Strip","strip_left":true,"strip_right":true})", " \n"), "");
}

TEST(Normalizer, PrependOnlyToSomething) {
  EXPECT_EQ(normalized(R"({"type":"Prepend","prepend":"▁"})", "a"), "▁a");
  EXPECT_EQ(normalized(R"({"type":"Prepend","prepend":"▁"})", ""), "");
}

TEST(Normalizer, Replace) {
  const auto replace = [](std::string_view pattern, std::string_view content, std::string text) {
    return normalized(R"({"type":"Replace","pattern":)" + std::string(pattern) + R"(,"content":")" +
                          std::string(content) + "\"}",
                      std::move(text));
  };
  EXPECT_EQ(replace(R"({"String":" "})", "▁", " a  b "), "▁a▁▁b▁");
  EXPECT_EQ(replace(R"({"String":"."})", "", "a.b"), "ab");
  EXPECT_EQ(replace(R"({"String":""})", "x", "ab"), "xaxbx");
  EXPECT_EQ(replace(R"({"String":""})", "x", ""), "");
  EXPECT_EQ(replace(R"({"Regex":" {2,}"})", "▁", "a  b c   "), "a▁b c▁");
  EXPECT_EQ(replace(R"({"Regex":"b*"})", "x", "abba"), "xaxax");
  EXPECT_EQ(replace(R"r({"Regex":"(l)(e)"})r", "$1 $2", "le"), "$1 $2");
}

TEST(Normalizer, Nmt) {
  EXPECT_EQ(normalized(type("Nmt"), "a\u0001\u000B\u007F\u008Fb\t\u200B\u2581\uFEFF\uFFFD\u0085c"),
            "ab     \u0085c");
}

TEST(Normalizer, ByteLevelWritesBytes) {
  EXPECT_EQ(normalized(type("ByteLevel"), "a é\n"), "aĠÃ©Ċ");
}

std::string bert(std::string_view accents, std::string_view lowercase, std::string text) {
  return normalized(R"({"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,)"
                    R"("strip_accents":)" +
                        std::string(accents) + R"(,"lowercase":)" + std::string(lowercase) + "}",
                    std::move(text));
}

TEST(Normalizer, Bert) {
  const std::string text = "\u00C9\u0085\u200D\uFFFD\t中\u3042\U0002B81E\u0903";
  EXPECT_EQ(bert("null", "true", text), "e  中 \u3042 \U0002B81E \u0903");
  EXPECT_EQ(bert("null", "false", text), "\u00C9  中 \u3042 \U0002B81E \u0903");
  EXPECT_EQ(bert("true", "false", text), "E  中 \u3042 \U0002B81E \u0903");
  EXPECT_EQ(bert("false", "true", text), "\u00E9  中 \u3042 \U0002B81E \u0903");
}

TEST(Normalizer, SequencesInOrder) {
  EXPECT_EQ(normalized(R"({"type":"Sequence","normalizers":[{"type":"NFD"},{"type":"StripAccents"},
                          {"type":"Sequence","normalizers":[{"type":"Lowercase"}]}]})",
                       "\u00C9T\u00C9"),
            "ete");
  EXPECT_TRUE(create("null")->empty());
  EXPECT_TRUE(create(R"({"type":"Sequence","normalizers":[]})")->empty());
  EXPECT_TRUE(create(type("NFC"))->nfc_only());
  EXPECT_TRUE(create(R"({"type":"Sequence","normalizers":[{"type":"NFC"}]})")->nfc_only());
  EXPECT_FALSE(create(type("NFKC"))->nfc_only());
  EXPECT_FALSE(
      create(R"({"type":"Sequence","normalizers":[{"type":"NFD"},{"type":"NFC"}]})")->nfc_only());
}

TEST(Normalizer, RefusesByName) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"({"type":"Odd"})", "Odd"},
      {"7", "not a known type"},
      {R"({"type":"Strip","strip_left":true})", "Strip: strip_right"},
      {R"({"type":"Prepend"})", "Prepend: prepend"},
      {R"({"type":"Replace","content":"a"})", "Replace: without a Regex"},
      {R"({"type":"Replace","pattern":{"Regex":"("},"content":"a"})", "Replace: regex"},
      {R"({"type":"Replace","pattern":{"String":"a"}})", "Replace: content"},
      {R"({"type":"BertNormalizer"})", "BertNormalizer: clean_text"},
      {R"({"type":"Precompiled","precompiled_charsmap":null})",
       "Precompiled: precompiled_charsmap"},
      {R"({"type":"Precompiled","precompiled_charsmap":"AAAA"})", "Precompiled: precompiled_chars"},
      {R"({"type":"Precompiled","precompiled_charsmap":"AAAAAA=="})", "cut short"},
      {R"({"type":"Precompiled","precompiled_charsmap":"*AAA"})", "not base64"},
      {R"({"type":"Sequence"})", "without normalizers"},
  };
  for (const auto& [config, reason] : cases) {
    const Result<Normalizer> result = create(config);
    ASSERT_FALSE(result) << config;
    EXPECT_NE(result.error().message.find(reason), std::string::npos) << result.error().message;
  }
}

TEST(Normalizer, CountsTheBytesOfTheFirstCharacter) {
  const auto start = [](std::string_view config, std::string text) {
    std::size_t bytes = 99;
    EXPECT_TRUE(create(config)->apply(text, bytes, {}));
    return bytes;
  };
  EXPECT_EQ(start("null", "\u00E9a"), 2);
  EXPECT_EQ(start("null", ""), 0);
  EXPECT_EQ(start(type("NFKC"), "\uFB01x"), 2);
  EXPECT_EQ(start(R"({"type":"Prepend","prepend":"▁"})", "ab"), 4);
  EXPECT_EQ(start(R"({"type":"Strip","strip_left":true,"strip_right":true})", " a"), 0);
  EXPECT_EQ(start(R"({"type":"Replace","pattern":{"String":" "},"content":"▁"})", " a"), 3);
  EXPECT_EQ(start(R"({"type":"Replace","pattern":{"Regex":" +"},"content":"▁"})", "  a"), 0);
  EXPECT_EQ(start(type("ByteLevel"), "\u00E9a"), 4);
}

TEST(Normalizer, StopsWhenNobodyWaits) {
  std::stop_source source;
  source.request_stop();
  for (const std::string_view name : {"NFKC", "Lowercase", "ByteLevel"}) {
    std::string text(100'000, 'A');
    const Result<> done = create(type(name))->apply(text, source.get_token());
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, ErrorCode::ClientGone);
  }
}

TEST(Normalizer, RefusesTextThatExplodes) {
  std::string config = R"({"type":"Sequence","normalizers":[)";
  for (int i = 0; i < 40; ++i) {
    config += R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"},)";
  }
  config.back() = ']';
  std::string text = "a";
  const Result<> done = create(config + "}")->apply(text);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::InvalidRequest);
}

TEST(Normalizer, LongTextsInLinearTime) {
  const auto start = std::chrono::steady_clock::now();
  std::string text;
  for (int i = 0; i < 300'000; ++i) {
    text += "\u00C9\uFF21 \uAC01";
  }
  for (const std::string_view name : {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Nmt"}) {
    EXPECT_FALSE(normalized(type(name), text).empty());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

// A charsmap that maps every byte sequence to "X".
std::string every_byte_charsmap() {
  std::vector<std::uint32_t> units(1024);
  units[0] = 256 << 10;
  for (std::uint32_t byte = 1; byte < 256; ++byte) {
    units[256 ^ byte] = byte | 1 << 8 | (256 ^ byte ^ (512 + byte)) << 10;
    units[512 + byte] = std::uint32_t{1} << 31;
  }
  std::string out;
  testing::append_unit(out, 4096);
  for (const std::uint32_t unit : units) {
    testing::append_unit(out, unit);
  }
  return out + std::string("X\0Y", 3);
}

TEST(Charsmap, TakesTheShortestKey) {
  const Result<Charsmap> map = Charsmap::create(every_byte_charsmap());
  ASSERT_TRUE(map);
  EXPECT_EQ(map->transform("a\u0301"), "X");
  EXPECT_EQ(map->transform(std::string_view("\0", 1)), std::nullopt);
  EXPECT_EQ(map->transform(""), std::nullopt);
}

TEST(Charsmap, StaysInsideBrokenTries) {
  std::string bytes = every_byte_charsmap();
  EXPECT_FALSE(Charsmap::create(std::string_view(bytes).substr(0, 4000)));
  EXPECT_FALSE(Charsmap::create("\xFF\xFF\xFF\xFF"));
  EXPECT_FALSE(Charsmap::create(bytes + "\xC3"));
  for (std::size_t at = 4; at < 4100; ++at) {
    for (const char value : {'\xFF', '\x01', '\x80'}) {
      std::string broken = bytes;
      broken[at] = value;
      if (const Result<Charsmap> map = Charsmap::create(broken)) {
        for (int byte = 1; byte < 256; ++byte) {
          map->transform(std::string(1, static_cast<char>(byte)) + "x");
        }
      }
    }
  }
}

std::string clusters(std::string_view text) {
  std::string out;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t end = grapheme_end(text, pos);
    out += out.empty() ? "" : "|";
    out += text.substr(pos, end - pos);
    pos = end;
  }
  return out;
}

TEST(Grapheme, Clusters) {
  EXPECT_EQ(clusters("ae\u0301\r\n\n\u0301x"), "a|e\u0301|\r\n|\n|\u0301|x");
  EXPECT_EQ(clusters("\u1100\u1161\u11A8\u11A8\uAC00\u11A8\uAC01\u1161"),
            "\u1100\u1161\u11A8\u11A8|\uAC00\u11A8|\uAC01|\u1161");
  EXPECT_EQ(clusters("\U0001F1E6\U0001F1E7\U0001F1E8a"), "\U0001F1E6\U0001F1E7|\U0001F1E8|a");
  EXPECT_EQ(clusters("\U0001F468\U0001F3FB\u200D\U0001F468a\u200D\U0001F468"),
            "\U0001F468\U0001F3FB\u200D\U0001F468|a\u200D|\U0001F468");
  EXPECT_EQ(clusters("\u0600a\u0903"), "\u0600a\u0903");
  EXPECT_EQ(clusters("\u0915\u094D\u0915\u0915\u200D\u0915"),
            "\u0915\u094D\u0915|\u0915\u200D|\u0915");
}

}  // namespace
}  // namespace fairlead::tokenizer
