#include "kv/hashes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>

// Vectors computed with libxxhash from the rules alone.

namespace fairlead::kv {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Tokens = std::vector<std::uint32_t>;

Tokens range(std::uint32_t first, std::uint32_t last) {
  Tokens tokens(last - first + 1);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::vector<LocalHash> locals(const Tokens& tokens, HashParams params,
                              std::uint64_t seed = kBaseSeed) {
  std::vector<LocalHash> out;
  local_hashes(tokens, params, seed, out);
  return out;
}

std::vector<SequenceHash> prompt(const Tokens& tokens, HashParams params,
                                 std::uint64_t seed = kBaseSeed) {
  std::vector<SequenceHash> out;
  prompt_hashes(tokens, params, seed, out);
  return out;
}

TEST(Hashes, OfPlainBlocks) {
  EXPECT_THAT(locals(range(1, 9), {4}), ElementsAre(14643705804678351452U, 16777012769546811212U));
  EXPECT_THAT(locals(range(0, 15), {16}), ElementsAre(15310707395893867146U));
  EXPECT_THAT(locals(range(0, 63), {64}), ElementsAre(3480597578098033343U));
}

TEST(Hashes, OfSequences) {
  std::vector<SequenceHash> out;
  sequence_hashes(locals(range(1, 9), {4}), out);
  EXPECT_THAT(out, ElementsAre(14643705804678351452U, 4945711292740353085U));
  EXPECT_EQ(root_hash(14643705804678351452U), 14643705804678351452U);
  EXPECT_EQ(extend_hash(14643705804678351452U, 16777012769546811212U), 4945711292740353085U);
}

TEST(Hashes, OfAPromptAreTheSequenceHashesOfItsBlocks) {
  for (const bool bigram : {false, true}) {
    for (std::uint32_t length = 1; length < 40; ++length) {
      const HashParams params{4, bigram};
      const Tokens tokens = range(1, length);
      std::vector<SequenceHash> expected;
      sequence_hashes(locals(tokens, params, 5), expected);
      EXPECT_EQ(prompt(tokens, params, 5), expected) << length;
      EXPECT_EQ(expected.size(), complete_blocks(length, params));
    }
  }
}

TEST(Hashes, OfAnAdapter) {
  const std::uint64_t seed = hash_seed("my-lora", "");
  EXPECT_EQ(seed, 12827409268353072861U);
  EXPECT_THAT(locals(range(1, 8), {4}, seed),
              ElementsAre(15671544057904749233U, 7919241211032067838U));
}

TEST(Hashes, OfASalt) {
  const std::uint64_t seed = hash_seed("", "tenant-a");
  EXPECT_EQ(seed, 1948188790972764086U);
  EXPECT_EQ(seed, kBaseSeed + salt_seed("tenant-a"));
  EXPECT_THAT(locals(range(1, 8), {4}, seed),
              ElementsAre(5738685477468498325U, 11202231085456067787U));
}

TEST(Hashes, OfAnAdapterAndASalt) {
  const std::uint64_t seed = hash_seed("my-lora", "tenant-a");
  EXPECT_EQ(seed, 14775598059325835610U);
  EXPECT_THAT(locals(range(1, 8), {4}, seed),
              ElementsAre(6157910915076630503U, 3256431856703716508U));
}

TEST(Hashes, EmptyNamesAreNone) {
  EXPECT_EQ(hash_seed("", ""), kBaseSeed);
  EXPECT_EQ(salt_seed(""), 0U);
}

TEST(Hashes, OfEagleBlocksCoverOneTokenMore) {
  EXPECT_THAT(locals(range(1, 9), {4, true}),
              ElementsAre(1914873892905420881U, 1929047464662796003U));
  EXPECT_EQ(locals(range(1, 8), {4, true}).size(), 1U);
  EXPECT_THAT(locals({}, {4, true}), IsEmpty());
}

TEST(Hashes, OnlyCompleteBlocksHaveOne) {
  EXPECT_THAT(locals(range(1, 3), {4}), IsEmpty());
  EXPECT_THAT(locals(range(1, 9), {0}), IsEmpty());
  EXPECT_THAT(prompt(range(1, 9), {0}), IsEmpty());
  EXPECT_THAT(prompt({}, {4}), IsEmpty());
}

TEST(Hashes, AreAppended) {
  std::vector<LocalHash> out{7};
  local_hashes(range(0, 15), {16}, kBaseSeed, out);
  EXPECT_THAT(out, ElementsAre(7U, 15310707395893867146U));
}

TEST(Hashes, OfMultimodalBlocksIgnoreTheOrderOfObjects) {
  const Tokens tokens = range(1, 4);
  const std::vector<std::uint64_t> objects{0x1122334455667788, 0x0102030405060708};
  const std::vector<std::uint64_t> turned(objects.rbegin(), objects.rend());
  EXPECT_EQ(local_hash(tokens, kBaseSeed, objects), 12662021316972024525U);
  EXPECT_EQ(local_hash(tokens, kBaseSeed, turned), 12662021316972024525U);
  EXPECT_EQ(local_hash(tokens, kBaseSeed, {}), 14643705804678351452U);
}

TEST(Hashes, OfPadValues) {
  const std::uint32_t pad = mm_pad_value(0x1122334455667788);
  EXPECT_EQ(pad, 360036808U);
  EXPECT_THAT(locals({1, 2, pad, pad}, {4}), ElementsAre(2102039643939231269U));
}

TEST(Hashes, RunsOfTheImageTokenTakeTheirObjects) {
  const std::vector<std::uint64_t> objects{1, 2};
  Tokens tokens{9, 9, 5, 9, 6, 9};
  pad_image_runs(tokens, 9, objects);
  EXPECT_THAT(tokens, ElementsAre(1'000'001, 1'000'001, 5, 1'000'002, 6, 1'000'002));
  Tokens bare{9, 5};
  pad_image_runs(bare, 9, {});
  EXPECT_THAT(bare, ElementsAre(9, 5));
}

TEST(Hashes, OfMultimodalIdentifiers) {
  EXPECT_EQ(mm_hash("opaque-renderer-image-0"), 14437604544409538977U);
  const std::string digest = "1122334455667788" + std::string(48, 'f');
  EXPECT_EQ(mm_hash(digest), 0x1122334455667788U);
  EXPECT_EQ(mm_hash("AABBCCDDEEFF0011" + std::string(48, '0')), 0xAABBCCDDEEFF0011U);
  EXPECT_EQ(digest_hash(digest + "0"), std::nullopt);
  EXPECT_EQ(digest_hash(std::string(63, '0') + "g"), std::nullopt);
  EXPECT_NE(mm_hash(std::string(63, '0') + "g"), 0U);
  EXPECT_EQ(mm_hash(""), 0U);
}

}  // namespace
}  // namespace fairlead::kv
