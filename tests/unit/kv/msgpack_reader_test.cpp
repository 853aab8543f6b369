#include "kv/msgpack_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <string>

#include "kv/fixtures.hpp"

namespace fairlead::kv::msgpack {
namespace {

using ::testing::ElementsAre;
using testing::fixture_lines;
using testing::from_hex;
using testing::to_hex;

std::string number_bits(double value) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(std::bit_cast<std::uint64_t>(value) >> unsigned(shift)));
  }
  return to_hex(bytes);
}

/// The next value in the notation of tests/fixtures/msgpack/make_values.py, `?` if it is cut off.
// NOLINTNEXTLINE(misc-no-recursion): the documents of the test are shallow
std::string read(Reader& reader) {
  bool flag = false;
  double number = 0;
  Integer integer;
  std::string_view bytes;
  std::int8_t type = 0;
  std::uint32_t count = 0;
  switch (reader.next()) {
    case Type::Nil: return reader.nil() ? "nil" : "?";
    case Type::Boolean: return !reader.boolean(flag) ? "?" : flag ? "true" : "false";
    case Type::Integer:
      if (!reader.integer(integer)) {
        return "?";
      }
      return "i" + (integer.negative ? std::to_string(static_cast<std::int64_t>(integer.bits))
                                     : std::to_string(integer.bits));
    case Type::Float: return reader.number(number) ? "f" + number_bits(number) : "?";
    case Type::String: return reader.string(bytes) ? "s" + to_hex(bytes) : "?";
    case Type::Binary: return reader.binary(bytes) ? "b" + to_hex(bytes) : "?";
    case Type::Extension:
      return reader.extension(type, bytes) ? "x" + std::to_string(type) + ":" + to_hex(bytes) : "?";
    case Type::Array: {
      if (!reader.array(count)) {
        return "?";
      }
      std::string out = "[";
      for (std::uint32_t i = 0; i < count; ++i) {
        out += (i ? "," : "") + read(reader);
      }
      return out + "]";
    }
    case Type::Map: {
      if (!reader.map(count)) {
        return "?";
      }
      std::string out = "{";
      for (std::uint32_t i = 0; i < count; ++i) {
        out += (i ? "," : "") + read(reader) + "=";
        out += read(reader);
      }
      return out + "}";
    }
    case Type::None: break;
  }
  return "?";
}

TEST(MsgpackReader, ReadsWhatPythonReads) {
  std::size_t values = 0;
  for (const std::string& line : fixture_lines("msgpack/values.txt")) {
    const std::size_t space = line.find(' ');
    const std::string bytes = from_hex(line.substr(0, space));
    Reader reader(bytes);
    EXPECT_EQ(read(reader), line.substr(space + 1)) << line;
    EXPECT_TRUE(reader.at_end()) << line;
    Reader skipped(bytes);
    EXPECT_TRUE(skipped.skip()) << line;
    EXPECT_TRUE(skipped.at_end()) << line;
    ++values;
  }
  EXPECT_GT(values, 400U);
}

TEST(MsgpackReader, RefusesEveryCutOffValue) {
  for (const std::string& line : fixture_lines("msgpack/values.txt")) {
    const std::string bytes = from_hex(line.substr(0, line.find(' ')));
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const std::string cut = bytes.substr(0, size);
      Reader reader(cut);
      EXPECT_FALSE(reader.skip()) << line << " at " << size;
      EXPECT_EQ(reader.left(), size);
      Reader typed(cut);
      EXPECT_THAT(read(typed), ::testing::HasSubstr("?")) << line << " at " << size;
    }
  }
}

TEST(MsgpackReader, LeavesAValueOfAnotherKindInPlace) {
  const std::string bytes = from_hex("c3");
  Reader reader(bytes);
  Integer integer;
  std::uint32_t small = 0;
  double number = 0;
  std::string_view text;
  std::int8_t type = 0;
  EXPECT_FALSE(reader.nil());
  EXPECT_FALSE(reader.integer(integer));
  EXPECT_FALSE(reader.u32(small));
  EXPECT_FALSE(reader.number(number));
  EXPECT_FALSE(reader.string(text));
  EXPECT_FALSE(reader.binary(text));
  EXPECT_FALSE(reader.extension(type, text));
  EXPECT_FALSE(reader.array(small));
  EXPECT_FALSE(reader.map(small));
  EXPECT_EQ(reader.left(), 1U);
  bool flag = false;
  EXPECT_TRUE(reader.boolean(flag));
  EXPECT_TRUE(flag);
  EXPECT_FALSE(reader.boolean(flag));
}

TEST(MsgpackReader, TheUnusedCodeIsNoValue) {
  Reader reader("\xc1");
  EXPECT_EQ(reader.next(), Type::None);
  EXPECT_FALSE(reader.skip());
}

TEST(MsgpackReader, RefusesCountsThatTheBytesCannotHold) {
  std::uint32_t count = 0;
  for (const char* hex : {"dd00000002c0", "92c0", "df00000001c0", "81c0", "ddffffffff"}) {
    const std::string bytes = from_hex(hex);
    Reader reader(bytes);
    EXPECT_FALSE(reader.array(count) || reader.map(count)) << hex;
    EXPECT_FALSE(reader.skip()) << hex;
  }
  // Counts that fit one by one but not together.
  const std::string nested = from_hex("9393939393c0c0c0c0c0");
  Reader reader(nested);
  EXPECT_FALSE(reader.skip());
}

TEST(MsgpackReader, DepthCostsNothing) {
  const std::string deep = std::string(4'000'000, '\x91') + '\x01';
  Reader reader(deep);
  EXPECT_TRUE(reader.skip());
  EXPECT_TRUE(reader.at_end());
}

TEST(MsgpackReader, ReadsTokensOfEveryForm) {
  const std::string bytes = from_hex(
      "05"
      "7f"
      "cc80"
      "cd0100"
      "ce00010000"
      "ceffffffff"
      "cf00000000ffffffff"
      "d003"
      "d3000000000000ffff"
      "ce00000001");
  std::vector<std::uint32_t> out(10);
  Reader reader(bytes);
  ASSERT_TRUE(reader.u32s(out.size(), out.data()));
  EXPECT_TRUE(reader.at_end());
  EXPECT_THAT(out, ElementsAre(5, 127, 128, 256, 65536, 4294967295U, 4294967295U, 3, 65535, 1));
}

TEST(MsgpackReader, StopsAtWhatIsNoToken) {
  // Above 32 bits, negative, a float, a string, cut off.
  for (const char* hex : {"cf0000000100000000", "ff", "d0ff", "ca00000000", "a131", "cd01", "ce01",
                          "cc", "d1ff", "c0"}) {
    const std::string bytes = from_hex(std::string("07") + hex);
    std::vector<std::uint32_t> out(2);
    Reader reader(bytes);
    EXPECT_FALSE(reader.u32s(2, out.data())) << hex;
    EXPECT_EQ(reader.left(), bytes.size() - 1) << hex;
    std::uint32_t one = 0;
    EXPECT_FALSE(reader.u32(one)) << hex;
  }
}

}  // namespace
}  // namespace fairlead::kv::msgpack
