#include "mock/kv_events.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "mock/block_pool.hpp"
#include "mock/msgpack.hpp"

namespace fairlead::mock {
namespace {

std::string hex(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) {
    out.push_back("0123456789abcdef"[static_cast<unsigned char>(c) >> 4]);
    out.push_back("0123456789abcdef"[c & 15]);
  }
  return out;
}

TEST(Msgpack, IntegersTakeTheirShortestForm) {
  const std::vector<std::pair<std::uint64_t, const char*>> rows = {
      {0, "00"},
      {127, "7f"},
      {128, "cc80"},
      {255, "ccff"},
      {256, "cd0100"},
      {65535, "cdffff"},
      {65536, "ce00010000"},
      {4294967295, "ceffffffff"},
      {4294967296, "cf0000000100000000"},
      {UINT64_MAX, "cfffffffffffffffff"},
  };
  for (const auto& [value, expected] : rows) {
    std::string out;
    msgpack::Writer(out).integer(value);
    EXPECT_EQ(hex(out), expected);
  }
}

TEST(Msgpack, SizesTakeTheirShortestForm) {
  const auto head = [](auto write, std::size_t bytes) {
    std::string out;
    msgpack::Writer writer(out);
    write(writer);
    return hex(out.substr(0, bytes));
  };
  EXPECT_EQ(head([](auto& w) { w.array(15); }, 1), "9f");
  EXPECT_EQ(head([](auto& w) { w.array(16); }, 3), "dc0010");
  EXPECT_EQ(head([](auto& w) { w.array(65536); }, 5), "dd00010000");
  EXPECT_EQ(head([](auto& w) { w.map(15); }, 1), "8f");
  EXPECT_EQ(head([](auto& w) { w.map(16); }, 3), "de0010");
  EXPECT_EQ(head([](auto& w) { w.string(std::string(31, 'a')); }, 2), "bf61");
  EXPECT_EQ(head([](auto& w) { w.string(std::string(32, 'a')); }, 3), "d92061");
  EXPECT_EQ(head([](auto& w) { w.string(std::string(256, 'a')); }, 4), "da010061");
  EXPECT_EQ(head([](auto& w) { w.string(std::string(65536, 'a')); }, 6), "db0001000061");
  EXPECT_EQ(head([](auto& w) { w.number(1.5); }, 9), "cb3ff8000000000000");
  EXPECT_EQ(head([](auto& w) { w.nil(); }, 1), "c0");
}

TEST(KvEvents, BatchIsAnArrayOfMapsByDefault) {
  const std::vector<KvEvent> events = {BlockRemoved{7}, AllBlocksCleared{}};
  EXPECT_EQ(
      hex(encode_kv_batch(events, 4, 1.5, 0, KvEventLayout::Map)),
      "93cb3ff80000000000009284a474797065ac426c6f636b52656d6f766564ac626c6f636b5f68617368657391"
      "07a66d656469756da3475055a967726f75705f6964780081a474797065b0416c6c426c6f636b73436c656172"
      "656400");
}

TEST(KvEvents, ArrayLayoutHasTheSameValuesByPosition) {
  BlocksStored stored;
  stored.hashes = {0xF0E1D2C3B4A59687};
  stored.tokens = {1, 2, 3, 4};
  const std::vector<KvEvent> events = {stored};
  EXPECT_EQ(
      hex(encode_kv_batch(events, 4, 1.5, 0, KvEventLayout::Array)),
      "93cb3ff8000000000000919aab426c6f636b53746f72656491cff0e1d2c3b4a59687c0940102030404c0a347"
      "5055c091c00000");
}

TEST(BlockPool, EvictsTheEndOfASequenceBeforeItsBeginning) {
  BlockPool pool(4, 2, true);
  pool.set_recording(true);
  std::vector<BlockId> blocks;
  ASSERT_TRUE(pool.allocate(3, blocks));
  const std::vector<TokenId> tokens = {1, 2, 3, 4, 5, 6};
  std::vector<std::uint64_t> hashes;
  extend_block_hashes(hashes, tokens, 2, {});
  pool.store(blocks, hashes, tokens, 0, 3, {});
  pool.release(blocks);
  pool.take_events();
  std::vector<BlockId> others;
  ASSERT_TRUE(pool.allocate(2, others));
  const auto events = pool.take_events();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(std::get<BlockRemoved>(events[0]).hash, hashes[2]);
  EXPECT_EQ(std::get<BlockRemoved>(events[1]).hash, hashes[1]);
  EXPECT_EQ(pool.find_prefix(hashes).size(), 1U);
  EXPECT_FALSE(pool.allocate(2, others)) << "only one is left";
}

TEST(BlockPool, BlocksWithoutContentAreUsedFirst) {
  BlockPool pool(4, 2, true);
  std::vector<BlockId> blocks;
  ASSERT_TRUE(pool.allocate(3, blocks));
  const std::vector<TokenId> tokens = {1, 2, 3, 4, 5};
  std::vector<std::uint64_t> hashes;
  extend_block_hashes(hashes, tokens, 2, {});
  pool.store(blocks, hashes, tokens, 0, 2, {});
  pool.release(blocks);
  for (int i = 0; i < 3; ++i) {
    std::vector<BlockId> one;
    ASSERT_TRUE(pool.allocate(1, one));
    EXPECT_EQ(one[0], blocks[2]);
    pool.release(one);
  }
  EXPECT_EQ(pool.find_prefix(hashes).size(), 2U);
}

TEST(BlockPool, CopiesOfABlockAreRemovedOneByOne) {
  BlockPool pool(4, 2, true);
  pool.set_recording(true);
  const std::vector<TokenId> tokens = {1, 2};
  std::vector<std::uint64_t> hashes;
  extend_block_hashes(hashes, tokens, 2, {});
  std::vector<BlockId> blocks;
  for (int i = 0; i < 2; ++i) {
    std::vector<BlockId> one;
    ASSERT_TRUE(pool.allocate(1, one));
    pool.store(one, hashes, tokens, 0, 1, {});
    blocks.push_back(one[0]);
  }
  EXPECT_EQ(pool.copies(hashes[0]), 2U);
  pool.release(blocks);
  std::vector<BlockId> all;
  ASSERT_TRUE(pool.allocate(2, all));
  EXPECT_EQ(pool.copies(hashes[0]), 1U);
  ASSERT_TRUE(pool.allocate(1, all));
  EXPECT_EQ(pool.copies(hashes[0]), 0U);
  EXPECT_TRUE(pool.find_prefix(hashes).empty());
}

TEST(BlockPool, HashesDependOnEverythingBefore) {
  const std::vector<TokenId> tokens = {1, 2, 3, 4};
  const std::vector<TokenId> other = {9, 2, 3, 4};
  std::vector<std::uint64_t> plain;
  std::vector<std::uint64_t> changed;
  std::vector<std::uint64_t> salted;
  std::vector<std::uint64_t> adapted;
  std::vector<std::uint64_t> in_session;
  extend_block_hashes(plain, tokens, 2, {});
  extend_block_hashes(changed, other, 2, {});
  extend_block_hashes(salted, tokens, 2, {.salt = "a", .lora = {}, .session_id = {}});
  extend_block_hashes(adapted, tokens, 2, {.salt = {}, .lora = "a", .session_id = {}});
  extend_block_hashes(in_session, tokens, 2, {.salt = {}, .lora = {}, .session_id = "a"});
  for (const auto* hashes : {&changed, &salted, &adapted}) {
    EXPECT_NE((*hashes)[0], plain[0]);
    EXPECT_NE((*hashes)[1], plain[1]);
  }
  EXPECT_EQ(in_session, plain);
}

}  // namespace
}  // namespace fairlead::mock
