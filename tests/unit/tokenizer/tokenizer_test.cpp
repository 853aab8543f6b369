#include "tokenizer/tokenizer.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tokenizer/testing.hpp"

namespace fairlead::tokenizer {
namespace {

using testing::added_token;
using testing::encode;
using testing::make;
using testing::pieces;
using testing::SmallModel;

TEST(Tokenizer, EncodesAndDecodes) {
  SmallModel small;
  small.merges = {{"l", "l"}, {"h", "e"}, {"he", "ll"}, {" ", "w"}, {"\xC3", "\xA9"}};
  const auto tokenizer = make(small.json());
  EXPECT_EQ(pieces(*tokenizer, "hello w\u00E9"), "hell|o| w|\u00E9");
  const std::vector<TokenId> ids = encode(*tokenizer, "hello w\u00E9");
  EXPECT_EQ(tokenizer->decode(ids, false), "hello w\u00E9");
  EXPECT_EQ(encode(*tokenizer, ""), std::vector<TokenId>());
  EXPECT_EQ(tokenizer->token_to_id("\u0120w"), 259u);
  EXPECT_FALSE(tokenizer->token_to_id(" w"));
  EXPECT_EQ(tokenizer->token_bytes(259), " w");
}

TEST(Tokenizer, SpellsItsTokens) {
  SmallModel small;
  small.merges = {{" ", "w"}, {"\xC3", "\xA9"}};
  small.added_tokens = "[" + testing::added_token("<é x>") + "]";
  const auto tokenizer = make(small.json());
  EXPECT_EQ(tokenizer->token_spelling(256), "\u0120w");
  EXPECT_EQ(tokenizer->token_spelling(257), "\u00C3\u00A9");
  EXPECT_EQ(tokenizer->token_spelling(258), "<é x>");
  EXPECT_EQ(tokenizer->token_spelling(259), "");
  for (TokenId id = 0; id < tokenizer->vocab_size(); ++id) {
    EXPECT_EQ(tokenizer->token_to_id(tokenizer->token_spelling(id)), id);
  }
}

TEST(Tokenizer, AppendsAndRestoresOnFailure) {
  const auto tokenizer = make(SmallModel().json());
  std::vector<TokenId> ids = {7};
  EXPECT_TRUE(tokenizer->encode("a", false, ids));
  EXPECT_EQ(ids, (std::vector<TokenId>{7, 'a'}));
  for (const std::string_view bad : {"a\xFF", "\xC3", "\xED\xA0\x80", "\xC0\x80"}) {
    const Result<> result = tokenizer->encode(bad, true, ids);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::InvalidRequest);
    EXPECT_EQ(ids, (std::vector<TokenId>{7, 'a'}));
  }
}

TEST(Tokenizer, SpecialTokensAreKnownInTextAndSkippedInDecoding) {
  SmallModel small;
  small.added_tokens = "[" + added_token("<|end|>", "special") + "," + added_token("<think>") + "]";
  const auto tokenizer = make(small.json());
  const std::vector<TokenId> ids = encode(*tokenizer, "a<think><|end|>b");
  EXPECT_EQ(ids, (std::vector<TokenId>{'a', 257, 256, 'b'}));
  EXPECT_EQ(tokenizer->decode(ids, false), "a<think><|end|>b");
  EXPECT_EQ(tokenizer->decode(ids, true), "a<think>b");
  EXPECT_TRUE(tokenizer->is_special(256));
  EXPECT_FALSE(tokenizer->is_special(257));
  EXPECT_FALSE(tokenizer->is_special(99999));
  EXPECT_TRUE(tokenizer->is_known(257));
  EXPECT_FALSE(tokenizer->is_known(258));
}

TEST(Tokenizer, DecodingSkipsUnknownIdsAndReplacesStrayBytes) {
  const auto tokenizer = make(SmallModel().json());
  const auto decode = [&](std::vector<TokenId> ids) { return tokenizer->decode(ids, false); };
  EXPECT_EQ(decode({'a', 5000, 4'000'000'000, 'b'}), "ab");
  EXPECT_EQ(decode({0xF0, 0x9F}), "\uFFFD");
  EXPECT_EQ(decode({0xA6, 0x99}), "\uFFFD\uFFFD");
  EXPECT_EQ(decode({0xE4, 0xB8, 0xAD}), "中");
}

TEST(Tokenizer, AddedTokensDecodeAsByteLevelTextWhenTheyCan) {
  SmallModel small;
  small.added_tokens = "[" + added_token("<\u00E9>") + "," + added_token("<\uFF5C \u00E9>") + "]";
  const auto tokenizer = make(small.json());
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{256}, false), "<\uFFFD>");
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{257}, false), "<\uFF5C \u00E9>");
}

