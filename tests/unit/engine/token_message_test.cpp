#include "engine/vllm_grpc/token_message.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "vllm/inference.pb.h"

namespace fairlead::engine::vllm_grpc {
namespace {

std::string message_of(const std::vector<TokenId>& ids, int num_tokens = -1) {
  ::vllm::GenerateResponse response;
  ::vllm::SequenceOutput& outputs = *response.mutable_outputs();
  outputs.set_num_tokens(num_tokens < 0 ? static_cast<std::uint32_t>(ids.size())
                                        : static_cast<std::uint32_t>(num_tokens));
  outputs.mutable_token_ids()->Add(ids.begin(), ids.end());
  return response.SerializeAsString();
}

TEST(TokenMessages, IdsOfEverySizeAreRead) {
  for (const std::vector<TokenId>& ids : {std::vector<TokenId>{0},
                                          {127},
                                          {128},
                                          {16383, 16384},
                                          {2097151, 2097152},
                                          {268435455, 268435456},
                                          {0xFFFFFFFF, 0, 1},
                                          std::vector<TokenId>(1000, 150'000)}) {
    std::vector<TokenId> decoded{99};
    ASSERT_TRUE(decode_token_message(message_of(ids), decoded));
    EXPECT_EQ(decoded, ids);
  }
}

TEST(TokenMessages, AnythingElseIsLeftToProtobuf) {
  std::vector<TokenId> ids;
  EXPECT_FALSE(decode_token_message("", ids));
  EXPECT_FALSE(decode_token_message(message_of({}), ids));
  EXPECT_FALSE(decode_token_message(message_of({1, 2}, 1), ids));
  EXPECT_FALSE(decode_token_message(message_of({1, 2}, 3), ids));

  ::vllm::GenerateResponse response;
  ASSERT_TRUE(response.ParseFromString(message_of({1})));
  response.mutable_prompt_info()->set_num_prompt_tokens(3);
  EXPECT_FALSE(decode_token_message(response.SerializeAsString(), ids));
  response.clear_prompt_info();
  response.mutable_outputs()->set_text("a");
  EXPECT_FALSE(decode_token_message(response.SerializeAsString(), ids));
  response.mutable_outputs()->clear_text();
  response.mutable_outputs()->set_index(1);
  EXPECT_FALSE(decode_token_message(response.SerializeAsString(), ids));
  response.mutable_outputs()->set_index(0);
  response.mutable_outputs()->add_logprobs(-1.0F);
  EXPECT_FALSE(decode_token_message(response.SerializeAsString(), ids));
  response.mutable_outputs()->clear_logprobs();
  response.mutable_outputs()->mutable_finish_info();
  EXPECT_FALSE(decode_token_message(response.SerializeAsString(), ids));
}

TEST(TokenMessages, EveryCutIsRefused) {
  const std::string whole = message_of({1, 300, 70'000, 0xFFFFFFFF});
  std::vector<TokenId> ids;
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(decode_token_message(std::string_view(whole).substr(0, length), ids)) << length;
  }
  EXPECT_FALSE(decode_token_message(whole + '\0', ids));
}

TEST(TokenMessages, VarintsBeyond32BitsAreLeftToProtobuf) {
  std::vector<TokenId> ids;
  using namespace std::string_literals;
  EXPECT_TRUE(decode_token_message("\x12\x09\x18\x01\x22\x05\xff\xff\xff\xff\x0f"s, ids));
  EXPECT_EQ(ids, std::vector<TokenId>{0xFFFFFFFF});
  EXPECT_FALSE(decode_token_message("\x12\x09\x18\x01\x22\x05\xff\xff\xff\xff\x1f"s, ids));
  EXPECT_FALSE(decode_token_message("\x12\x0a\x18\x01\x22\x06\xff\xff\xff\xff\x8f\x00"s, ids));
}

}  // namespace
}  // namespace fairlead::engine::vllm_grpc
