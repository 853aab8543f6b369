#include "engine/vllm_http/token_event.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace fairlead::engine::vllm_http {
namespace {

using ::testing::ElementsAre;

struct Read {
  bool taken = false;
  std::vector<TokenId> ids;
  std::optional<std::uint32_t> total;
};

Read read(std::string_view event) {
  Read out;
  out.taken = decode_token_event(event, out.ids, out.total);
  return out;
}

TEST(VllmHttpTokenEvent, ReadsWhatEachServerSends) {
  const Read rust = read(R"({"request_id":"a-1","choices":[{"index":0,"token_ids":[7042,0]}]})");
  EXPECT_TRUE(rust.taken);
  EXPECT_THAT(rust.ids, ElementsAre(7042, 0));
  EXPECT_FALSE(rust.total);
  const Read python = read(
      R"({"request_id":"g","usage":null,"output_mode":"tokens","choices":[{"index":0,)"
      R"("finish_reason":null,"stop_reason":null,"token_ids":[4294967295],"routed_experts":null,)"
      R"("sampling_mask":null,"weight_versions":null,"logprobs":null}]})");
  EXPECT_TRUE(python.taken);
  EXPECT_THAT(python.ids, ElementsAre(4294967295U));
}

TEST(VllmHttpTokenEvent, ReadsRunningTotals) {
  const Read event = read(
      R"({"choices":[{"index":0,"token_ids":[5]}],"usage":{"prompt_tokens":5,"total_tokens":6,)"
      R"("completion_tokens":1,"prompt_tokens_details":null,)"
      R"("completion_tokens_details":{"reasoning_tokens":0,"completion_tokens":9}}})");
  EXPECT_TRUE(event.taken);
  EXPECT_EQ(event.total, 1U);
}

TEST(VllmHttpTokenEvent, LeavesEverythingElseToTheFullParser) {
  const char* events[] = {
      "",
      "[DONE]",
      "{}",
      R"({"choices":[]})",
      R"({"choices":[{"index":0,"token_ids":[]}]})",
      R"({"choices":[{"index":0,"token_ids":null}]})",
      R"({"choices":[{"index":0}]})",
      R"({"choices":[{"index":1,"token_ids":[5]}]})",
      R"({"choices":[{"index":00,"token_ids":[5]}]})",
      R"({"choices":[{"index":0,"token_ids":[5]},{"index":0,"token_ids":[6]}]})",
      R"({"choices":[{"index":0,"token_ids":[5],"token_ids":[6]}]})",
      R"({"choices":[{"token_ids":[5]}],"choices":[{"token_ids":[6]}]})",
      R"({"choices":[{"index":0,"finish_reason":"stop","token_ids":[5]}]})",
      R"({"choices":[{"index":0,"logprobs":{"content":[]},"token_ids":[5]}]})",
      R"({"error":null,"choices":[{"index":0,"token_ids":[5]}]})",
      R"({"choices":[{"index":0,"token_ids":[05]}]})",
      R"({"choices":[{"index":0,"token_ids":[-5]}]})",
      R"({"choices":[{"index":0,"token_ids":[5.0]}]})",
      R"({"choices":[{"index":0,"token_ids":[4294967296]}]})",
      R"({"choices":[{"index":0,"token_ids":[5,]}]})",
      R"({"choices":[{"index":0,"token_ids":[5]}]} )",
      R"({"choices":[{"index":0,"token_ids":[5]}]}x)",
      R"({"choices":[{"index":0,"token_ids":[5]})",
      R"({"a":"\u0031","choices":[{"index":0,"token_ids":[5]}]})",
      "{\"a\":\"\xC3\xA9\",\"choices\":[{\"index\":0,\"token_ids\":[5]}]}",
      R"({"choices":[{"token_ids":[5]}],"usage":{"completion_tokens":1,"completion_tokens":2}})",
      R"({"choices":[{"token_ids":[5]}],"usage":{"completion_tokens":null}})",
  };
  for (const char* event : events) {
    EXPECT_FALSE(read(event).taken) << event;
  }
}

// Whatever the cut, a part of an event is no event.
TEST(VllmHttpTokenEvent, PartsAreNotTaken) {
  const std::string event =
      R"({"request_id":"x","choices":[{"index":0,"token_ids":[12,3]}],"usage":{"completion_tokens":2}})";
  ASSERT_TRUE(read(event).taken);
  for (std::size_t size = 0; size < event.size(); ++size) {
    EXPECT_FALSE(read(std::string_view(event).substr(0, size)).taken) << size;
  }
}

}  // namespace
}  // namespace fairlead::engine::vllm_http