TEST(Tokenizer, PostProcessorsAddIdsOnRequestOnly) {
  const std::pair<std::string, std::string> cases[] = {
      {R"({"type":"ByteLevel"})", "x"},
      {R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},
           {"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"</s>","type_id":0}}],"pair":[],
           "special_tokens":{"<s>":{"id":"<s>","ids":[1,2],"tokens":["<s>","b"]},
           "</s>":{"id":"</s>","ids":[3],"tokens":["</s>"]}}})",
       "1 2 x 3"},
      {R"({"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"RobertaProcessing",
           "sep":["</s>",4],"cls":["<s>",5]},{"type":"BertProcessing","sep":["S",6],"cls":["C",7]}]})",
       "7 5 x 4 6"},
  };
  for (const auto& [config, expected] : cases) {
    SmallModel small;
    small.post_processor = config;
    const auto tokenizer = make(small.json());
    ASSERT_NE(tokenizer, nullptr);
    std::string got;
    for (const TokenId id : encode(*tokenizer, "x", true)) {
      got += got.empty() ? "" : " ";
      got += id == 'x' ? "x" : std::to_string(id);
    }
    EXPECT_EQ(got, expected);
    EXPECT_EQ(encode(*tokenizer, "x", false), std::vector<TokenId>{'x'});
  }
}

TEST(Tokenizer, ConfigAddsMissingSpecialTokensOnly) {
  SmallModel small;
  small.added_tokens = "[" + added_token("<a>") + "]";
  const std::string config = R"({"added_tokens_decoder":{
      "900":{"content":"<late>","special":true,"lstrip":true},
      "300":{"content":"<early>","special":true},
      "301":{"content":"<plain>","special":false},
      "302":{"content":"<a>","special":true},
      "97":{"content":"a","special":true},
      "303":{"content":"","special":true}}})";
  const auto tokenizer = make(small.json(), config);
  EXPECT_EQ(tokenizer->token_to_id("<early>"), 257u);
  EXPECT_EQ(tokenizer->token_to_id("<late>"), 258u);
  EXPECT_FALSE(tokenizer->token_to_id("<plain>"));
  EXPECT_TRUE(tokenizer->is_special(*tokenizer->token_to_id("<late>")));
  EXPECT_FALSE(tokenizer->is_special(*tokenizer->token_to_id("<a>")));
  EXPECT_TRUE(tokenizer->is_special('a'));
  EXPECT_EQ(pieces(*tokenizer, "b <late>c"), "b|<late>|c");
}

TEST(Tokenizer, NamesSpecialTokens) {
  const auto tokenizer = make(SmallModel().json(), R"({"bos_token":null,
      "eos_token":{"content":"</s>","lstrip":false},"pad_token":"<pad>","add_bos_token":false,
      "extra_special_tokens":{"image_token":"<img>"},
      "additional_special_tokens":["<x>",{"content":"<y>"}],"chat_template":"{{ x }}"})");
  const SpecialTokens& specials = tokenizer->special_tokens();
  ASSERT_NE(specials.find("eos_token"), nullptr);
  EXPECT_EQ(*specials.find("eos_token"), "</s>");
  EXPECT_EQ(*specials.find("pad_token"), "<pad>");
  EXPECT_EQ(*specials.find("image_token"), "<img>");
  EXPECT_EQ(specials.find("bos_token"), nullptr);
  EXPECT_EQ(specials.additional, (std::vector<std::string>{"<x>", "<y>"}));
}

