#include "kv/event_decoder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kv/event_builder.hpp"
#include "kv/fixtures.hpp"

namespace fairlead::kv {
namespace {

using testing::batch;
using testing::bin;
using ::testing::ElementsAre;
using testing::from_hex;
using ::testing::HasSubstr;
using testing::i64;
using ::testing::IsEmpty;
using testing::list;
using testing::map;
using testing::nil;
using testing::numbers;
using ::testing::Optional;
using testing::range;
using testing::str;
using testing::u64;

/// A batch with the payload its texts point into.
struct Decoded {
  explicit Decoded(std::string bytes) : payload(std::move(bytes)) {
    result = decode_batch(payload, batch);
  }
  Decoded(const Decoded&) = delete;
  Decoded& operator=(const Decoded&) = delete;

  const Event& only() const {
    EXPECT_TRUE(result) << result.error().message;
    EXPECT_EQ(batch.events.size(), 1U);
    return batch.events.at(0);
  }

  std::string payload;
  EventBatch batch;
  Result<> result;
};

std::string error_of(std::string payload) {
  const Decoded decoded(std::move(payload));
  if (decoded.result) {
    return "";
  }
  EXPECT_EQ(decoded.result.error().code, ErrorCode::EngineProtocol);
  return decoded.result.error().message;
}

std::vector<std::uint32_t> tokens(const Decoded& decoded) {
  const auto span = decoded.batch.tokens_of(decoded.only());
  return {span.begin(), span.end()};
}

std::vector<EngineHash> hashes(const Decoded& decoded) {
  const auto span = decoded.batch.hashes_of(decoded.only());
  return {span.begin(), span.end()};
}

std::vector<ExtraKey> keys(const Decoded& decoded) {
  const auto span = decoded.batch.extra_keys_of(decoded.only());
  return {span.begin(), span.end()};
}

/// A stored block in an array of the oldest layout, with more elements behind it.
std::string stored_array(std::initializer_list<std::string> more) {
  std::vector<std::string> all{str("BlockStored"), numbers({7}), nil(), range(1, 4), u64(4)};
  all.insert(all.end(), more);
  return batch({list(all)});
}

/// A stored block in a map, with another member.
std::string stored_map(std::string_view key, const std::string& value) {
  return batch({map({{"type", str("BlockStored")},
                     {"block_hashes", numbers({7, 8})},
                     {"parent_block_hash", nil()},
                     {"token_ids", range(1, 8)},
                     {"block_size", u64(4)},
                     {key, value}})});
}

TEST(EventDecoder, ReadsTheArrayLayout) {
  const Decoded decoded(
      from_hex("93cb3ff80000000000009198ab426c6f636b53746f726564"
               "91cff0e1d2c3b4a59687c0940102030404c0a3475055c000"));
  const Event& event = decoded.only();
  EXPECT_EQ(decoded.batch.timestamp, 1.5);
  EXPECT_THAT(decoded.batch.rank, Optional(0U));
  EXPECT_EQ(event.kind, EventKind::Stored);
  EXPECT_THAT(hashes(decoded), ElementsAre(0xF0E1D2C3B4A59687U));
  EXPECT_EQ(event.parent, std::nullopt);
  EXPECT_THAT(tokens(decoded), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(event.block_size, 4U);
  EXPECT_EQ(event.medium, "GPU");
  EXPECT_EQ(event.lora_name, "");
}

TEST(EventDecoder, ReadsTheMapLayout) {
  const Decoded decoded(from_hex(
      "93cb3ff80000000000009388a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391cff0e1"
      "d2c3b4a59687b1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f6964739401020304aa626c6f636b"
      "5f73697a6504a76c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c083a474797065ac426c"
      "6f636b52656d6f766564ac626c6f636b5f6861736865739107a66d656469756da347505581a474797065b0416c6c"
      "426c6f636b73436c656172656400"));
  ASSERT_TRUE(decoded.result);
  ASSERT_EQ(decoded.batch.events.size(), 3U);
  const Event& stored = decoded.batch.events[0];
  EXPECT_EQ(stored.kind, EventKind::Stored);
  EXPECT_THAT(decoded.batch.hashes_of(stored), ElementsAre(0xF0E1D2C3B4A59687U));
  EXPECT_THAT(decoded.batch.tokens_of(stored), ElementsAre(1, 2, 3, 4));
  const Event& removed = decoded.batch.events[1];
  EXPECT_EQ(removed.kind, EventKind::Removed);
  EXPECT_THAT(decoded.batch.hashes_of(removed), ElementsAre(7U));
  EXPECT_EQ(removed.medium, "GPU");
  EXPECT_EQ(decoded.batch.events[2].kind, EventKind::Cleared);
}

TEST(EventDecoder, ABatchMayBeAMap) {
  const Decoded decoded(map({{"data_parallel_rank", u64(3)},
                             {"news", list({nil()})},
                             {"events", list({map({{"type", str("AllBlocksCleared")}})})},
                             {"ts", u64(5)}}));
  EXPECT_EQ(decoded.only().kind, EventKind::Cleared);
  EXPECT_THAT(decoded.batch.rank, Optional(3U));
  EXPECT_EQ(decoded.batch.timestamp, 5);
}

TEST(EventDecoder, TheRankMayBeNilOrMissing) {
  const std::string event = list({str("AllBlocksCleared")});
  EXPECT_EQ(Decoded(list({u64(1), list({event}), nil()})).batch.rank, std::nullopt);
  const Decoded shorter(list({u64(1), list({event})}));
  EXPECT_EQ(shorter.only().kind, EventKind::Cleared);
  EXPECT_EQ(shorter.batch.rank, std::nullopt);
}

TEST(EventDecoder, ReadsHashesOfEveryForm) {
  const std::string digest = std::string(24, 'x') + from_hex("f0e1d2c3b4a59687");
  const Decoded decoded(batch({map(
      {{"type", str("BlockRemoved")},
       {"block_hashes", list({i64(-1), u64(UINT64_MAX - 1), bin(digest), bin("\x01\x02")})}})}));
  EXPECT_THAT(hashes(decoded), ElementsAre(UINT64_MAX, UINT64_MAX - 1, 0xF0E1D2C3B4A59687U, 258U));
  const Decoded parent(batch({map({{"type", str("BlockStored")},
                                   {"block_hashes", list({})},
                                   {"parent_block_hash", bin(digest)},
                                   {"token_ids", list({})},
                                   {"block_size", u64(4)}})}));
  EXPECT_THAT(parent.only().parent, Optional(0xF0E1D2C3B4A59687U));
}

TEST(EventDecoder, ReadsEaglePairs) {
  const auto pairs = [](std::initializer_list<std::initializer_list<std::uint64_t>> all) {
    std::vector<std::string> values;
    for (const auto& pair : all) {
      values.push_back(numbers(pair));
    }
    return batch({list({str("BlockStored"), numbers({7}), nil(), list(values), u64(2)})});
  };
  const Decoded decoded(pairs({{1, 2}, {2, 3}, {3, 4}}));
  EXPECT_TRUE(decoded.only().bigram);
  EXPECT_THAT(tokens(decoded), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(error_of(pairs({{1, 2}, {3, 4}})), HasSubstr("do not follow each other"));
  EXPECT_THAT(error_of(pairs({{1, 2}, {2}})), HasSubstr("no pair"));
  EXPECT_THAT(error_of(pairs({{1, 2, 3}})), HasSubstr("no pair"));
}

TEST(EventDecoder, FieldsMayStandInAnyOrder) {
  const Decoded decoded(batch({map({{"medium", str("CPU")},
                                    {"block_size", u64(4)},
                                    {"token_ids", range(1, 4)},
                                    {"parent_block_hash", u64(6)},
                                    {"block_hashes", numbers({7})},
                                    {"type", str("BlockStored")}})}));
  EXPECT_EQ(decoded.only().medium, "CPU");
  EXPECT_THAT(decoded.only().parent, Optional(6U));
}

TEST(EventDecoder, SkipsWhatItDoesNotKnow) {
  const Decoded member(stored_map("news", list({map({{"a", nil()}}), bin("x")})));
  EXPECT_THAT(hashes(member), ElementsAre(7U, 8U));
  const Decoded elements(stored_array({u64(1), str("GPU"), nil(), nil(), u64(0), nil(), nil(),
                                       nil(), nil(), str("sess"), map({{"x", u64(1)}}), bin("y")}));
  EXPECT_THAT(elements.only().group, Optional(0));
  EXPECT_EQ(elements.only().spec_kind, "");
  const Decoded longer(list({u64(1), list({}), nil(), str("more"), u64(2)}));
  EXPECT_TRUE(longer.result);
}

TEST(EventDecoder, CountsEventsOfUnknownTypes) {
  // A known name in an unknown event may mean anything.
  const Decoded decoded(batch({map({{"type", str("BlockMoved")}, {"block_hashes", str("x")}}),
                               map({{"block_hashes", str("x")}, {"type", str("Ignored")}}),
                               list({str("Ignored"), u64(1), list({u64(2)})}),
                               list({str("AllBlocksCleared"), u64(1)})}));
  EXPECT_EQ(decoded.only().kind, EventKind::Cleared);
  EXPECT_EQ(decoded.batch.ignored, 3U);
}

TEST(EventDecoder, ReadsTheTailOfAnArray) {
  const std::string gpu = str("GPU");
  const Decoded fixed(
      stored_array({nil(), gpu, nil(), nil(), u64(2), str("mamba"), nil(), str("REMOTE"), nil()}));
  EXPECT_THAT(fixed.only().group, Optional(2));
  EXPECT_EQ(fixed.only().spec_kind, "mamba");
  EXPECT_EQ(fixed.only().locality, "REMOTE");
  const Decoded typed(
      stored_array({nil(), gpu, nil(), nil(), str("sliding_window"), u64(3), u64(128)}));
  EXPECT_THAT(typed.only().group, Optional(3));
  EXPECT_EQ(typed.only().spec_kind, "sliding_window");
  const Decoded early(stored_array({nil(), gpu, nil(), u64(1)}));
  EXPECT_THAT(early.only().group, Optional(1));
}

TEST(EventDecoder, ReadsTheTailOfARemoval) {
  const Decoded decoded(batch({list(
      {str("BlockRemoved"), numbers({7}), str("CPU"), u64(1), str("REMOTE"), str("disk0")})}));
  EXPECT_EQ(decoded.only().medium, "CPU");
  EXPECT_THAT(decoded.only().group, Optional(1));
  EXPECT_EQ(decoded.only().locality, "REMOTE");
  EXPECT_EQ(decoded.only().spec_kind, "");
}

TEST(EventDecoder, ReadsSglangsSaltInAnArray) {
  const Decoded decoded(stored_array({nil(), str("GPU"), map({{"cache_salt", str("tenant-a")}})}));
  EXPECT_EQ(decoded.only().cache_salt, "tenant-a");
}

TEST(EventDecoder, ReadsExtraKeys) {
  const std::string typed_mm =
      map({{"type", str("mm")}, {"modality", str("image")}, {"hash", str("h")}});
  const Decoded decoded(
      stored_map("extra_keys",
                 list({list({str("name"), list({str("id"), i64(-3)}), bin("raw"), u64(1), nil()}),
                       list({map({{"type", str("cache_salt")}, {"salt", str("s")}}), typed_mm,
                             map({{"type", str("lora")}, {"name", str("l")}}),
                             map({{"type", str("legacy")}, {"value", str("v")}}),
                             map({{"type", str("new")}})})})));
  const std::vector<ExtraKey> all = keys(decoded);
  ASSERT_EQ(all.size(), 7U);
  const auto is = [&](std::size_t i, std::uint32_t block, ExtraKeyKind kind,
                      std::string_view text) {
    EXPECT_EQ(all[i].block, block) << i;
    EXPECT_EQ(all[i].kind, kind) << i;
    EXPECT_EQ(all[i].text, text) << i;
  };
  is(0, 0, ExtraKeyKind::Text, "name");
  is(1, 0, ExtraKeyKind::Object, "id");
  is(2, 0, ExtraKeyKind::Opaque, "raw");
  is(3, 1, ExtraKeyKind::Salt, "s");
  is(4, 1, ExtraKeyKind::Object, "h");
  is(5, 1, ExtraKeyKind::Text, "v");
  is(6, 1, ExtraKeyKind::Opaque, map({{"type", str("new")}}));
}

TEST(EventDecoder, ReadsExtraKeysWithTagsInFront) {
  const Decoded decoded(stored_map(
      "extra_keys",
      list({list({list({str("lora"), str("name"), str("path")}),
                  list({str("mm"), str("id"), u64(0)}), list({str("cache_salt"), str("s")}),
                  list({str("news"), str("x")})})})));
  const std::vector<ExtraKey> all = keys(decoded);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].kind, ExtraKeyKind::Object);
  EXPECT_EQ(all[0].text, "id");
  EXPECT_EQ(all[1].kind, ExtraKeyKind::Salt);
  EXPECT_EQ(all[1].text, "s");
  EXPECT_EQ(all[2].kind, ExtraKeyKind::Opaque);
}

TEST(EventDecoder, ReadsObjectsOfBlocks) {
  const std::string objects =
      list({map({{"offsets", list({numbers({0, 4})})}, {"mm_hash", u64(5)}}),
            list({u64(6), list({})}), nil()});
  const std::string infos =
      list({nil(), map({{"mm_objects", objects}}), list({objects}), str("x")});
  for (const std::string& payload :
       {stored_map("block_mm_infos", infos), stored_array({nil(), nil(), nil(), nil(), infos})}) {
    const Decoded decoded(payload);
    std::vector<std::pair<std::uint32_t, std::uint64_t>> found;
    for (const ExtraKey& key : keys(decoded)) {
      EXPECT_EQ(key.kind, ExtraKeyKind::ObjectHash);
      found.emplace_back(key.block, key.hash);
    }
    using Pair = std::pair<std::uint32_t, std::uint64_t>;
    EXPECT_THAT(found, ElementsAre(Pair(1, 5), Pair(1, 6), Pair(2, 5), Pair(2, 6)));
  }
}

TEST(EventDecoder, RefusesWhatItCannotRead) {
  EXPECT_THAT(error_of(""), HasSubstr("neither array nor map"));
  EXPECT_THAT(error_of(nil()), HasSubstr("neither array nor map"));
  EXPECT_THAT(error_of(list({u64(1)})), HasSubstr("without events"));
  EXPECT_THAT(error_of(map({{"ts", u64(1)}})), HasSubstr("without events"));
  EXPECT_THAT(error_of(list({nil(), list({})})), HasSubstr("timestamp"));
  EXPECT_THAT(error_of(list({u64(1), nil()})), HasSubstr("events that are no list"));
  EXPECT_THAT(error_of(list({u64(1), list({}), str("x")})), HasSubstr("rank"));
  EXPECT_THAT(error_of(list({u64(1), list({})}) + nil()), HasSubstr("bytes behind"));
  EXPECT_THAT(error_of(batch({nil()})), HasSubstr("neither array nor map"));
  EXPECT_THAT(error_of(batch({list({})})), HasSubstr("without a type"));
  EXPECT_THAT(error_of(batch({map({})})), HasSubstr("without a type"));
  EXPECT_THAT(error_of(batch({map({{"type", u64(1)}})})), HasSubstr("type is no string"));
  EXPECT_THAT(error_of(batch({map({{"type", str("BlockRemoved")}})})), HasSubstr("block_hashes"));
  EXPECT_THAT(error_of(stored_map("block_hashes", list({str("")}))), HasSubstr("block hash"));
  EXPECT_THAT(error_of(stored_map("block_hashes", nil())), HasSubstr("no list"));
  EXPECT_THAT(error_of(stored_map("token_ids", list({i64(-1)}))), HasSubstr("token"));
  EXPECT_THAT(error_of(stored_map("block_size", i64(-1))), HasSubstr("block_size"));
  EXPECT_THAT(error_of(stored_map("medium", u64(1))), HasSubstr("medium"));
  EXPECT_THAT(error_of(stored_map("group_idx", str("0"))), HasSubstr("group_idx"));
  EXPECT_THAT(error_of(stored_map("extra_keys", u64(1))), HasSubstr("extra_keys"));
}

// Taking a parent that was left out for none would attach the blocks to the root.
TEST(EventDecoder, AStoredEventNeedsItsFields) {
  EXPECT_THAT(error_of(batch({map({{"type", str("BlockStored")},
                                   {"block_hashes", numbers({7})},
                                   {"token_ids", range(1, 4)},
                                   {"block_size", u64(4)}})})),
              HasSubstr("parent_block_hash"));
  EXPECT_THAT(error_of(batch({list({str("BlockStored"), numbers({7}), nil(), range(1, 4)})})),
              HasSubstr("block_size"));
}

TEST(EventDecoder, RefusesTooMuch) {
  EXPECT_THAT(error_of(std::string(kMaxBatchBytes + 1, '\0')), HasSubstr("too large"));
  const std::size_t count = kMaxBatchEvents + 1;
  std::string many = u64(1) + '\xdd';
  for (const unsigned shift : {24U, 16U, 8U, 0U}) {
    many.push_back(static_cast<char>(count >> shift));
  }
  for (std::size_t i = 0; i < count; ++i) {
    many += "\x91\xa0";
  }
  EXPECT_THAT(error_of("\x92" + many), HasSubstr("too many events"));
}

TEST(EventDecoder, EveryCutOffBatchIsRefused) {
  for (const std::string& payload :
       {stored_map("extra_keys", list({list({str("a"), list({str("b"), u64(1)})}), nil()})),
        stored_array({nil(), str("GPU"), nil(), nil(), u64(1)})}) {
    for (std::size_t size = 0; size < payload.size(); ++size) {
      EXPECT_NE(error_of(payload.substr(0, size)), "") << size;
    }
  }
}

TEST(EventDecoder, ABatchIsReused) {
  const std::string first = stored_map("extra_keys", list({list({str("a")}), nil()}));
  const std::string second = batch({list({str("BlockRemoved"), numbers({9})})});
  EventBatch reused;
  ASSERT_TRUE(decode_batch(first, reused));
  ASSERT_TRUE(decode_batch(second, reused));
  ASSERT_EQ(reused.events.size(), 1U);
  EXPECT_THAT(reused.hashes_of(reused.events[0]), ElementsAre(9U));
  EXPECT_THAT(reused.tokens, IsEmpty());
  EXPECT_THAT(reused.extra_keys, IsEmpty());
}

}  // namespace
}  // namespace fairlead::kv
