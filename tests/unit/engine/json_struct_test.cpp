#include "engine/vllm_grpc/json_struct.hpp"

#include <google/protobuf/struct.pb.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace fairlead::engine::vllm_grpc {
namespace {

std::string round_trip(std::string_view text) {
  google::protobuf::Struct message;
  const Result<> filled = to_struct(*json::parse(text), "params", message);
  return filled ? json::dump(from_struct(message)) : filled.error().message;
}

TEST(JsonStruct, EveryKindSurvivesBothWays) {
  EXPECT_EQ(round_trip(R"({"b":true,"a":null,"s":"tëxt","l":[1,"x",[],{}],"o":{"z":false}})"),
            R"({"a":null,"b":true,"l":[1,"x",[],{}],"o":{"z":false},"s":"tëxt"})");
  EXPECT_EQ(round_trip("{}"), "{}");
}

TEST(JsonStruct, WholeDoublesBecomeIntegersAgain) {
  EXPECT_EQ(round_trip(R"({"a":5600,"b":-3,"c":1.0,"d":1.5,"e":0})"),
            R"({"a":5600,"b":-3,"c":1,"d":1.5,"e":0})");
  EXPECT_EQ(round_trip(R"({"max":9007199254740991,"min":-9007199254740991})"),
            R"({"max":9007199254740991,"min":-9007199254740991})");
}

TEST(JsonStruct, NumbersBeyondExactIntegersStayDoubles) {
  google::protobuf::Struct message;
  (*message.mutable_fields())["n"].set_number_value(9007199254740992.0);
  const json::Value value = from_struct(message);
  ASSERT_NE(value.find("n"), nullptr);
  EXPECT_EQ(value.find("n")->as_int(), nullptr);
  EXPECT_EQ(*value.find("n")->as_double(), 9007199254740992.0);
  EXPECT_EQ(round_trip(R"({"big":123456789012345678901234567890})"),
            R"({"big":1.2345678901234568e+29})");
}

TEST(JsonStruct, ValuesWithoutAKindAndOddNumbersAreHarmless) {
  google::protobuf::Struct message;
  (*message.mutable_fields())["unset"];
  (*message.mutable_fields())["nan"].set_number_value(std::numeric_limits<double>::quiet_NaN());
  (*message.mutable_fields())["inf"].set_number_value(std::numeric_limits<double>::infinity());
  EXPECT_EQ(json::dump(from_struct(message)), R"({"inf":null,"nan":null,"unset":null})");
}

TEST(JsonStruct, OnlyObjectsAreTaken) {
  google::protobuf::Struct message;
  for (const char* text : {"null", "[]", "1", "\"x\"", "true"}) {
    const Result<> filled = to_struct(*json::parse(text), "kv_transfer_params", message);
    ASSERT_FALSE(filled) << text;
    EXPECT_EQ(filled.error().code, ErrorCode::InvalidRequest);
    EXPECT_EQ(filled.error().param, "kv_transfer_params");
  }
}

TEST(JsonStruct, NestingEndsWhereReadersWouldFail) {
  const auto nested = [](int levels) {
    std::string text;
    for (int i = 0; i < levels; ++i) {
      text += R"({"a":)";
    }
    return text + "1" + std::string(static_cast<std::size_t>(levels), '}');
  };
  google::protobuf::Struct message;
  ASSERT_TRUE(to_struct(*json::parse(nested(kMaxStructDepth)), "p", message));
  google::protobuf::Struct again;
  EXPECT_TRUE(again.ParseFromString(message.SerializeAsString()));
  google::protobuf::Struct deeper;
  EXPECT_FALSE(to_struct(*json::parse(nested(kMaxStructDepth + 1)), "p", deeper));
  std::string lists(100, '[');
  lists += std::string(100, ']');
  EXPECT_FALSE(to_struct(*json::parse(R"({"a":)" + lists + "}"), "p", deeper));
}

TEST(JsonStruct, WholePortsBecomeText) {
  const auto fixed = [](std::string_view text) {
    google::protobuf::Struct message;
    EXPECT_TRUE(to_struct(*json::parse(text), "p", message));
    fix_remote_port(message);
    return json::dump(from_struct(message));
  };
  EXPECT_EQ(fixed(R"({"remote_port":5600})"), R"({"remote_port":"5600"})");
  EXPECT_EQ(fixed(R"({"remote_port":5600.0})"), R"({"remote_port":"5600"})");
  EXPECT_EQ(fixed(R"({"remote_port":0})"), R"({"remote_port":"0"})");
  EXPECT_EQ(fixed(R"({"remote_port":-1})"), R"({"remote_port":-1})");
  EXPECT_EQ(fixed(R"({"remote_port":5600.5})"), R"({"remote_port":5600.5})");
  EXPECT_EQ(fixed(R"({"remote_port":"5600"})"), R"({"remote_port":"5600"})");
  EXPECT_EQ(fixed(R"({"remote_port":null})"), R"({"remote_port":null})");
  EXPECT_EQ(fixed(R"({"other":5600})"), R"({"other":5600})");
}

}  // namespace
}  // namespace fairlead::engine::vllm_grpc
