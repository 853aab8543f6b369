#include "kv/event_normalizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <utility>

#include "kv/event_builder.hpp"
#include "kv/event_decoder.hpp"
#include "kv/recording_sink.hpp"

namespace fairlead::kv {
namespace {

using testing::batch;
using testing::bin;
using ::testing::ElementsAre;
using testing::head;
using testing::i64;
using ::testing::IsEmpty;
using testing::list;
using testing::map;
using testing::nil;
using testing::numbers;
using ::testing::Optional;
using testing::range;
using testing::RecordingSink;
using ::testing::SizeIs;
using testing::str;
using testing::u64;
using Calls = std::vector<RecordingSink::Call>;

const std::string kDigest = "1122334455667788" + std::string(48, 'f');
constexpr std::uint64_t kDigestHash = 0x1122334455667788;

/// A source with blocks of four tokens.
struct Source {
  explicit Source(NormalizerOptions options = {})
      : normalizer([&] {
          options.block_size = 4;
          return std::move(options);
        }()) {}

  /// What the events of a payload mean.
  Calls apply(const std::string& payload) {
    const Result<> decoded = decode_batch(payload, batch);
    EXPECT_TRUE(decoded) << decoded.error().message;
    sink.calls.clear();
    normalizer.apply(batch, sink);
    return sink.calls;
  }

