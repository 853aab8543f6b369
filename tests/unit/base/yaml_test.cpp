#include "base/yaml.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace fairlead {
namespace {

// The value as JSON, or the error's message.
std::string read(std::string_view text) {
  const Result<json::Value> value = yaml::parse(text);
  return value ? json::dump(*value) : value.error().message;
}

TEST(Yaml, BlockMappingsAndLists) {
  EXPECT_EQ(read("a: 1\nb:\n  c: x\n  d:\n    - 1\n    - two\n"),
            R"({"a":1,"b":{"c":"x","d":[1,"two"]}})");
  EXPECT_EQ(read("list:\n- a: 1\n  b: 2\n- a: 3\nnext: x\n"),
            R"({"list":[{"a":1,"b":2},{"a":3}],"next":"x"})")
      << "a list may stand under its key";
  EXPECT_EQ(read("- - 1\n  - 2\n-\n  - 3\n-\n- x: \n"), R"([[1,2],[3],null,{"x":null}])");
  EXPECT_EQ(read("-   a: 1\n    b:\n    - c\n"), R"([{"a":1,"b":["c"]}])");
  EXPECT_EQ(read("just text"), R"("just text")");
  EXPECT_EQ(read(""), "null");
  EXPECT_EQ(read("# nothing\n\n"), "null");
}

TEST(Yaml, CommentsBlankLinesAndLineEnds) {
  EXPECT_EQ(read("---\r\n# head\r\na: 1  # one\r\n\r\n   # far\r\nb: x#y\r\nc: 'a # b'\r\n"),
            R"({"a":1,"b":"x#y","c":"a # b"})");
  EXPECT_EQ(read("\xEF\xBB\xBF"
                 "a: 1"),
            R"({"a":1})");
  EXPECT_EQ(read("a:    # note\n  - 1\n\n\n  - 2"), R"({"a":[1,2]})");
}

TEST(Yaml, PlainScalarsByTheCoreSchema) {
  EXPECT_EQ(read("[~, null, Null, , ]").substr(0, 7), "line 1:");
  EXPECT_EQ(read("[~, null, NULL, true, True, FALSE, yes, no, on]"),
            R"([null,null,null,true,true,false,"yes","no","on"])");
  EXPECT_EQ(read("[0, -7, +7, 010, 0o17, 0xfF, 1_000, 12:30]"),
            R"([0,-7,7,10,15,255,"1_000","12:30"])");
  EXPECT_EQ(read("[1.5, -.5, 1e3, +2.0, 1., .., 1.2.3, 1e, -, x]").substr(0, 7), "line 1:")
      << "a lone - is not text";
  EXPECT_EQ(read("[1.5, -.5, 1e3, 1.2.3, 1e, --1, +-1, +, .]"),
            R"([1.5,-0.5,1000.0,"1.2.3","1e","--1","+-1","+","."])");
  EXPECT_EQ(read("[99999999999999999999, -0099999999999999999999, 1e999, 0xffffffffffffffffff]"),
            R"([99999999999999999999,-99999999999999999999,"1e999","0xffffffffffffffffff"])");
  const auto special = yaml::parse("[.inf, -.INF, .nan]");
  ASSERT_TRUE(special);
  const json::Array& values = *special->as_array();
  EXPECT_EQ(*values[0].as_double(), HUGE_VAL);
  EXPECT_EQ(*values[1].as_double(), -HUGE_VAL);
  EXPECT_TRUE(std::isnan(*values[2].as_double()));
  EXPECT_EQ(read("1: true\nnull: 2"), R"({"1":true,"null":2})") << "keys are text";
}

TEST(Yaml, QuotedScalars) {
  EXPECT_EQ(read(R"(a: "x: \"y\" # \u00e9\n")"), "{\"a\":\"x: \\\"y\\\" # \u00e9\\n\"}");
  EXPECT_EQ(read("a: 'it''s'\n\"b c\": '1'\n'd': \"\""), R"({"a":"it's","b c":"1","d":""})");
  EXPECT_EQ(read("\"\ttab\""), R"("\ttab")");
  EXPECT_EQ(read(R"(- "a\\")"), R"(["a\\"])");
}

TEST(Yaml, FlowCollectionsAndJson) {
  EXPECT_EQ(read("a: [1, x y, 'z', ]\nb: {c: 1, d: [ ], \"e\":2, f: }\n"),
            R"({"a":[1,"x y","z"],"b":{"c":1,"d":[],"e":2,"f":null}})");
  EXPECT_EQ(read("{\n  \"a\": [1,\n    2.5],  # note\n  \"b\": {\"c\": \"\\ud83d\\ude00\"}\n}\n"),
            "{\"a\":[1,2.5],\"b\":{\"c\":\"\U0001F600\"}}");
  EXPECT_EQ(read("- [a]\n- {b: c}"), R"([["a"],{"b":"c"}])");
}

TEST(Yaml, ErrorsNameTheLine) {
  const struct {
    std::string_view text;
    std::string_view error;
  } cases[] = {
      {"a: 1\na: 2", "line 2: the key `a` is repeated"},
      {"{a: 1,\n a: 2}", "line 2: the key `a` is repeated"},
      {"a: 1\n  b: 2", "line 2: unexpected indentation"},
      {"a:\n    b: 1\n  c: 2", "line 3: unexpected indentation"},
      {"- a\n  b", "line 2: unexpected indentation"},
      {"- a\nb: 1", "line 2: unexpected indentation or text"},
      {"a: 1\n- b", "line 2: unexpected indentation or text"},
      {"a:\n\tb: 1", "line 2: a tab in the indentation"},
      {"a: b: c", "line 1: unexpected text after the value"},
      {"a: 'b' c", "line 1: unexpected text after the value"},
      {"a: [1] 2", "line 1: unexpected text after the value"},
      {"a: 1\nb", "line 2: expected `key: value`"},
      {"a: 'b", "line 1: a text without its closing quote"},
      {"a: \"b\n  c\"", "line 1: a text without its closing quote"},
      {"a: \"\\x41\"", "line 1: an unknown escape in a quoted text; known are those of JSON"},
      {"a: &x 1", "line 1: anchors and aliases are not read; quote text that begins so"},
      {"a: *x", "line 1: anchors and aliases are not read; quote text that begins so"},
      {"a: !!int 1", "line 1: tags are not read; quote text that begins so"},
      {"a: |\n  b", "line 1: block scalars are not read; quote text that begins so"},
      {"a: @b", "line 1: unexpected `@`; quote text that begins so"},
      {"? a\n: b", "line 1: unexpected `?`"},
      {"a: - b", "line 1: unexpected `-`"},
      {"a: [1\n", "line 2: `[` or `{` without its end"},
      {"a: [1 2", "line 1: `[` or `{` without its end"},
      {"a: [1, 'x' 2]", "line 1: expected `,` or `]`"},
      {"a: {b}", "line 1: expected `key: value`"},
      {"%YAML 1.2\n---\na: 1", "line 1: unexpected `%`; quote text that begins so"},
      {"a: 1\n---\nb: 2", "line 2: more than one document"},
      {"a: 1\n...\n", "line 2: more than one document"},
      {"a: \x01", "the text holds control characters"},
      {"a: 1\r", "the text holds control characters"},
      {"a: b\rc: d", "the text holds control characters"},
      {"a: \xff", "the text is not UTF-8"},
  };
  for (const auto& [text, error] : cases) {
    EXPECT_EQ(read(text), error) << text;
  }
}

TEST(Yaml, IsBounded) {
  const auto nested = [](int depth, std::string_view open) {
    std::string text;
    for (int i = 0; i < depth; ++i) {
      text += open;
    }
    return text;
  };
  EXPECT_TRUE(yaml::parse(nested(yaml::kMaxDepth - 1, "- ") + "x"));
  EXPECT_EQ(read(nested(yaml::kMaxDepth, "- ") + "x"), "line 1: nested too deeply");
  EXPECT_EQ(read(nested(100'000, "[")), "line 1: nested too deeply");
  std::string many;
  for (int i = 0; i < 5000; ++i) {
    many += "k" + std::to_string(i) + ": 1\n";
  }
  EXPECT_EQ(read(many), "line 4097: more than 4096 keys in one mapping");
}

}  // namespace
}  // namespace fairlead
