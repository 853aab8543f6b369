#include "tokenizer/length_rules.hpp"

#include <gtest/gtest.h>

#include <string>

namespace fairlead::tokenizer {
namespace {

using Ids = std::vector<TokenId>;

json::Value value(std::string_view text) {
  Result<json::Value> parsed = json::parse(text);
  EXPECT_TRUE(parsed) << text;
  return parsed ? *parsed : json::Value();
}

std::string truncation(std::string_view members) {
  return R"({"strategy":"LongestFirst","stride":0,)" + std::string(members) + "}";
}

std::string padding(std::string_view members) {
  return R"({"direction":"Right","pad_id":9,"pad_type_id":0,"pad_token":"x",)" +
         std::string(members) + "}";
}

// Ids 1 … `size`, of which `before` and `behind` are around the text, by the rules; {} and an error
// are told apart by the latter's first id.
Ids applied(std::string_view truncation, std::string_view padding, TokenId size,
            std::size_t before = 0, std::size_t behind = 0) {
  const Result<LengthRules> rules = read_length_rules(value(truncation), value(padding));
  if (!rules) {
    ADD_FAILURE() << rules.error().message;
    return {};
  }
  Ids ids;
  for (TokenId id = 1; id <= size; ++id) {
    ids.push_back(id);
  }
  const Result<> done = apply_length_rules(*rules, before, behind, ids);
  return done ? ids : Ids{UINT32_MAX};
}

const Ids kFails = {UINT32_MAX};

TEST(LengthRules, NoneLeaveTheIds) { EXPECT_EQ(applied("null", "null", 3), (Ids{1, 2, 3})); }

TEST(LengthRules, CutTheTextButNotWhatIsAroundIt) {
  EXPECT_EQ(applied(truncation(R"("max_length":4)"), "null", 6), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(applied(truncation(R"("max_length":4)"), "null", 4), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(applied(truncation(R"("max_length":4)"), "null", 6, 1, 2), (Ids{1, 2, 5, 6}));
  EXPECT_EQ(applied(truncation(R"("max_length":3)"), "null", 6, 1, 2), (Ids{1, 5, 6}));
  EXPECT_EQ(applied(truncation(R"("max_length":0)"), "null", 2), Ids{});
  EXPECT_EQ(applied(truncation(R"("max_length":4,"direction":"Left")"), "null", 6, 1, 1),
            (Ids{1, 4, 5, 6}));
}

TEST(LengthRules, DoNotCutWhereWhatIsAroundTheTextHasNoRoom) {
  EXPECT_EQ(applied(truncation(R"("max_length":1)"), "null", 4, 1, 1), (Ids{1, 2, 3, 4}));
}

TEST(LengthRules, FailWhereTheReferenceDoes) {
  const std::string second = R"({"strategy":"OnlySecond","stride":0,"max_length":3})";
  EXPECT_EQ(applied(second, "null", 3), (Ids{1, 2, 3}));
  EXPECT_EQ(applied(second, "null", 4), kFails);
  EXPECT_EQ(applied(second, "null", 4, 2, 1), (Ids{1, 2, 4}));
  const std::string stride = R"({"strategy":"OnlyFirst","stride":2,"max_length":3})";
  EXPECT_EQ(applied(stride, "null", 4), (Ids{1, 2, 3}));
  EXPECT_EQ(applied(stride, "null", 4, 1, 0), kFails);
  EXPECT_EQ(applied(stride, "null", 3, 1, 0), (Ids{1, 2, 3}));
}

TEST(LengthRules, FillUpToALengthOrAMultiple) {
  const std::string fixed = padding(R"("strategy":{"Fixed":5})");
  EXPECT_EQ(applied("null", fixed, 3), (Ids{1, 2, 3, 9, 9}));
  EXPECT_EQ(applied("null", fixed, 6), (Ids{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(applied("null", padding(R"("strategy":{"Fixed":3},"pad_to_multiple_of":2)"), 1),
            (Ids{1, 9, 9, 9}));
  EXPECT_EQ(applied("null", padding(R"("strategy":"BatchLongest")"), 3), (Ids{1, 2, 3}));
  EXPECT_EQ(applied("null", padding(R"("strategy":"BatchLongest","pad_to_multiple_of":4)"), 5),
            (Ids{1, 2, 3, 4, 5, 9, 9, 9}));
  EXPECT_EQ(applied("null", padding(R"("strategy":"BatchLongest","pad_to_multiple_of":0)"), 1),
            (Ids{1}));
  EXPECT_EQ(
      applied("null",
              R"({"direction":"Left","pad_id":7,"strategy":{"Fixed":3},"pad_to_multiple_of":null})",
              1),
      (Ids{7, 7, 1}));
}

TEST(LengthRules, CutFirstAndFillThen) {
  EXPECT_EQ(applied(truncation(R"("max_length":3)"), padding(R"("strategy":{"Fixed":4})"), 6, 1, 1),
            (Ids{1, 2, 6, 9}));
}

TEST(LengthRules, FillUpToABound) {
  EXPECT_EQ(applied("null", padding(R"("strategy":{"Fixed":16777217})"), 1), kFails);
  EXPECT_EQ(applied("null", padding(R"("strategy":{"Fixed":16777216})"), 1).size(), 16777216u);
  const std::string huge =
      padding(R"("strategy":{"Fixed":18446744073709551615},"pad_to_multiple_of":1000)");
  EXPECT_EQ(applied("null", huge, 1), kFails);
}

TEST(LengthRules, RefuseWhatTheReferenceDoesNotLoad) {
  for (const std::string_view bad :
       {"5", "[]", R"("x")", "{}", R"({"max_length":4,"stride":0})",
        R"({"max_length":4,"strategy":"LongestFirst"})",
        R"({"max_length":-1,"strategy":"LongestFirst","stride":0})",
        R"({"max_length":1.0,"strategy":"LongestFirst","stride":0})",
        R"({"max_length":18446744073709551616,"strategy":"LongestFirst","stride":0})",
        R"({"max_length":4,"strategy":"longest_first","stride":0})",
        R"({"max_length":4,"strategy":"OnlyFirst","stride":0,"direction":"left"})"}) {
    const Result<LengthRules> rules = read_length_rules(value(bad), json::Value());
    ASSERT_FALSE(rules) << bad;
    EXPECT_TRUE(rules.error().message.starts_with("tokenizer.json: truncation: ")) << bad;
  }
  for (const std::string& bad :
       {std::string("3"), std::string("{}"), padding(R"("strategy":"Longest")"),
        padding(R"("strategy":{"Fixed":-1})"), padding(R"("strategy":{"Fixed":"a"})"),
        padding(R"("strategy":"BatchLongest","pad_to_multiple_of":-1)"),
        std::string(R"({"strategy":"BatchLongest","pad_id":0})"),
        std::string(R"({"strategy":"BatchLongest","direction":"Right","pad_id":4294967296})")}) {
    const Result<LengthRules> rules = read_length_rules(json::Value(), value(bad));
    ASSERT_FALSE(rules) << bad;
    EXPECT_TRUE(rules.error().message.starts_with("tokenizer.json: padding: ")) << bad;
  }
}

}  // namespace
}  // namespace fairlead::tokenizer
