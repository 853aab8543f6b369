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
  EXPECT_EQ(
      read("[1.5, -.5, 1e3, +2.0, 1., 1.2.3, 1e, --1, +-1, +, -, ., .., 0x-1, -0x1, 0o8]"),
      R"([1.5,-0.5,1000.0,2.0,1.0,"1.2.3","1e","--1","+-1","+","-",".","..","0x-1","-0x1","0o8"])");
  EXPECT_EQ(read("[9223372036854775807, -9223372036854775808, 9223372036854775808]"),
            "[9223372036854775807,-9223372036854775808,9223372036854775808]");
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

TEST(Yaml, QuotedAndBlockScalarsAreText) {
  EXPECT_EQ(read(R"(a: "x: \"y\" # \u00e9\n")"), "{\"a\":\"x: \\\"y\\\" # \u00e9\\n\"}");
  EXPECT_EQ(read("a: 'it''s'\n\"b c\": '1'\n'd': \"\""), R"({"a":"it's","b c":"1","d":""})");
  EXPECT_EQ(read("\"\ttab\""), R"("\ttab")");
  EXPECT_EQ(read(R"(- "a\\")"), R"(["a\\"])");
  EXPECT_EQ(read(R"("\x41\U0001F600\/\0")"), "\"A\U0001F600/\\u0000\"");
  EXPECT_EQ(read("a: |\n  1\n  2\nb: >-\n  3\n  4\n"), R"({"a":"1\n2\n","b":"3 4"})");
  EXPECT_EQ(read("a: |\n  null\n---"), "line 3: more than one document");
}

TEST(Yaml, TextOverSeveralLines) {
  EXPECT_EQ(read("- a\n  b\n- 1\n  2"), R"(["a b","1 2"])");
  EXPECT_EQ(read("a: \"b\n  c\""), R"({"a":"b c"})");
  EXPECT_EQ(read("a: [1,\n2, x\ny]"), R"({"a":[1,2,"x y"]})");
}

TEST(Yaml, CoreTags) {
  EXPECT_EQ(read("[!!str 1, !!int '2', !!float 3, !!bool 'true', !!null '', !!seq [], !!map {}]"),
            R"(["1",2,3.0,true,null,[],{}])");
  EXPECT_EQ(read("!!int 99999999999999999999"), "99999999999999999999");
  for (const std::string_view text :
       {"!!int x", "!!int 1.5", "!!bool yes", "!!null x", "!!float x", "!!set {}", "!!map []",
        "!!seq {}", "!!binary aGk=", "!own 1", "!own [1]", "!<tag:example.com,2000:a> 1"}) {
    EXPECT_EQ(read(text), "line 1: a tag that is not of the core schema or does not fit its value")
        << text;
  }
}

TEST(Yaml, FlowCollectionsAndJson) {
  EXPECT_EQ(read("a: [1, x y, 'z', ]\nb: {c: 1, d: [ ], \"e\":2, f: }\n"),
            R"({"a":[1,"x y","z"],"b":{"c":1,"d":[],"e":2,"f":null}})");
  EXPECT_EQ(read("{\n  \"a\": [1,\n    2.5],  # note\n  \"b\": {\"c\": \"\U0001F600\"}\n}\n"),
            "{\"a\":[1,2.5],\"b\":{\"c\":\"\U0001F600\"}}");
  EXPECT_EQ(read("- [a]\n- {b: c}\n- {d}\n- [e: f]"),
            R"([["a"],{"b":"c"},{"d":null},[{"e":"f"}]])");
}

TEST(Yaml, ExplicitKeysDirectivesAndEnds) {
  EXPECT_EQ(read("? a\n: b\n? c\n"), R"({"a":"b","c":null})");
  EXPECT_EQ(read("%YAML 1.2\n---\na: 1\n...\n"), R"({"a":1})");
  EXPECT_EQ(read("a: b\rc: d\r"), R"({"a":"b","c":"d"})") << "a lone return ends a line";
}

TEST(Yaml, ErrorsNameTheLine) {
  const struct {
    std::string_view text;
    std::string_view error;
  } cases[] = {
      {"a: 1\na: 2", "line 2: the key `a` is repeated"},
      {"{a: 1,\n a: 2}", "line 2: the key `a` is repeated"},
      {"'1': 1\n1: 2", "line 2: the key `1` is repeated"},
      {"a: 1\n  b: 2", "line 2: mapping values are not allowed in this context"},
      {"a:\n    b: 1\n  c: 2",
       "line 3: did not find expected key while parsing a block mapping that begins on line 1"},
      {"- a\nb: 1",
       "line 2: did not find expected '-' indicator while parsing a block collection that begins "
       "on line 1"},
      {"a: 1\n- b",
       "line 2: did not find expected key while parsing a block mapping that begins on line 1"},
      {"a:\n\tb: 1",
       "line 2: found character that cannot start any token while scanning for the next token"},
      {"a: b: c", "line 1: mapping values are not allowed in this context"},
      {"a: 'b' c", "line 1: did not find expected key while parsing a block mapping"},
      {"a: [1] 2", "line 1: did not find expected key while parsing a block mapping"},
      {"a: 1\nb",
       "line 3: could not find expected ':' while scanning a simple key that begins on line 2"},
      {"a: 'b", "line 1: found unexpected end of stream while scanning a quoted scalar"},
      {"\n\na: \"b\n  c\n",
       "line 5: found unexpected end of stream while scanning a quoted scalar that begins on line "
       "3"},
      {"a: \"\\q\"", "line 1: found unknown escape character while parsing a quoted scalar"},
      {"a: \"\\ud83d\\ude00\"",
       "line 1: found invalid Unicode character escape code while parsing a quoted scalar"},
      {"a: &x 1", "line 1: anchors and aliases are not read; quote text that begins so"},
      {"a:\n  &x [1]", "line 2: anchors and aliases are not read; quote text that begins so"},
      {"a: &x {}", "line 1: anchors and aliases are not read; quote text that begins so"},
      {"a: *x", "line 1: anchors and aliases are not read; quote text that begins so"},
      {"*x : a", "line 1: anchors and aliases are not read; quote text that begins so"},
      {"a: @b",
       "line 1: found character that cannot start any token while scanning for the next token"},
      {"a: %b",
       "line 1: found character that cannot start any token while scanning for the next token"},
      {"a: - b", "line 1: block sequence entries are not allowed in this context"},
      {"a: [1\n",
       "line 2: did not find expected ',' or ']' while parsing a flow sequence that begins on line "
       "1"},
      {"a: [1 2",
       "line 2: did not find expected ',' or ']' while parsing a flow sequence that begins on line "
       "1"},
      {"a: [1, 'x' 2]", "line 1: did not find expected ',' or ']' while parsing a flow sequence"},
      {"a: 1\n[b]: 2", "line 2: a key is text, not a list or mapping"},
      {"{{}: 2}", "line 1: a key is text, not a list or mapping"},
      {"a: 1\n---\nb: 2", "line 2: more than one document"},
      {"a: 1\n...\n---\n", "line 3: more than one document"},
      {"%YAML 3.0\n---\na: 1", "line 1: found incompatible YAML document"},
      {"a:\nb: \x01", "line 2: control characters are not allowed"},
      {"a: \x7f", "line 1: control characters are not allowed"},
      {"a:\n\nb: \xff", "line 3: invalid leading UTF-8 octet"},
      {"a: \xc3", "line 1: incomplete UTF-8 octet sequence"},
      {"\xff\xfe"
       "a",
       "line 1: invalid leading UTF-8 octet"},
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
  EXPECT_TRUE(yaml::parse(nested(yaml::kMaxDepth, "- ") + "x"));
  EXPECT_EQ(read(nested(yaml::kMaxDepth + 1, "- ") + "x"), "line 1: nested too deeply");
  EXPECT_TRUE(yaml::parse(nested(yaml::kMaxDepth, "[") + nested(yaml::kMaxDepth, "]")));
  EXPECT_EQ(read(nested(100'000, "[")), "line 1: nested too deeply");
  EXPECT_EQ(read(nested(100'000, "{a: ")), "line 1: nested too deeply");
  EXPECT_EQ(read(nested(100'000, "? ")), "line 1: a key is text, not a list or mapping");
  std::string many;
  for (int i = 0; i < 5000; ++i) {
    many += "k" + std::to_string(i) + ": 1\n";
  }
  EXPECT_EQ(read(many), "line 4097: more than 4096 keys in one mapping");
  EXPECT_TRUE(yaml::parse(std::string(yaml::kMaxBytes, 'a')));
  EXPECT_EQ(read(std::string(yaml::kMaxBytes + 1, 'a')), "more than 1048576 bytes");
}

}  // namespace
}  // namespace fairlead
