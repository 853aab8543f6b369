#include "tokenizer/incremental_decoder.hpp"

#include <gtest/gtest.h>

#include "base/utf8.hpp"
#include "tokenizer/testing.hpp"

namespace fairlead::tokenizer {
namespace {

using Ids = std::vector<TokenId>;

class IncrementalDecoding : public ::testing::Test {
 protected:
  IncrementalDecoding() {
    testing::SmallModel small;
    small.merges = {{"\xE4", "\xB8"}, {"\xAD", "x"}, {"\x9F", "\x98"}, {"a", "\xF0"}};
    small.added_tokens = "[" + testing::added_token("<s>", "special") + "]";
    tokenizer_ = testing::make(small.json());
  }

  // The deltas of the ids and of the flush, separated by `|`.
  std::string deltas(const Ids& ids, const Ids& prompt = {}, bool skip = false) const {
    IncrementalDecoder decoder(*tokenizer_, skip, prompt);
    std::string out;
    for (const TokenId id : ids) {
      decoder.push(id, out);
      out += '|';
    }
    decoder.flush(out);
    return out;
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  static constexpr TokenId kE4B8 = 256;
  static constexpr TokenId kADx = 257;
  static constexpr TokenId k9F98 = 258;
  static constexpr TokenId kAF0 = 259;
  static constexpr TokenId kSpecial = 260;
};

TEST_F(IncrementalDecoding, HoldsACharacterUntilItIsComplete) {
  EXPECT_EQ(deltas({kE4B8, 0xAD}), "|中|");
  EXPECT_EQ(deltas({kAF0, k9F98, 0x80}), "a||\U0001F600|");
  EXPECT_EQ(deltas({kE4B8, kADx, 'y'}), "|中x|y|");
}

TEST_F(IncrementalDecoding, ShowsStrayBytesAsSoonAsTheyAreKnown) {
  EXPECT_EQ(deltas({0xAD, 'a'}), "\uFFFD|a|");
  EXPECT_EQ(deltas({kE4B8, 'a'}), "|\uFFFDa|");
  EXPECT_EQ(deltas({kE4B8, kE4B8, 0xAD}), "|\uFFFD|中|");
  EXPECT_EQ(deltas({0xFF}), "\uFFFD|");
  EXPECT_EQ(deltas({0xE0, 0x80}), "|\uFFFD\uFFFD|");
}

TEST(IncrementalDecodingOfAChain, SeesAllOfAPromptThatItsRegexMayChange) {
  testing::SmallModel small;
  small.decoder = R"({"type":"Sequence","decoders":[{"type":"Fuse"},)"
                  R"({"type":"Replace","pattern":{"Regex":"-+$"},"content":""}]})";
  const std::shared_ptr<const Tokenizer> tokenizer = testing::make(small.json());
  Ids prompt(40, '-');
  prompt.front() = 'a';
  IncrementalDecoder decoder(*tokenizer, false, prompt);
  std::string out;
  decoder.push('b', out);
  EXPECT_EQ(out, "");
  decoder.flush(out);
  EXPECT_EQ(out, std::string(39, '-') + "b");  // the prompt alone is "a"
}

TEST_F(IncrementalDecoding, FlushShowsTheIncompleteRest) {
  EXPECT_EQ(deltas({'a', kE4B8}), "a||\uFFFD");
  EXPECT_EQ(deltas({}), "");
}

TEST_F(IncrementalDecoding, SkippedAndUnknownIdsDoNotBreakACharacter) {
  EXPECT_EQ(deltas({kE4B8, kSpecial, 0xAD}, {}, true), "||中|");
  EXPECT_EQ(deltas({kE4B8, 9999, 0xAD}), "||中|");
  EXPECT_EQ(deltas({kE4B8, kSpecial, 0xAD}), "|\uFFFD<s>|\uFFFD|");
}

TEST_F(IncrementalDecoding, APromptThatEndsInsideACharacterIsContinued) {
  EXPECT_EQ(deltas({0xAD, 'a'}, {'x', kE4B8}), "中|a|");
  EXPECT_EQ(deltas({k9F98, 0x80}, {0xF0}), "|\U0001F600|");
  EXPECT_EQ(deltas({0xAD}, {'x', kE4B8, kSpecial}, true), "中|");
  EXPECT_EQ(deltas({0xAD}, {'x', kE4B8, 'y'}), "\uFFFD|");
  EXPECT_EQ(deltas({'a'}, {'x', 0xAD}), "a|");
}

TEST_F(IncrementalDecoding, BytesOfThePromptAreNotShownAgain) {
  EXPECT_EQ(deltas({'a'}, {kE4B8}), "a|");
  EXPECT_EQ(deltas({}, {kE4B8}), "");
  EXPECT_EQ(deltas({0xB8, 'a'}, {0xE4}), "|\uFFFDa|");
  EXPECT_EQ(deltas({0xB8}, {0xE4}), "|\uFFFD");
}

TEST_F(IncrementalDecoding, JoinedDeltasEqualDecodingForRandomIds) {
  std::mt19937 random(11);
  for (int round = 0; round < 20'000; ++round) {
    Ids ids;
    for (std::size_t n = 1 + random() % 12; n > 0; --n) {
      static constexpr TokenId kOften[] = {0xE4,  0xB8, 0xAD,  0xF0, 0x9F,    0x98,
                                           0x80,  0xC3, 0xE0,  0xED, 0xF4,    'a',
                                           kE4B8, kADx, k9F98, kAF0, kSpecial};
      ids.push_back(random() % 5 == 0 ? random() % 270 : kOften[random() % std::size(kOften)]);
    }
    const bool skip = random() % 2 == 0;
    IncrementalDecoder decoder(*tokenizer_, skip);
    std::string joined;
    for (const TokenId id : ids) {
      decoder.push(id, joined);
      ASSERT_TRUE(utf8::valid(joined));
    }
    decoder.flush(joined);
    ASSERT_EQ(joined, tokenizer_->decode(ids, skip));
  }
}

}  // namespace
}  // namespace fairlead::tokenizer
