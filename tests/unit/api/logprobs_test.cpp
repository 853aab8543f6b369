#include "api/openai/logprobs.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "api/openai/token_columns.hpp"
#include "api/serving_fixture.hpp"
#include "base/json.hpp"

namespace fairlead::api::openai {
namespace {

using engine::TokenLogprob;

// Tokens of the demo model.
constexpr engine::TokenId kA = 64;          // a
constexpr engine::TokenId kB = 65;          // b
constexpr engine::TokenId kHead = 265;      // the first half of 😀
constexpr engine::TokenId kTail = 310;      // the second
constexpr engine::TokenId kEnd = 2607;      // <|end|>, special
constexpr engine::TokenId kNone = 999'999;  // not in the vocabulary

TokenLogprob entry(float logprob, std::vector<engine::Candidate> candidates = {}) {
  return {.logprob = logprob, .rank = 2, .candidates = std::move(candidates), .missing = false};
}

const TokenLogprob kMissing{
    .logprob = engine::kLowestLogprob, .rank = 0, .candidates = {}, .missing = true};

class LogprobWriterTest : public ::testing::Test {
 protected:
  template <class... Args>
  std::string chat(Args&&... args) {
    std::string out;
    writer_.chat_entry(out, std::forward<Args>(args)...);
    EXPECT_TRUE(json::parse(out)) << out;
    return out;
  }
  template <class... Args>
  std::string text(Args&&... args) {
    std::string out;
    writer_.text_map(out, std::forward<Args>(args)...);
    EXPECT_TRUE(json::parse(out)) << out;
    return out;
  }
  template <class... Args>
  std::string ids(Args&&... args) {
    std::string out;
    writer_.id_map(out, std::forward<Args>(args)...);
    EXPECT_TRUE(json::parse(out)) << out;
    return out;
  }
  std::string token(const LogprobWriter& writer, engine::TokenId id) {
    std::string out;
    writer.token(out, id);
    return out;
  }