  EventBatch batch;
  RecordingSink sink;
  EventNormalizer normalizer;
};

using Member = std::pair<std::string_view, std::string>;

/// A store of blocks whose tokens count from 1, with other members.
std::string store(std::initializer_list<std::uint64_t> hashes, const std::string& parent,
                  const std::vector<Member>& more = {}) {
  std::string out = head(0x80, 16, 0xde, 5 + more.size());
  out += str("type") + str("BlockStored") + str("block_hashes") + numbers(hashes);
  out += str("parent_block_hash") + parent + str("token_ids") + range(1, 4 * hashes.size());
  out += str("block_size") + u64(4);
  for (const auto& [key, value] : more) {
    out += str(key) + value;
  }
  return batch({out});
}

std::string removal(std::initializer_list<std::uint64_t> hashes,
                    const std::vector<Member>& more = {}) {
  std::string out = head(0x80, 16, 0xde, 2 + more.size());
  out += str("type") + str("BlockRemoved") + str("block_hashes") + numbers(hashes);
  for (const auto& [key, value] : more) {
    out += str(key) + value;
  }
  return batch({out});
}

/// Extra keys of blocks, each a list of strings.
Member keys(std::initializer_list<std::initializer_list<std::string_view>> blocks) {
  std::vector<std::string> all;
  for (const auto& block : blocks) {
    std::vector<std::string> texts;
    for (const std::string_view text : block) {
      texts.push_back(str(text));
    }
    all.push_back(texts.empty() ? nil() : list(texts));
  }
  return {"extra_keys", list(all)};
}

std::vector<std::uint32_t> tokens(std::uint32_t first, std::uint32_t count) {
  std::vector<std::uint32_t> out(count);
  std::iota(out.begin(), out.end(), first);
  return out;
}

/// Hash of the block of tokens that starts with `first`.
LocalHash local(std::uint32_t first, std::string_view lora = "", std::string_view salt = "") {
  return local_hash(tokens(first, 4), hash_seed(lora, salt));
}

std::vector<LocalHash> locals(const Calls& calls) {
  std::vector<LocalHash> out;
  for (const auto& call : calls) {
    for (const StoredBlock& block : call.blocks) {
      out.push_back(block.local);
    }
  }
  return out;
}

TEST(EventNormalizer, LearnsTheSizeOfBlocksWhereItIsNotKnown) {
  EventBatch batch;
  RecordingSink sink;
  EventNormalizer normalizer({.block_size = 0});
  EXPECT_EQ(normalizer.learned_block_size(), 0U);
  ASSERT_TRUE(decode_batch(removal({5}), batch));
  normalizer.apply(batch, sink);
  EXPECT_EQ(normalizer.learned_block_size(), 0U);
  ASSERT_TRUE(decode_batch(store({7, 8}, nil()), batch));
  sink.calls.clear();
  normalizer.apply(batch, sink);
  EXPECT_EQ(normalizer.learned_block_size(), 4U);
  EXPECT_TRUE(sink.calls.empty());
  EXPECT_EQ(normalizer.dropped(DropReason::BlockSizeMismatch), 1U);
  Source known;
  known.apply(store({7, 8}, nil()));
  EXPECT_EQ(known.normalizer.learned_block_size(), 0U);
}

TEST(EventNormalizer, AStoreBecomesBlocksOfKnownContent) {
  Source source;
  const Calls calls = source.apply(store({7, 8}, u64(6)));
  ASSERT_THAT(calls, SizeIs(1));
  EXPECT_EQ(calls[0].what, "stored");
  EXPECT_EQ(calls[0].tier, Tier::Device);
  EXPECT_THAT(calls[0].parent, Optional(6U));
  EXPECT_THAT(calls[0].blocks, ElementsAre(StoredBlock{7, 14643705804678351452U},
                                           StoredBlock{8, 16777012769546811212U}));
  EXPECT_EQ(source.normalizer.blocks_stored(), 2U);
  EXPECT_EQ(source.apply(store({7}, nil()))[0].parent, std::nullopt);
}

TEST(EventNormalizer, RemovalsAndClearsPass) {
  Source source;
  const Calls removed = source.apply(removal({7, 8}, {{"medium", str("CPU")}}));
  ASSERT_THAT(removed, SizeIs(1));
  EXPECT_EQ(removed[0].what, "removed");
  EXPECT_EQ(removed[0].tier, Tier::Host);
  EXPECT_THAT(removed[0].hashes, ElementsAre(7U, 8U));
  EXPECT_EQ(source.normalizer.blocks_removed(), 2U);
  EXPECT_THAT(source.apply(removal({})), IsEmpty());
  const Calls cleared = source.apply(batch({list({str("AllBlocksCleared")})}));
  ASSERT_THAT(cleared, SizeIs(1));
  EXPECT_EQ(cleared[0].what, "cleared");
}

TEST(EventNormalizer, EventsOfABatchKeepTheirOrder) {
  Source source;
  const std::string one = store({7}, nil());
  const std::string event = one.substr(batch({}).size() - 1, one.size() - batch({}).size());
  const Calls calls = source.apply(batch(
      {event, list({str("BlockRemoved"), numbers({7})}), list({str("AllBlocksCleared")}), event}));
  std::vector<std::string> order;
  for (const auto& call : calls) {
    order.push_back(call.what);
  }
  EXPECT_THAT(order, ElementsAre("stored", "removed", "cleared", "stored"));
}

TEST(EventNormalizer, RemovalsInARowOfATierPassTogether) {
  Source source;
  const std::string one = store({7}, nil());
  const std::string event = one.substr(batch({}).size() - 1, one.size() - batch({}).size());
  const auto removed = [](std::initializer_list<std::uint64_t> hashes, const char* medium) {
    return list({str("BlockRemoved"), numbers(hashes), str(medium)});
  };
  const Calls calls =
      source.apply(batch({removed({1}, "GPU"), removed({2, 3}, "GPU"), removed({4}, "CPU"),
                          removed({5}, "GPU"), event, removed({7}, "GPU"), removed({7}, "GPU")}));
  ASSERT_THAT(calls, SizeIs(5));
  EXPECT_THAT(calls[0].hashes, ElementsAre(1U, 2U, 3U));
  EXPECT_EQ(calls[1].tier, Tier::Host);
  EXPECT_THAT(calls[1].hashes, ElementsAre(4U));
  EXPECT_EQ(calls[2].tier, Tier::Device);
  EXPECT_THAT(calls[2].hashes, ElementsAre(5U));
  EXPECT_EQ(calls[3].what, "stored");
  EXPECT_THAT(calls[4].hashes, ElementsAre(7U, 7U));
  EXPECT_EQ(source.normalizer.blocks_removed(), 7U);
}

TEST(EventNormalizer, CopiesPassOneByOne) {
  Source source;
  EXPECT_THAT(source.apply(store({7}, nil())), SizeIs(1));
  EXPECT_THAT(source.apply(store({7}, nil())), SizeIs(1));
  EXPECT_THAT(source.apply(removal({7})), SizeIs(1));
  EXPECT_THAT(source.apply(removal({7})), SizeIs(1));
}

TEST(EventNormalizer, AdaptersHaveTheirOwnBlocks) {
  Source source;
  EXPECT_THAT(
      locals(source.apply(store(
          {7, 8}, nil(),
          {{"lora_id", u64(1)}, {"lora_name", str("my-lora")}, keys({{"my-lora"}, {"my-lora"}})}))),
      ElementsAre(15671544057904749233U, 7919241211032067838U));
  EXPECT_EQ(source.normalizer.salted_blocks(), 0U);
}

TEST(EventNormalizer, ASaltInTheFirstBlocksKeysIsInheritedWithinTheEvent) {
  for (const std::string_view salt : {"tenant-a", "dynamo-cache-salt:tenant-a"}) {
    Source source;
    EXPECT_THAT(locals(source.apply(store({7, 8}, nil(), {keys({{salt}, {}})}))),
                ElementsAre(5738685477468498325U, 11202231085456067787U))
        << salt;
  }
}

TEST(EventNormalizer, ASaltMayFollowTheAdaptersNameAndEqualIt) {
  Source source;
  const Member name{"lora_name", str("my-lora")};
  EXPECT_THAT(locals(source.apply(
                  store({7, 8}, nil(), {name, keys({{"my-lora", "tenant-a"}, {"my-lora"}})}))),
              ElementsAre(6157910915076630503U, 3256431856703716508U));
  EXPECT_THAT(locals(source.apply(store({17}, nil(), {name, keys({{"my-lora", "my-lora"}})}))),
              ElementsAre(local(1, "my-lora", "my-lora")));
}

TEST(EventNormalizer, ASaltOfTheWholeEventCountsFirst) {
  Source source;
  for (const std::string_view salt : {"tenant-a", "dynamo-cache-salt:tenant-a"}) {
    EXPECT_THAT(locals(source.apply(store({7, 8}, u64(6), {{"cache_salt", str(salt)}}))),
                ElementsAre(5738685477468498325U, 11202231085456067787U));
  }
  EXPECT_THAT(locals(source.apply(store({9}, u64(8), {{"cache_salt", str("")}}))),
              ElementsAre(local(1, "", "tenant-a")));
}

TEST(EventNormalizer, AStringInALaterBlockIsNoSalt) {
  Source source;
  // Neither behind a parent nor behind the first block of an event.
  EXPECT_THAT(locals(source.apply(store({7}, u64(6), {keys({{"name"}})}))),
              ElementsAre(local_hash(tokens(1, 4), kBaseSeed, std::vector{mm_hash("name")})));
  EXPECT_EQ(locals(source.apply(store({8, 9}, nil(), {keys({{}, {"name"}})})))[0], local(1));
  EXPECT_EQ(source.normalizer.salted_blocks(), 0U);
}

TEST(EventNormalizer, ChildrenInheritTheSaltOfTheirParent) {
  Source source;
  source.apply(store({7, 8}, nil(), {keys({{"tenant-a"}, {}})}));
  EXPECT_THAT(locals(source.apply(store({9}, u64(8)))), ElementsAre(local(1, "", "tenant-a")));
  EXPECT_THAT(locals(source.apply(store({10}, u64(9)))), ElementsAre(local(1, "", "tenant-a")));
  EXPECT_EQ(source.normalizer.salted_blocks(), 4U);
  // A parent never heard of is taken for unsalted: the index has no such parent either.
  EXPECT_THAT(locals(source.apply(store({11}, u64(99)))), ElementsAre(local(1)));
}

TEST(EventNormalizer, SaltsAreForgottenWithTheLastCopy) {
  Source source;
  const std::string salted = store({7}, nil(), {keys({{"tenant-a"}})});
  source.apply(salted);
  source.apply(salted);
  source.apply(removal({7}));
  EXPECT_THAT(locals(source.apply(store({8}, u64(7)))), ElementsAre(local(1, "", "tenant-a")));
  source.apply(removal({7}));
  EXPECT_EQ(source.normalizer.salted_blocks(), 1U);
  EXPECT_THAT(locals(source.apply(store({9}, u64(7)))), ElementsAre(local(1)));
  source.apply(batch({list({str("AllBlocksCleared")})}));
  EXPECT_EQ(source.normalizer.salted_blocks(), 0U);
  source.apply(salted);
  source.normalizer.reset();
  EXPECT_EQ(source.normalizer.salted_blocks(), 0U);
}

TEST(EventNormalizer, ChildrenOfABlockWithTwoSaltsAreDropped) {
  for (const bool other_is_salted : {true, false}) {
    Source source;
    source.apply(store({7}, nil(), {keys({{"tenant-a"}})}));
    EXPECT_THAT(source.apply(other_is_salted ? store({7}, nil(), {keys({{"tenant-b"}})})
                                             : store({7}, nil())),
                SizeIs(1));
    EXPECT_THAT(source.apply(store({8}, u64(7))), IsEmpty());
    EXPECT_EQ(source.normalizer.dropped(DropReason::AmbiguousCacheNamespace), 1U);
    // Their own salt would tell.
    EXPECT_THAT(source.apply(store({8}, u64(7), {{"cache_salt", str("tenant-b")}})), SizeIs(1));
    source.apply(removal({7, 7}));
    EXPECT_THAT(source.apply(store({9}, u64(7))), SizeIs(1));
  }
}

TEST(EventNormalizer, SaltedBlocksBeyondTheMemoryAreDropped) {
  Source source({.max_salted_blocks = 3});
  const Member salt{"cache_salt", str("tenant-a")};
  source.apply(store({1, 2}, nil(), {salt}));
  const Calls calls = source.apply(store({3, 4, 5}, u64(2), {salt}));
  ASSERT_THAT(calls, SizeIs(1));
  EXPECT_THAT(calls[0].blocks, SizeIs(1));
  EXPECT_EQ(source.normalizer.dropped(DropReason::NamespaceMemoryFull), 2U);
  EXPECT_EQ(source.normalizer.salted_blocks(), 3U);
  EXPECT_THAT(source.apply(store({6}, u64(3), {salt})), IsEmpty());
  EXPECT_THAT(source.apply(store({7}, nil())), SizeIs(1));
  source.apply(removal({3}));
  EXPECT_THAT(source.apply(store({6}, u64(2), {salt})), SizeIs(1));
}

TEST(EventNormalizer, ObjectsAreAppendedToTheirBlocks) {
  Source source;
  // Bare digests of older engines, pairs of newer ones, objects of the oldest.
  const std::string pair =
      list({list({list({str("opaque"), u64(2)}), list({str(kDigest), i64(-2)})})});
  const LocalHash both =
      local_hash(tokens(1, 4), kBaseSeed, std::vector{mm_hash("opaque"), kDigestHash});
  EXPECT_THAT(locals(source.apply(store({7}, nil(), {{"extra_keys", pair}}))), ElementsAre(both));
  const LocalHash one = local_hash(tokens(1, 4), kBaseSeed, std::vector{kDigestHash});
  EXPECT_THAT(locals(source.apply(store({8, 9}, nil(), {keys({{kDigest}, {}})}))),
              ElementsAre(one, local(5)));
  const std::string infos =
      list({map({{"mm_objects", list({map({{"mm_hash", u64(kDigestHash)}})})}})});
  EXPECT_THAT(locals(source.apply(store({10}, nil(), {{"block_mm_infos", infos}}))),
              ElementsAre(one));
}

TEST(EventNormalizer, ADigestThatIsTheAdaptersNameIsNoObject) {
  Source source;
  EXPECT_THAT(
      locals(source.apply(store({7}, nil(), {{"lora_name", str(kDigest)}, keys({{kDigest}})}))),
      ElementsAre(local(1, kDigest)));
}

TEST(EventNormalizer, ObjectsAndSaltsGoTogether) {
  Source source;
  EXPECT_THAT(
      locals(source.apply(store({7}, nil(), {keys({{kDigest, "tenant-a"}})}))),
      ElementsAre(local_hash(tokens(1, 4), hash_seed("", "tenant-a"), std::vector{kDigestHash})));
}

TEST(EventNormalizer, AnImageTokenIsReplacedByPadValues) {
  Source source({.image_token = 3});
  const std::string pair = list({list({list({str(kDigest), u64(2)})})});
  const std::uint32_t pad = mm_pad_value(kDigestHash);
  EXPECT_THAT(locals(source.apply(store({7}, nil(), {{"extra_keys", pair}}))),
              ElementsAre(local_hash(std::vector<std::uint32_t>{1, 2, pad, 4}, kBaseSeed)));
  EXPECT_THAT(locals(source.apply(store({8}, nil()))), ElementsAre(local(1)));
}

TEST(EventNormalizer, KeysThatMeanNothingHereStillTellBlocksApart) {
  Source source({.image_token = 3});
  const std::string embeds = list({list({bin("digest of embeddings")})});
  EXPECT_THAT(locals(source.apply(store({7}, nil(), {{"extra_keys", embeds}}))),
              ElementsAre(local_hash(tokens(1, 4), kBaseSeed,
                                     std::vector{mm_hash("digest of embeddings")})));
}

TEST(EventNormalizer, BlocksOfEaglePairsCoverTheTokenBehindThem) {
  Source source;
  std::vector<std::string> pairs;
  for (std::uint64_t i = 1; i < 9; ++i) {
    pairs.push_back(numbers({i, i + 1}));
  }
  EXPECT_EQ(source.normalizer.bigram(), std::nullopt);
  EXPECT_THAT(locals(source.apply(batch(
                  {list({str("BlockStored"), numbers({7, 8}), nil(), list(pairs), u64(4)})}))),
              ElementsAre(1914873892905420881U, 1929047464662796003U));
  EXPECT_THAT(source.normalizer.bigram(), Optional(true));
  source.apply(store({7}, nil()));
  EXPECT_THAT(source.normalizer.bigram(), Optional(false));
  source.normalizer.reset();
  EXPECT_EQ(source.normalizer.bigram(), std::nullopt);
}

TEST(EventNormalizer, TiersFollowTheMedium) {
  Source source;
  EXPECT_EQ(source.apply(store({7}, nil(), {{"medium", nil()}}))[0].tier, Tier::Device);
  EXPECT_EQ(source.apply(store({7}, nil(), {{"medium", str("STORAGE")}}))[0].tier, Tier::Disk);
  EXPECT_THAT(source.apply(store({7}, nil(), {{"medium", str("TAPE")}})), IsEmpty());
  EXPECT_THAT(source.apply(removal({7}, {{"medium", str("TAPE")}})), IsEmpty());
  EXPECT_EQ(source.normalizer.dropped(DropReason::UnknownMedium), 2U);
}

TEST(EventNormalizer, OnlyThePublishersOwnBlocksCount) {
  Source source;
  EXPECT_THAT(source.apply(store({7}, nil(), {{"locality", str("LOCAL")}})), SizeIs(1));
  EXPECT_THAT(source.apply(store({7}, nil(), {{"locality", str("REMOTE")}})), IsEmpty());
  EXPECT_THAT(source.apply(removal({7}, {{"locality", str("ELSEWHERE")}})), IsEmpty());
  EXPECT_EQ(source.normalizer.dropped(DropReason::NotLocal), 2U);
}

TEST(EventNormalizer, OnlyCachesOfWholePrefixesCount) {
  Source source;
  for (const std::string_view kind : {"full_attention", "mla_attention", "sink_full_attention"}) {
    EXPECT_THAT(source.apply(store({7}, nil(), {{"kv_cache_spec_kind", str(kind)}})), SizeIs(1));
  }
  const std::vector<std::string_view> others{
      "sliding_window",          "sliding_window_mla",     "mamba",
      "chunked_local_attention", "encoder_only_attention", "cross_attention"};
  for (const std::string_view kind : others) {
    EXPECT_THAT(source.apply(store({7}, nil(), {{"kv_cache_spec_kind", str(kind)}})), IsEmpty());
  }
  EXPECT_EQ(source.normalizer.dropped(DropReason::NonMainAttentionKind), others.size());
  EXPECT_THAT(source.apply(store({7}, nil(), {{"kv_cache_spec_kind", str("new")}})), IsEmpty());
  EXPECT_EQ(source.normalizer.dropped(DropReason::UnknownKind), 1U);
}

TEST(EventNormalizer, RemovalsFollowTheKindOfTheirGroup) {
  Source source;
  const auto group = [](std::uint64_t number) { return Member{"group_idx", u64(number)}; };
  const auto kind = [](std::string_view name) { return Member{"kv_cache_spec_kind", str(name)}; };
  // Before anything is learned only group 0 passes.
  EXPECT_THAT(source.apply(removal({7}, {group(0)})), SizeIs(1));
  EXPECT_THAT(source.apply(removal({7}, {group(1)})), IsEmpty());
  EXPECT_EQ(source.normalizer.dropped(DropReason::UnlearnedGroup), 1U);
  source.apply(store({7}, nil(), {group(0), kind("sliding_window")}));
  source.apply(store({7}, nil(), {group(1), kind("full_attention")}));
  source.apply(store({7}, nil(), {group(2), kind("new")}));
  EXPECT_THAT(source.apply(removal({7}, {group(0)})), IsEmpty());
  EXPECT_THAT(source.apply(removal({7}, {group(1)})), SizeIs(1));
  EXPECT_THAT(source.apply(store({8}, nil(), {group(2)})), IsEmpty());
  EXPECT_EQ(source.normalizer.dropped(DropReason::NonMainAttentionGroup), 2U);
  source.normalizer.reset();
  EXPECT_THAT(source.apply(removal({7}, {group(1)})), IsEmpty());
}

TEST(EventNormalizer, GroupsLearnedAreBounded) {
  Source source;
  const auto learn = [&](std::uint64_t number) {
    source.apply(
        store({7}, nil(), {{"group_idx", u64(number)}, {"kv_cache_spec_kind", str("mamba")}}));
  };
  for (std::uint64_t number = 0; number < 300; ++number) {
    learn(number);
  }
  source.apply(removal({7}, {{"group_idx", u64(255)}}));
  EXPECT_EQ(source.normalizer.dropped(DropReason::NonMainAttentionGroup), 1U);
  source.apply(removal({7}, {{"group_idx", u64(299)}}));
  EXPECT_EQ(source.normalizer.dropped(DropReason::UnlearnedGroup), 1U);
}

TEST(EventNormalizer, BlocksOfAnotherSizeAreDropped) {
  Source source;
  for (const std::uint64_t size : {0, 2, 8}) {
    EXPECT_THAT(source.apply(batch({list(
                    {str("BlockStored"), numbers({7}), nil(), range(1, size + 1), u64(size)})})),
                IsEmpty());
  }
  EXPECT_EQ(source.normalizer.dropped(DropReason::BlockSizeMismatch), 3U);
}

TEST(EventNormalizer, BlockSizesAreComplainedAboutThreeTimes) {
  Source source({.label = "engine-7"});
  const std::string payload =
      batch({list({str("BlockStored"), numbers({7}), nil(), range(1, 8), u64(8)})});
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 10; ++i) {
    source.apply(payload);
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  std::size_t lines = 0;
  for (std::size_t at = log.find("engine-7"); at != std::string::npos;
       at = log.find("engine-7", at + 1)) {
    ++lines;
  }
  EXPECT_EQ(lines, 3U) << log;
}

TEST(EventNormalizer, MissingTokensEndTheChain) {
  Source source;
  const Calls calls = source.apply(
      batch({list({str("BlockStored"), numbers({7, 8, 9}), nil(), range(1, 7), u64(4)})}));
  ASSERT_THAT(calls, SizeIs(1));
  EXPECT_THAT(calls[0].blocks, ElementsAre(StoredBlock{7, local(1)}));
  EXPECT_EQ(source.normalizer.dropped(DropReason::MissingTokens), 2U);
  EXPECT_THAT(
      source.apply(batch({list({str("BlockStored"), numbers({7}), nil(), list({}), u64(4)})})),
      IsEmpty());
}

TEST(EventNormalizer, TokensOfNoBlockMakeAStoreUseless) {
  Source source;
  EXPECT_THAT(
      source.apply(batch({list({str("BlockStored"), numbers({7}), nil(), range(1, 8), u64(4)})})),
      IsEmpty());
  EXPECT_EQ(source.normalizer.dropped(DropReason::SurplusTokens), 1U);
}

TEST(EventNormalizer, AChainThatRefersToItselfIsDropped) {
  Source source;
  EXPECT_THAT(source.apply(store({7}, u64(7))), IsEmpty());
  EXPECT_THAT(source.apply(store({6, 7}, u64(7))), IsEmpty());
  EXPECT_THAT(source.apply(store({7, 8, 7}, nil())), IsEmpty());
  EXPECT_EQ(source.normalizer.dropped(DropReason::SelfReference), 3U);
  EXPECT_THAT(source.apply(store({0, 1, 2, 3, 4, 5, 6, 7, 8}, u64(9))), SizeIs(1));
}

TEST(EventNormalizer, EventsOfUnknownTypesAreCounted) {
  Source source;
  EXPECT_THAT(source.apply(batch({list({str("Ignored")}), list({str("News"), u64(1)})})),
              IsEmpty());
  EXPECT_EQ(source.normalizer.dropped(DropReason::IgnoredEvent), 2U);
}

TEST(EventNormalizer, TheSocketDecidesTheRank) {
  Source source({.rank = 1});
  const std::string event = list({str("AllBlocksCleared")});
  EXPECT_THAT(source.apply(list({u64(1), list({event}), u64(1)})), SizeIs(1));
  EXPECT_THAT(source.apply(list({u64(1), list({event}), nil()})), SizeIs(1));
  EXPECT_EQ(source.normalizer.rank_mismatches(), 0U);
  EXPECT_THAT(source.apply(list({u64(1), list({event}), u64(0)})), SizeIs(1));
  EXPECT_EQ(source.normalizer.rank_mismatches(), 1U);
}

TEST(EventNormalizer, EveryReasonHasItsName) {
  std::vector<std::string_view> names;
  for (int i = 0; i < kDropReasonCount; ++i) {
    names.push_back(drop_reason_name(static_cast<DropReason>(i)));
    EXPECT_EQ(std::ranges::count(names, names.back()), 1) << i;
    EXPECT_NE(names.back(), "");
  }
  EXPECT_EQ(drop_reason_name(DropReason::IgnoredEvent), "ignored_event");
  EXPECT_EQ(drop_reason_name(DropReason::UnlearnedGroup), "unlearned_group_idx");
  EXPECT_EQ(names.back(), "namespace_memory_full");
}

TEST(EventNormalizer, AnotherOneGoesOnWithWhatOneHasLearned) {
  Source source;
  source.apply(store({1, 2}, nil(), {{"cache_salt", str("tenant-a")}}));
  source.apply(store({2}, nil(), {{"cache_salt", str("tenant-b")}}));
  source.apply(store({3}, nil(), {{"group_idx", i64(5)}, {"kv_cache_spec_kind", str("mamba")}}));
  source.apply(
      store({4}, nil(), {{"group_idx", i64(6)}, {"kv_cache_spec_kind", str("full_attention")}}));
  const NormalizerMemory memory = source.normalizer.memory();
  EXPECT_THAT(memory.salted, SizeIs(2));
  EXPECT_THAT(memory.groups, SizeIs(2));
  Source other;
  other.normalizer.restore(memory);
  EXPECT_EQ(other.normalizer.bigram(), source.normalizer.bigram());
  for (Source* one : {&source, &other}) {
    EXPECT_THAT(locals(one->apply(store({7}, u64(1)))), ElementsAre(local(1, "", "tenant-a")));
    EXPECT_THAT(one->apply(store({8}, u64(2))), IsEmpty()) << "an ambiguous parent";
    EXPECT_THAT(one->apply(store({9}, nil(), {{"group_idx", i64(5)}})), IsEmpty());
    EXPECT_THAT(one->apply(store({9}, nil(), {{"group_idx", i64(6)}})), SizeIs(1));
    EXPECT_EQ(one->normalizer.salted_blocks(), 3U);
  }
  Source small({.max_salted_blocks = 1});
  small.normalizer.restore(memory);
  EXPECT_EQ(small.normalizer.salted_blocks(), 1U);
}

}  // namespace
}  // namespace fairlead::kv