TEST(Tokenizer, ReadsMergesInBothNotationsAndAnyMemberOrder) {
  const std::string head = R"({"decoder":{"type":"ByteLevel"},"model":{"merges":)";
  const std::string tail = R"(,"vocab":{"a":0,"b":1,"ab":2},"dropout":null,"unk_token":null},
      "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true}})";
  for (const std::string merges : {R"(["a b"])", R"([["a","b"]])", R"(["#version: 0.2","a b"])"}) {
    std::string text = head;
    text.append(merges).append(tail);
    const auto tokenizer = make(text);
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_EQ(encode(*tokenizer, "ab"), std::vector<TokenId>{2}) << merges;
  }
}

TEST(Tokenizer, RefusesBrokenFilesWithTheReason) {
  const SmallModel good;
  const auto with = [&](std::string SmallModel::* member, std::string value) {
    SmallModel changed = good;
    changed.*member = std::move(value);
    return changed.json();
  };
  const std::string vocab = R"("vocab":{"a":0,"b":1,"ab":2})";
  const auto model = [](const std::string& members) {
    return R"({"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true},)"
           R"("decoder":{"type":"ByteLevel"},"model":{)" +
           members + "}}";
  };
  const std::pair<std::string, std::string_view> cases[] = {
      {"", "tokenizer.json"},
      {"{", "tokenizer.json"},
      {"[]", "tokenizer.json"},
      {"{}", "no model"},
      {good.json() + "x", "tokenizer.json"},
      {good.json().substr(0, good.json().size() / 2), "tokenizer.json"},
      {with(&SmallModel::normalizer, R"({"type":"Upper"})"), "Upper"},
      {with(&SmallModel::normalizer, R"({"type":"Sequence","normalizers":[{"type":"NFX"}]})"),
       "NFX"},
      {with(&SmallModel::normalizer, R"({"type":"Sequence","normalizers":[null]})"), "normalizer"},
      {with(&SmallModel::normalizer,
            R"({"type":"Replace","pattern":{"String":"a","Regex":"b"},"content":"c"})"),
       "pattern"},
      {with(&SmallModel::decoder, R"({"type":"WordPieces"})"), "WordPieces"},
      {with(&SmallModel::post_processor, R"({"type":"Sequence","processors":[null]})"),
       "post_processor"},
      {with(&SmallModel::post_processor, R"({"type":"Odd"})"), "Odd"},
      {with(&SmallModel::post_processor, R"({"type":"TemplateProcessing","single":[]})"),
       "sequence A"},
      {with(&SmallModel::post_processor, R"({"type":"TemplateProcessing","single":[
            {"SpecialToken":{"id":"x"}},{"Sequence":{"id":"A"}}],"special_tokens":{}})"),
       "without ids"},
      {with(&SmallModel::added_tokens, R"([{"content":"x"}])"), "single_word"},
      {with(&SmallModel::added_tokens, R"([{"id":1}])"), "content"},
      {with(&SmallModel::added_tokens, "{}"), "added_tokens"},
      {with(&SmallModel::model_options, R"("dropout":0.1,)"), "dropout"},
      {with(&SmallModel::model_options, R"("end_of_word_suffix":1,)"), "end_of_word_suffix"},
      {with(&SmallModel::model_options, R"("fuse_unk":1,)"), "fuse_unk"},
      {model(R"("type":"Trigram","vocab":[])"), "Trigram"},
      {model(R"("type":"BPE",)" + vocab), "without vocab and merges"},
      {model(vocab + R"(,"merges":["a"])"), "not two tokens"},
      {model(vocab + R"(,"merges":["a b c"])"), "not two tokens"},
      {model(vocab + R"(,"merges":[["a"]])"), "less than two"},
      {model(vocab + R"(,"merges":[["a","b","a"]])"), "more than two"},
      {model(vocab + R"(,"merges":[3])"), "model.merges"},
      {model(vocab + R"(,"merges":["b a"])"), "its result"},
      {model(R"("vocab":{"a":-1},"merges":[])"), "model.vocab"},
      {model(R"("vocab":{"a":"1"},"merges":[])"), "model.vocab"},
      {model(R"("vocab":{"a":99999999},"merges":[])"), "above"},
      {model(R"("vocab":{"a":1,"b":1},"merges":[])"), "two tokens have the id 1"},
      {model(R"("vocab":[],"merges":[])"), "model.vocab"},
  };
  ASSERT_TRUE(Tokenizer::parse(good.json(), ""));
  for (const auto& [json, reason] : cases) {
    const auto result = Tokenizer::parse(json, "");
    ASSERT_FALSE(result) << json.substr(0, 300);
    EXPECT_NE(result.error().message.find(reason), std::string::npos)
        << result.error().message << " lacks " << reason;
  }
  for (const std::string_view config :
       {"{", "[]", R"({"added_tokens_decoder":[]})", R"({"added_tokens_decoder":{"x":{}}})"}) {
    EXPECT_FALSE(Tokenizer::parse(good.json(), config)) << config;
  }
}

