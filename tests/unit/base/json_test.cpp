#include "base/json.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace fairlead::json {
namespace {

std::string round_trip(std::string_view text) {
  const auto value = parse(text);
  return value ? dump(*value) : "error: " + value.error().message;
}

TEST(JsonParse, KeepsOrderNumbersAndText) {
  EXPECT_EQ(
      round_trip(R"( {"b":[1,-2,3.5,1e3],"a":{"x":null,"y":true},"s":"a\u00e9\ud83d\ude00\n"} )"),
      "{\"b\":[1,-2,3.5,1000.0],\"a\":{\"x\":null,\"y\":true},\"s\":\"aé😀\\n\"}");
  EXPECT_EQ(round_trip("9223372036854775807"), "9223372036854775807");
  EXPECT_EQ(round_trip("[-9223372036854775808]"), "[-9223372036854775808]");
  EXPECT_EQ(round_trip("[100000000000000000000,-100000000000000000000]"),
            "[100000000000000000000,-100000000000000000000]");
}

TEST(JsonParse, RepeatedKeyKeepsItsPlaceAndTakesTheLastValue) {
  EXPECT_EQ(round_trip(R"({"a":1,"b":2,"a":3,"c":4,"a":5})"), R"({"a":5,"b":2,"c":4})");
}

TEST(JsonParse, RefusesWhatIsNotJson) {
  for (const char* text :
       {"", " ", "{", "[1,]", "{\"a\" 1}", "nul", "[01]", "1 2", "{\"a\":1}x", "\"\x01\"",
        "\"\xff\"", "\"\\ud800\"", "[1e400]", "[-]", "[1.]", "[100000000000000000000x]",
        "[0100000000000000000000]", "tru", "[tru]"}) {
    EXPECT_FALSE(parse(text)) << text;
  }
}

TEST(JsonParse, DepthIsBounded) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(parse(nested(kMaxDepth)));
  const auto refused = parse(nested(kMaxDepth + 1));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("nested deeper"), std::string::npos);
  EXPECT_FALSE(parse(nested(100000)));
}

TEST(JsonWriter, WritesCommasAndEscapes) {
  std::string out;
  Writer writer(out);
  writer.begin_object();
  writer.key("a").begin_array().integer(1).string("q\"\\\x01\xff").null().end_array();
  writer.key("b").boolean(false).key("c").number(0.25).key("d").raw("{}");
  writer.key("e").number(std::numeric_limits<double>::infinity());
  writer.end_object();
  EXPECT_EQ(out,
            "{\"a\":[1,\"q\\\"\\\\\\u0001\xEF\xBF\xBD\",null],\"b\":false,\"c\":0.25,\"d\":{},"
            "\"e\":null}");
}

}  // namespace
}  // namespace fairlead::json
