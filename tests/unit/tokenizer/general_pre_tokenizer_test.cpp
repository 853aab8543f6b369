#include "tokenizer/general_pre_tokenizer.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

// Expected pieces are what `tokenizers` 0.23.3 gives.
namespace fairlead::tokenizer {
namespace {

Result<GeneralPreTokenizer> create(std::string_view config) {
  return GeneralPreTokenizer::create(*json::parse(config));
}

// The pieces, separated by `|`.
std::string pieces(std::string_view config, std::string_view text, std::size_t start_bytes = 1) {
  const Result<GeneralPreTokenizer> pre = create(config);
  EXPECT_TRUE(pre) << pre.error().message;
  std::string out;
  const auto append = [&](std::string_view piece) -> Result<> {
    EXPECT_FALSE(piece.empty());
    out += out.empty() ? "" : "|";
    out += piece;
    return {};
  };
  EXPECT_TRUE(pre && pre->split(text, start_bytes, append));
  return out;
}

std::string type(std::string_view name, std::string_view options = "") {
  return R"({"type":")" + std::string(name) + "\"" + std::string(options) + "}";
}

TEST(GeneralPreTokenizer, NoneLeavesTheTextWhole) {
  EXPECT_EQ(pieces("null", "a b"), "a b");
  EXPECT_EQ(pieces(R"({"type":"Sequence","pretokenizers":[]})", "a b"), "a b");
  EXPECT_EQ(pieces("null", ""), "");
}

TEST(GeneralPreTokenizer, WhitespaceKinds) {
  const std::string text = "Hey,\u3000man\u00A0\u0085(2\u00BD) \u00E9t\u00E9_1";
  EXPECT_EQ(pieces(type("Whitespace"), text), "Hey|,|man|(|2|\u00BD)|\u00E9t\u00E9_1");
  EXPECT_EQ(pieces(type("WhitespaceSplit"), text), "Hey,|man|(2\u00BD)|\u00E9t\u00E9_1");
  EXPECT_EQ(pieces(type("BertPreTokenizer"), text), "Hey|,|man|(|2\u00BD|)|\u00E9t\u00E9|_|1");
  EXPECT_EQ(pieces(type("Whitespace"), " \n"), "");
}

TEST(GeneralPreTokenizer, PunctuationBehaviours) {
  const auto punctuation = [](std::string_view behavior) {
    return pieces(type("Punctuation", ",\"behavior\":\"" + std::string(behavior) + "\""),
                  "?!Hey\u3001 you+\u2014a");
  };
  EXPECT_EQ(pieces(type("Punctuation"), "?!Hey"), "?|!|Hey");
  EXPECT_EQ(punctuation("Isolated"), "?|!|Hey|\u3001| you|+|\u2014|a");
  EXPECT_EQ(punctuation("Removed"), "Hey| you|a");
  EXPECT_EQ(punctuation("MergedWithPrevious"), "?|!|Hey\u3001| you+|\u2014|a");
  EXPECT_EQ(punctuation("MergedWithNext"), "?|!Hey|\u3001 you|+|\u2014a");
  EXPECT_EQ(punctuation("Contiguous"), "?!|Hey|\u3001| you|+\u2014|a");
}

TEST(GeneralPreTokenizer, Digits) {
  // U+11DE0 is a digit of Unicode 17.
  const std::string text = "a12\u0663\u00BDb\U00011DE0c";
  EXPECT_EQ(pieces(type("Digits", R"(,"individual_digits":true)"), text),
            "a|1|2|\u0663|\u00BD|b|\U00011DE0|c");
  EXPECT_EQ(pieces(type("Digits", R"(,"individual_digits":false)"), text),
            "a|12\u0663\u00BD|b|\U00011DE0|c");
}

TEST(GeneralPreTokenizer, ByteLevel) {
  const auto byte_level = [](bool prefix, bool regex, std::string_view text) {
    return pieces(type("ByteLevel", std::string(R"(,"trim_offsets":true,"add_prefix_space":)") +
                                        (prefix ? "true" : "false") +
                                        ",\"use_regex\":" + (regex ? "true" : "false")),
                  text);
  };
  EXPECT_EQ(byte_level(false, true, "I'm  \u00E9\n"), "I|'m|Ġ|ĠÃ©|Ċ");
  EXPECT_EQ(byte_level(true, true, "I'm"), "ĠI|'m");
  EXPECT_EQ(byte_level(true, false, "a b"), "ĠaĠb");
  EXPECT_EQ(byte_level(true, false, " a"), "Ġa");
}

TEST(GeneralPreTokenizer, Metaspace) {
  const auto metaspace = [](std::string_view options, std::string_view text,
                            std::size_t start_bytes = 1) {
    return pieces(type("Metaspace", R"(,"replacement":"▁")" + std::string(options)), text,
                  start_bytes);
  };
  EXPECT_EQ(metaspace("", "Hey  you"), "▁Hey|▁|▁you");
  EXPECT_EQ(metaspace("", " Hey"), "▁Hey");
  EXPECT_EQ(metaspace("", "▁Hey", 0), "▁Hey");
  EXPECT_EQ(metaspace(R"(,"split":false)", "Hey you "), "▁Hey▁you▁");
  EXPECT_EQ(metaspace(R"(,"prepend_scheme":"never")", "a b"), "a|▁b");
  EXPECT_EQ(metaspace(R"(,"prepend_scheme":"first")", "a b", 1), "▁a|▁b");
  EXPECT_EQ(metaspace(R"(,"prepend_scheme":"first")", "a b", 0), "a|▁b");
  EXPECT_EQ(metaspace(R"(,"add_prefix_space":true)", "a"), "▁a");
}

TEST(GeneralPreTokenizer, FirstIsWhatBeginsTheInput) {
  const std::string first = type("Metaspace", R"(,"replacement":"_","prepend_scheme":"first")");
  const auto after = [&](const std::string& step) {
    return R"({"type":"Sequence","pretokenizers":[)" + step + "," + first + "]}";
  };
  EXPECT_EQ(pieces(after(type("WhitespaceSplit")), "a b", 1), "_a|b");
  EXPECT_EQ(pieces(after(type("WhitespaceSplit")), " a b", 1), "a|b");
  // Both stand for the first character: \uFB01 became fi, a space was put before.
  EXPECT_EQ(pieces(after(type("FixedLength", R"(,"length":1)")), "fix", 2), "_f|_i|x");
}

TEST(GeneralPreTokenizer, FixedLengthCountsCharacters) {
  EXPECT_EQ(pieces(type("FixedLength"), "Hello \U0001F44B world"), "Hello| \U0001F44B wo|rld");
  EXPECT_EQ(pieces(type("FixedLength", R"(,"length":2)"), "\u00E9ab"), "\u00E9a|b");
}

TEST(GeneralPreTokenizer, CharDelimiterSplit) {
  EXPECT_EQ(pieces(type("CharDelimiterSplit", R"(,"delimiter":"é")"), "éaébé"), "a|b");
}

TEST(GeneralPreTokenizer, UnicodeScripts) {
  EXPECT_EQ(pieces(type("UnicodeScripts"), "Apples are りんご 林檎。ーYes"),
            "Apples are |りんご 林檎|。|ー|Yes");
  // What no script claims goes with what is before it, or nowhere.
  EXPECT_EQ(pieces(type("UnicodeScripts"), "  a b"), "a b");
  EXPECT_EQ(pieces(type("UnicodeScripts"), "  "), "");
}

TEST(GeneralPreTokenizer, Splits) {
  const auto split = [](std::string_view pattern, std::string_view behavior, bool invert,
                        std::string_view text) {
    return pieces(
        type("Split", ",\"pattern\":" + std::string(pattern) + ",\"behavior\":\"" +
                          std::string(behavior) + "\",\"invert\":" + (invert ? "true" : "false")),
        text);
  };
  constexpr std::string_view kDash = R"({"String":"-"})";
  constexpr std::string_view kText = "-the-final--countdown-";
  EXPECT_EQ(split(kDash, "Isolated", false, kText), "-|the|-|final|-|-|countdown|-");
  EXPECT_EQ(split(kDash, "Removed", false, kText), "the|final|countdown");
  EXPECT_EQ(split(kDash, "Removed", true, kText), "-|-|-|-|-");
  EXPECT_EQ(split(kDash, "MergedWithPrevious", false, kText), "-|the-|final-|-|countdown-");
  EXPECT_EQ(split(kDash, "MergedWithNext", false, kText), "-the|-final|-|-countdown|-");
  EXPECT_EQ(split(kDash, "Contiguous", false, kText), "-|the|-|final|--|countdown|-");
  EXPECT_EQ(split(kDash, "MergedWithNext", true, "ab-c"), "ab-|c");
  EXPECT_EQ(split(R"({"String":""})", "Isolated", false, "ab"), "a|b");
  EXPECT_EQ(split(R"({"Regex":"b*"})", "MergedWithNext", false, "abbca"), "a|bbc|a");
  EXPECT_EQ(split(R"({"Regex":"b*"})", "MergedWithPrevious", true, "abbca"), "a|bbc|a");
  // Latin-1 fractions are word characters outside of brackets only.
  EXPECT_EQ(split(R"r({"Regex":"\\w+|[^\\w\\s]+"})r", "Isolated", false, "a\u00BD !\u00BD"),
            "a\u00BD| |!\u00BD");
}

TEST(GeneralPreTokenizer, ByteLevelAnywhereInASequence) {
  EXPECT_EQ(pieces(R"({"type":"Sequence","pretokenizers":[
                      {"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,
                       "use_regex":false},
                      {"type":"Split","pattern":{"String":"Ġ"},"behavior":"MergedWithNext",
                       "invert":false},
                      {"type":"Sequence","pretokenizers":[{"type":"FixedLength","length":3}]}]})",
                   "\u00E9t\u00E9 ab"),
            "ĠÃ©|tÃ©|Ġab");
}

