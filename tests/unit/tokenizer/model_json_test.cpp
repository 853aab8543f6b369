#include "tokenizer/model_json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokenizer/models_testing.hpp"
#include "tokenizer/reference_number.hpp"

// The expected ids are those of `tokenizers` 0.23.3
// (`Tokenizer.from_str(...).model.tokenize(...)`), and what is refused here is refused there.
namespace fairlead::tokenizer {
namespace {

using testing::bpe;
using testing::ids;
using testing::read;
using ::testing::StartsWith;

const std::string kWordPiece =
    R"({"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##",)"
    R"("max_input_chars_per_word":6,"vocab":{"[UNK]":0,"un":1,"##able":2,"##a":3,"##b":4,)"
    R"("##le":5,"a":6,"b":7,"##":8,"é":9}})";

std::string replaced(std::string text, std::string_view old, std::string_view with) {
  const std::size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos);
  return text.replace(at, old.size(), with);
}

TEST(WordPiece, TakesTheLongestTokens) {
  const auto model = read(kWordPiece);
  EXPECT_EQ(ids(**model, "unable"), "1 2");
  EXPECT_EQ(ids(**model, "una"), "1 3");
  EXPECT_EQ(ids(**model, "unx"), "0");
  EXPECT_EQ(ids(**model, "é"), "9");
  EXPECT_EQ(ids(**model, "##"), "8");
  EXPECT_EQ(ids(**model, "ababab"), "6 4 3 4 3 4");
  EXPECT_EQ(ids(**model, "abababa"), "0");  // seven characters
  EXPECT_EQ(ids(**model, "éabab"), "9 3 4 3 4");
}

TEST(WordPiece, AnUnknownTokenThatIsMissingIsAnErrorOnceItIsNeeded) {
  const auto model = read(replaced(kWordPiece, R"("[UNK]":0,)", ""));
  EXPECT_EQ(ids(**model, "unable"), "1 2");
  EXPECT_EQ(ids(**model, "unx"), "unk_token '[UNK]' is not in the vocabulary");
}

TEST(WordLevel, LooksWordsUp) {
  const auto model = read(R"({"type":"WordLevel","unk_token":"?","vocab":{"?":0,"a":1,"b c":2}})");
  EXPECT_EQ(ids(**model, "a"), "1");
  EXPECT_EQ(ids(**model, "b c"), "2");
  EXPECT_EQ(ids(**model, "x"), "0");
  EXPECT_EQ(ids(R"({"type":"WordLevel","unk_token":"?","vocab":{"a":0}})", "x"),
            "unk_token '?' is not in the vocabulary");
}

TEST(ModelJson, GuessesTheKindOfFilesWithoutAType) {
  EXPECT_EQ(ids(R"({"vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]})", "ab"), "2");
  EXPECT_EQ(ids(replaced(kWordPiece, R"("type":"WordPiece",)", ""), "unable"), "1 2");
  EXPECT_EQ(ids(R"({"unk_token":"?","vocab":{"?":0,"un":1}})", "un"), "1");
  EXPECT_EQ(ids(R"({"unk_id":0,"vocab":[["?",0],["un",-1]]})", "un"), "1");
  EXPECT_EQ(ids(R"({"vocab":{"?":0,"un":1}})", "un"),
            "tokenizer.json: model.unk_token: must be a string");
}

TEST(ModelJson, ReadsBothNotationsOfMerges) {
  EXPECT_EQ(ids(bpe({"a", "b", "ab"}, {"#version: 0.2", "a b"}), "ab"), "2");
  EXPECT_EQ(ids(R"({"type":"BPE","vocab":{"a":0," ":1,"a ":2},"merges":[["a"," "]]})", "a "), "2");
}

TEST(ModelJson, OptionsMayBeNull) {
  EXPECT_EQ(ids(bpe({"a", "b", "ab"}, {"a b"},
                    R"("fuse_unk":null,"byte_fallback":null,"ignore_merges":null,"dropout":null,)"
                    R"("unk_token":null,"continuing_subword_prefix":null,)"
                    R"("end_of_word_suffix":null)"),
                "ab"),
            "2");
  EXPECT_EQ(ids(bpe({"a", "b", "ab"}, {"a b"}, R"("dropout":0.0)"), "ab"), "2");
}

