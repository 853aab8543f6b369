#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "mock/block_pool.hpp"
#include "mock/kv_events.hpp"
#include "mock/sglang_bootstrap.hpp"
#include "mock/sha256.hpp"

namespace fairlead::mock {
namespace {

std::string hex(const Sha256Digest& digest) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const std::uint8_t byte : digest) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

TEST(Sha256, GivesThePublishedVectors) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// A captured event of SGLang 0.5.23: tokens 100 to 131 in pages of 16.
TEST(PageHashes, AreThoseOfTheRealEngine) {
  std::vector<TokenId> tokens;
  for (TokenId token = 100; token < 140; ++token) {
    tokens.push_back(token);
  }
  std::vector<std::uint64_t> hashes;
  Sha256Digest digest{};
  extend_page_hashes(hashes, digest, tokens, 16, {});
  EXPECT_EQ(hashes, (std::vector<std::uint64_t>{0x34819f75ed7b029cULL, 0xb359ff706833ab50ULL}));
}

TEST(PageHashes, DoNotDependOnHowTheSequenceGrew) {
  std::vector<TokenId> tokens;
  std::vector<std::uint64_t> grown;
  Sha256Digest digest{};
  for (TokenId token = 0; token < 70; ++token) {
    tokens.push_back(token);
    extend_page_hashes(grown, digest, tokens, 8, {});
  }
  std::vector<std::uint64_t> whole;
  Sha256Digest other{};
  extend_page_hashes(whole, other, tokens, 8, {});
  EXPECT_EQ(grown, whole);
  std::vector<std::uint64_t> adapted;
  Sha256Digest third{};
  extend_page_hashes(adapted, third, tokens, 8, "adapter");
  ASSERT_EQ(adapted.size(), whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_NE(adapted[i], whole[i]);
    EXPECT_EQ(adapted[i] ^ adapter_mask("adapter"), whole[i]);
  }
}

TEST(Announcement, ReadsWhatItWrites) {
  const RoomAnnouncement sent{9223372036854775807LL, 3};
  const auto read = parse_announcement(announcement_json(sent));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->room, sent.room);
  EXPECT_EQ(read->rank, sent.rank);
  for (const char* text : {"", "{", "[]", "{}", R"({"room": 1})", R"({"room": 1, "dp_rank": -1})",
                           R"({"room": "1", "dp_rank": 0})", R"({"room": 1e3, "dp_rank": 0})",
                           R"({"room": 9223372036854775808, "dp_rank": 0})"}) {
    EXPECT_FALSE(parse_announcement(text)) << text;
  }
}

TEST(FirstToken, ReadsWhatItWrites) {
  const FirstToken sent{151935, 32, true};
  const auto read = parse_first_token(first_token_json(sent));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->token, sent.token);
  EXPECT_EQ(read->cached, sent.cached);
  EXPECT_TRUE(read->scored);
  for (const char* text : {"", "{}", R"({"token": -1, "cached_tokens": 0, "logprob": true})",
                           R"({"token": 4294967296, "cached_tokens": 0, "logprob": true})",
                           R"({"token": 1, "cached_tokens": 0, "logprob": 1})"}) {
    EXPECT_FALSE(parse_first_token(text)) << text;
  }
}

}  // namespace
}  // namespace fairlead::mock