TEST(GeneralPreTokenizer, RefusesByName) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"({"type":"Odd"})", "Odd"},
      {"7", "not a known type"},
      {R"({"type":"Metaspace"})", "Metaspace: replacement"},
      {R"({"type":"Metaspace","replacement":"ab"})", "one character"},
      {R"({"type":"Metaspace","replacement":"_","prepend_scheme":"odd"})", "'odd'"},
      {R"({"type":"Metaspace","replacement":"_","add_prefix_space":false})", "does not match"},
      {R"({"type":"Metaspace","replacement":"_","split":3})", "Metaspace: split"},
      {R"({"type":"CharDelimiterSplit","delimiter":""})", "CharDelimiterSplit: delimiter"},
      {R"({"type":"Digits"})", "Digits: individual_digits"},
      {R"({"type":"FixedLength","length":0})", "FixedLength: length"},
      {R"({"type":"FixedLength","length":-1})", "FixedLength: length"},
      {R"({"type":"Punctuation","behavior":"isolated"})", "Punctuation: behavior"},
      {R"({"type":"ByteLevel"})", "ByteLevel: add_prefix_space"},
      {R"({"type":"Split","pattern":{"Regex":"("},"behavior":"Removed","invert":false})",
       "Split: regex"},
      {R"({"type":"Split","pattern":{"Regex":"\\X"},"behavior":"Removed","invert":false})",
       "Split: regex"},
      {R"({"type":"Split","pattern":{"Regex":"a"},"behavior":"Removed"})", "Split: invert"},
      {R"({"type":"Sequence"})", "without pretokenizers"},
  };
  for (const auto& [config, reason] : cases) {
    const Result<GeneralPreTokenizer> result = create(config);
    ASSERT_FALSE(result) << config;
    EXPECT_NE(result.error().message.find(reason), std::string::npos) << result.error().message;
  }
}