TEST(ModelJson, NamesTheMemberAtFault) {
  const std::vector<std::string> abc = {"a", "b", "ab"};
  const std::pair<std::string, std::string> cases[] = {
      {bpe(abc, {"a b c"}), "tokenizer.json: model.merges: 'a b c' is not two tokens"},
      {bpe(abc, {"ab"}), "tokenizer.json: model.merges: 'ab' is not two tokens"},
      {bpe(abc, {"a c"}), "tokenizer.json: merge 0 ('a', 'c'): its right part is not"},
      {bpe(abc, {"c a"}), "tokenizer.json: merge 0 ('c', 'a'): its left part is not"},
      {bpe(abc, {"b a"}), "tokenizer.json: merge 0 ('b', 'a'): its result is not"},
      {bpe(abc, {"a b"}, R"("continuing_subword_prefix":"####")"), "tokenizer.json: merge 0"},
      {replaced(bpe(abc, {"a b"}), R"("a b")", R"("a b",["a","b"])"),
       "tokenizer.json: model.merges: strings and pairs are mixed"},
      {replaced(bpe(abc, {"a b"}), R"("a b")", R"(["a","b","c"])"), "tokenizer.json: model.merges"},
      {replaced(bpe(abc, {"a b"}), R"("a b")", R"(["a"])"), "tokenizer.json: model.merges"},
      {replaced(bpe(abc, {"a b"}), R"("a b")", "7"), "tokenizer.json: model.merges"},
      {bpe(abc, {}, R"("dropout":0.1)"), "tokenizer.json: model.dropout 0.1 makes results random"},
      {bpe(abc, {}, R"("dropout":"x")"), "tokenizer.json: model.dropout"},
      {bpe(abc, {}, R"("unk_token":1)"), "tokenizer.json: model.unk_token: must be a string or"},
      {bpe(abc, {}, R"("fuse_unk":1)"), "tokenizer.json: model.fuse_unk: must be true or false"},
      {R"({"type":"BPE","vocab":{"a":0}})", "tokenizer.json: model: a BPE model needs vocab and"},
      {R"({"type":"BPE","merges":[]})", "tokenizer.json: model: no vocab"},
      {R"({"type":"BPE","vocab":{"a":-1},"merges":[]})", "tokenizer.json: model.vocab"},
      {R"({"type":"BPE","vocab":{"a":4294967295},"merges":[]})", "tokenizer.json: model.vocab"},
      {R"({"type":"BPE","vocab":[],"merges":[]})", "tokenizer.json: model.vocab"},
      {R"({"type":"Foo","vocab":{}})", R"(tokenizer.json: model type "Foo")"},
      {R"({"type":null,"vocab":{},"merges":[]})", "tokenizer.json: model type null"},
      {replaced(kWordPiece, R"("[UNK]")", "null"), "tokenizer.json: model.unk_token"},
      {replaced(kWordPiece, ":6,", ":-6,"), "tokenizer.json: model.max_input_chars_per_word"},
      {R"({"type":"WordPiece","unk_token":"a","vocab":{"a":0}})",
       "tokenizer.json: model.continuing_subword_prefix"},
      {R"({"type":"WordLevel","vocab":{"a":0}})", "tokenizer.json: model.unk_token"},
      {R"({"type":"Unigram","unk_id":1,"vocab":[["a",0]]})", "tokenizer.json: unk_id 1 is not"},
      {R"({"type":"Unigram","unk_id":-1,"vocab":[["a",0]]})", "tokenizer.json: model.unk_id"},
      {R"({"type":"Unigram","byte_fallback":null,"vocab":[["a",0]]})",
       "tokenizer.json: model.byte_fallback"},
      {R"({"type":"Unigram","vocab":[["a",0,1]]})", "tokenizer.json: model.vocab"},
      {R"({"type":"Unigram","vocab":[["a"]]})", "tokenizer.json: model.vocab"},
      {R"({"type":"Unigram","vocab":[["a","b"]]})", "tokenizer.json: model.vocab"},
      {R"({"type":"Unigram","vocab":[["a",1e999]]})", "tokenizer.json: model.vocab"},
      {R"({"type":"Unigram","vocab":{"a":0}})", "tokenizer.json: model.vocab"},
      {R"([])", "tokenizer.json: "},
  };
  for (const auto& [json, message] : cases) {
    const auto model = read(json);
    ASSERT_FALSE(model) << json;
    EXPECT_THAT(model.error().message, StartsWith(message)) << json;
  }
}

// Scores as `Tokenizer.to_str()` gives them back: not always the closest float.
TEST(ModelJson, ReadsNumbersAsTheReferenceDoes) {
  const std::pair<std::string_view, double> cases[] = {
      {"-3.0123284804704786", -3.012328480470478},
      {"-14.825037124029805", -14.825037124029803},
      {"-4.385779856626e-286", -4.3857798566260005e-286},
      {"-2.003520773630e-286", -2.0035207736300002e-286},
      {"-13.5070163114762742395669193", -13.507016311476276},
      {"123456789012345678901234567890", 1.2345678901234568e+29},
      {"-123456789012345678901234567890.5e-3", -1.2345678901234568e+26},
      {"0", 0.0},
      {"-7", -7.0},
      {"1e5", 1e5},
      {"1.5E+2", 150.0},
      {"-0.25,", -0.25},
      {"0e999999999999", 0.0},
      {"1e-400", 0.0},
  };
  for (const auto& [text, value] : cases) {
    EXPECT_EQ(reference_number(text), value) << text;
  }
  EXPECT_EQ(reference_number("1e309"), std::nullopt);
  EXPECT_EQ(reference_number("1e99999999999999999999"), std::nullopt);
  EXPECT_EQ(reference_number("99e307"), std::nullopt);
}

}  // namespace
}  // namespace fairlead::tokenizer