  LogprobWriter writer_{*demo_assets()->tokenizer, false};
  LogprobWriter as_ids_{*demo_assets()->tokenizer, true};
};

TEST_F(LogprobWriterTest, TheTokenComesFirstAndTheLimitCountsIt) {
  const auto full = entry(-1.5F, {{kB, -0.5F, 1}, {kA, -1.5F, 2}, {kEnd, -2, 3}});
  const std::string a = R"({"token":"a","logprob":-1.5,"bytes":[97]})";
  const std::string b = R"({"token":"b","logprob":-0.5,"bytes":[98]})";
  const std::string head = R"({"token":"a","logprob":-1.5,"bytes":[97],"token_id":64,)";
  EXPECT_EQ(chat(kA, full, 0U), head + R"("top_logprobs":[]})");
  EXPECT_EQ(chat(kA, full, 1U), head + R"("top_logprobs":[)" + a + "]}");
  EXPECT_EQ(chat(kA, full, 2U), head + R"("top_logprobs":[)" + a + "," + b + "]}");
  const std::string all = head + R"("top_logprobs":[)" + a + "," + b +
                          R"(,{"token":"<|end|>","logprob":-2.0,"bytes":[60,124,101,110,100,)"
                          R"(124,62]}]})";
  EXPECT_EQ(chat(kA, full, 3U), all);
  EXPECT_EQ(chat(kA, full, engine::kAllCandidates), all);
  EXPECT_EQ(text(kA, full, 2U), R"({"a":-1.5,"b":-0.5})");
  EXPECT_EQ(text(kA, entry(-1), 1U), R"({"a":-1.0})");
  EXPECT_EQ(ids(kA, full, 2U), R"({"64":{"logprob":-1.5,"rank":2,"decoded_token":"a"},)"
                               R"("65":{"logprob":-0.5,"rank":1,"decoded_token":"b"}})");
}

TEST_F(LogprobWriterTest, EveryIdIsListedOnce) {
  const auto repeated =
      entry(-1, {{kA, -1, 1}, {kB, -2, 2}, {kB, -2, 2}, {kA, -1, 1}, {kEnd, -3, 0}});
  EXPECT_EQ(text(kA, repeated, 3U), R"({"a":-1.0,"b":-2.0,"<|end|>":-3.0})");
  EXPECT_EQ(ids(kA, repeated, engine::kAllCandidates),
            R"({"64":{"logprob":-1.0,"rank":2,"decoded_token":"a"},)"
            R"("65":{"logprob":-2.0,"rank":2,"decoded_token":"b"},)"
            R"("2607":{"logprob":-3.0,"rank":null,"decoded_token":"<|end|>"}})");
}

TEST_F(LogprobWriterTest, PartsOfCharactersKeepTheirBytes) {
  EXPECT_EQ(chat(kHead, entry(-1), 0U), R"({"token":"�","logprob":-1.0,"bytes":[240,159],)"
                                        R"("token_id":265,"top_logprobs":[]})");
  EXPECT_EQ(text(kTail, entry(-1, {{kHead, -0.5F, 1}, {kA, -4, 3}}), 3U),
            "{\"\uFFFD\uFFFD\":-1.0,\"\uFFFD\":-0.5,\"a\":-4.0}");
}

TEST_F(LogprobWriterTest, TokensWithOneTextShareAKeyThatTheFirstHas) {
  const LogprobWriter& writer = writer_;
  ASSERT_EQ(token(writer, kNone), token(writer, kNone + 1));
  EXPECT_EQ(text(kNone, entry(-1, {{kNone + 1, -0.5F, 1}, {kA, -4, 3}}), 3U),
            R"({"":-1.0,"a":-4.0})");
}

TEST_F(LogprobWriterTest, AMissingValueIsTheLowestWithoutAlternatives) {
  EXPECT_EQ(chat(kA, kMissing, 5U), R"({"token":"a","logprob":-9999.0,"bytes":[97],)"
                                    R"("token_id":64,"top_logprobs":[]})");
  EXPECT_EQ(text(kA, kMissing, 5U), "{}");
  EXPECT_EQ(ids(kA, kMissing, 5U), R"({"64":{"logprob":-9999.0,"rank":null,"decoded_token":"a"}})");
}

TEST_F(LogprobWriterTest, TokensCanBeNamedByTheirIds) {
  EXPECT_EQ(token(as_ids_, kEnd), "\"token_id:2607\"");
  std::string out;
  as_ids_.chat_entry(out, 7, entry(-1, {{8, -2, 2}}), 2);
  const std::string seven = R"("bytes":[116,111,107,101,110,95,105,100,58,55])";
  const std::string eight = R"("bytes":[116,111,107,101,110,95,105,100,58,56])";
  EXPECT_EQ(out, R"({"token":"token_id:7","logprob":-1.0,)" + seven +
                     R"(,"token_id":7,"top_logprobs":[{"token":"token_id:7","logprob":-1.0,)" +
                     seven + R"(},{"token":"token_id:8","logprob":-2.0,)" + eight + "}]}");
  out.clear();
  as_ids_.text_map(out, kHead, entry(-1, {{kTail, -2, 2}}), 3);
  EXPECT_EQ(out, R"({"token_id:265":-1.0,"token_id:310":-2.0})");
}

TEST_F(LogprobWriterTest, UnknownIdsHaveNoBytes) {
  EXPECT_EQ(chat(kNone, entry(0), 0U), R"({"token":"","logprob":0.0,"bytes":null,)"
                                       R"("token_id":999999,"top_logprobs":[]})");
}

TEST_F(LogprobWriterTest, ColumnsLeaveInOrderAndStayAligned) {
  TokenColumns columns(writer_, {.chat = false, .logprobs = true, .limit = 1});
  const auto one = entry(-1);
  columns.add_prompt(kA, nullptr, 0);
  columns.add_prompt(kB, &one, 1);
  columns.add(kHead, &one, 2);
  columns.add(kTail, &one, 2);
  columns.add(kEnd, &one, 3);
  EXPECT_EQ(columns.ready(0), 0U);
  EXPECT_EQ(columns.ready(2), 2U);
  EXPECT_EQ(columns.ready(3), 4U);
  std::string out;
  columns.take_logprobs(out, 3, 2);
  const std::string part = "\uFFFD";
  EXPECT_EQ(out, R"({"tokens":["a","b",")" + part + R"("],"token_logprobs":[null,-1.0,-1.0],)" +
                     R"("top_logprobs":[null,{"b":-1.0},{")" + part +
                     R"(":-1.0}],"text_offset":[0,1,2]})");
  out.clear();
  columns.write_ids(out, 3);
  EXPECT_EQ(out, "[265]");
  columns.drop(3);
  ASSERT_EQ(columns.size(), 2U);
  columns.add(kA, &kMissing, 9);
  out.clear();
  columns.take_logprobs(out, 3, 4);
  const std::string tail = token(writer_, kTail);
  EXPECT_EQ(out, R"({"tokens":[)" + tail + R"(,"<|end|>","a"],)" +
                     R"("token_logprobs":[-1.0,-1.0,-9999.0],"top_logprobs":[{)" + tail +
                     R"(:-1.0},{"<|end|>":-1.0},{}],"text_offset":[2,3,4]})")
      << "no offset is behind the text";
  columns.drop(3);
  out.clear();
  columns.take_logprobs(out, 0, 4);
  columns.write_ids(out, 0);
  EXPECT_EQ(out, R"({"tokens":[],"token_logprobs":[],"top_logprobs":[],"text_offset":[]}[])");
}

TEST(ColumnTest, LongTextLeavesInOrderWhereverItIsCut) {
  Column column;
  std::string whole;
  std::string out;
  std::size_t taken = 0;
  for (int i = 0; i < 100; ++i) {
    const std::string item = std::to_string(i) + std::string(static_cast<std::size_t>(i) * 97, 'x');
    column.tail() += item;
    whole += item;
    EXPECT_EQ(column.end(), whole.size());
    if (i % 30 == 29) {
      taken = whole.size() / 2;
      column.take(out, taken);
      EXPECT_EQ(out, whole.substr(0, taken));
      EXPECT_EQ(column.size(), whole.size() - taken);
    }
  }
  EXPECT_GT(whole.size(), 400'000U) << "several pieces";
  column.drop(taken + 100'000);
  std::string rest;
  column.append_to(rest);
  EXPECT_EQ(rest, whole.substr(taken + 100'000));
  column.take(out, column.end());
  EXPECT_EQ(column.size(), 0U);
  EXPECT_EQ(out.size(), whole.size() - 100'000);
  column.tail() += "again";
  column.append_to(out);
  EXPECT_TRUE(out.ends_with("xagain"));
}

}  // namespace
}  // namespace fairlead::api::openai