TEST(Tokenizer, LoadsAFolderOrOneFile) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "fairlead_tokenizer_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "tokenizer.json") << SmallModel().json();
  std::ofstream(folder / "tokenizer_config.json") << R"({"eos_token":"<e>"})";
  const auto from_folder = Tokenizer::load(folder);
  const auto from_file = Tokenizer::load(folder / "tokenizer.json");
  ASSERT_TRUE(from_folder && from_file);
  EXPECT_NE((*from_folder)->special_tokens().find("eos_token"), nullptr);
  EXPECT_EQ((*from_file)->special_tokens().find("eos_token"), nullptr);
  std::filesystem::remove_all(folder);
  const auto missing = Tokenizer::load(folder);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find(folder.string()), std::string::npos);
}

TEST(Tokenizer, TellsHowManyTokensATextHasAtLeast) {
  SmallModel small;
  small.merges = {{"a", "a"}, {"aa", "aa"}};
  const auto tokenizer = make(small.json());
  EXPECT_EQ(tokenizer->min_tokens(""), 0U);
  EXPECT_EQ(tokenizer->min_tokens("abcd"), 1U);
  EXPECT_EQ(tokenizer->min_tokens("abcde"), 2U);
  EXPECT_EQ(encode(*tokenizer, "aaaaaaaa").size(), tokenizer->min_tokens("aaaaaaaa"));
  small.added_tokens = "[" + added_token("<|12345|>", "special") + "]";
  EXPECT_EQ(make(small.json())->min_tokens(std::string(90, 'x')), 10U)
      << "an added token may be the longest";
}

TEST(Tokenizer, SaysNothingOfLengthsWhenTextMayVanish) {
  SmallModel strips;
  strips.added_tokens = "[" + added_token("<mask>", "lstrip") + "]";
  EXPECT_EQ(make(strips.json())->min_tokens("abc"), 0U);
  strips.added_tokens = "[" + added_token("<mask>", "rstrip normalized") + "]";
  EXPECT_EQ(make(strips.json())->min_tokens("abc"), 0U);
  SmallModel removes;
  removes.pre_tokenizer =
      R"({"type":"Sequence","pretokenizers":[
          {"type":"Split","pattern":{"String":"-"},"behavior":"Removed","invert":false},
          {"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})";
  const auto removing = make(removes.json());
  EXPECT_EQ(encode(*removing, "---").size(), 0U);
  EXPECT_EQ(removing->min_tokens("---"), 0U);
}

TEST(Tokenizer, TheLeastNumberOfTokensHoldsForTextThatNfcShortens) {
  SmallModel small;
  small.normalizer = R"({"type":"NFC"})";
  const auto tokenizer = make(small.json());
  for (const std::string_view text :
       {"U\u0308\u0304", "\u1100\u1161\u11A8", "\u212A", "\u1FEF", "a\u0323\u0302",
        "\u03B1\u0313\u0300\u0345", "\u2126\u0314\u0301\u0345", "A\u030A", "plain ASCII"}) {
    std::string repeated;
    for (int i = 0; i < 50; ++i) {
      repeated += text;
    }
    EXPECT_LE(tokenizer->min_tokens(repeated), encode(*tokenizer, repeated).size()) << text;
    EXPECT_GE(tokenizer->min_tokens(repeated), repeated.size() / 4) << text;
  }
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    const std::string text = testing::random_text(random, 200);
    EXPECT_LE(tokenizer->min_tokens(text), encode(*tokenizer, text).size());
  }
}

TEST(Tokenizer, StopsWhenToldSo) {
  SmallModel small;
  small.merges = {{" ", " "}, {"a", "b"}};
  std::stop_source stop;
  stop.request_stop();
  std::string words;
  for (int i = 0; i < 100'000; ++i) {
    words += " ab";
  }
  for (const std::string_view pre_tokenizer :
       {R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})",
        R"({"type":"Sequence","pretokenizers":[
           {"type":"Split","pattern":{"Regex":"[a-z]"},"behavior":"Isolated","invert":false},
           {"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})"}) {
    small.pre_tokenizer = pre_tokenizer;
    const auto tokenizer = make(small.json());
    for (const std::string& text : {words, std::string(300'000, ' ')}) {
      std::vector<TokenId> ids = {7};
      const Result<> done = tokenizer->encode(text, false, ids, stop.get_token());
      ASSERT_FALSE(done);
      EXPECT_EQ(done.error().code, ErrorCode::ClientGone);
      EXPECT_EQ(ids, (std::vector<TokenId>{7}));
      EXPECT_TRUE(tokenizer->encode(text, false, ids, std::stop_source().get_token()));
    }
  }
}

}  // namespace
}  // namespace fairlead::tokenizer