TEST(GeneralPreTokenizer, PassesOnTheFailureOfTheSink) {
  int calls = 0;
  const Result<> done =
      create(type("WhitespaceSplit"))->split("a b c", 1, [&](std::string_view) -> Result<> {
        ++calls;
        return fail(ErrorCode::InvalidRequest, "enough");
      });
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message, "enough");
  EXPECT_EQ(calls, 1);
}

TEST(GeneralPreTokenizer, StopsWhenNobodyWaits) {
  std::stop_source source;
  source.request_stop();
  const std::string text(200'000, '-');
  for (const std::string& config :
       {type("Punctuation"), type("Whitespace"), type("FixedLength"), type("UnicodeScripts"),
        type("Split", R"(,"pattern":{"Regex":"-"},"behavior":"Removed","invert":false)"),
        type("Metaspace", R"(,"replacement":"-")"),
        type("ByteLevel", R"(,"add_prefix_space":false)")}) {
    const Result<> done = create(config)->split(
        text, 1, [](std::string_view) { return Result<>(); }, source.get_token());
    ASSERT_FALSE(done) << config;
    EXPECT_EQ(done.error().code, ErrorCode::ClientGone);
  }
}

TEST(GeneralPreTokenizer, RefusesPiecesThatExplode) {
  std::string config = R"({"type":"Sequence","pretokenizers":[)";
  for (int i = 0; i < 40; ++i) {
    config += R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false},)";
  }
  config.back() = ']';
  const Result<> done =
      create(config + "}")->split("\u00E9", 1, [](std::string_view) { return Result<>(); });
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::InvalidRequest);
}

TEST(GeneralPreTokenizer, LongTextsInLinearTime) {
  const auto start = std::chrono::steady_clock::now();
  std::string text;
  for (int i = 0; i < 400'000; ++i) {
    text += "\u00C91 -";
  }
  for (const std::string& config :
       {type("BertPreTokenizer"), type("Whitespace"), type("FixedLength"), type("UnicodeScripts"),
        type("Digits", R"(,"individual_digits":false)"), type("Metaspace", R"(,"replacement":"_")"),
        type("ByteLevel", R"(,"add_prefix_space":false)")}) {
    std::size_t bytes = 0;
    EXPECT_TRUE(create(config)->split(text, 1, [&](std::string_view piece) {
      bytes += piece.size();
      return Result<>();
    }));
    EXPECT_GE(bytes, text.size() / 2);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace fairlead::tokenizer
