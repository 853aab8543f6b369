#include "mock/msgpack.hpp"

#include <bit>

namespace fairlead::mock::msgpack {

void Writer::big_endian(std::uint64_t value, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) {
    out_.push_back(static_cast<char>(value >> shift));
  }
}

// `wide` is the form with a 16-bit size; the 32-bit one follows it.
Writer& Writer::sized(std::uint32_t size, std::uint32_t fix_limit, unsigned char fix,
                      unsigned char wide) {
  if (size < fix_limit) {
    out_.push_back(static_cast<char>(fix | size));
  } else if (size <= 0xFFFF) {
    out_.push_back(static_cast<char>(wide));
    big_endian(size, 2);
  } else {
    out_.push_back(static_cast<char>(wide + 1));
    big_endian(size, 4);
  }
  return *this;
}

Writer& Writer::array(std::uint32_t size) { return sized(size, 16, 0x90, 0xDC); }

Writer& Writer::map(std::uint32_t size) { return sized(size, 16, 0x80, 0xDE); }

Writer& Writer::string(std::string_view text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  if (size >= 32 && size <= 0xFF) {
    out_.push_back(static_cast<char>(0xD9));
    big_endian(size, 1);
  } else {
    sized(size, 32, 0xA0, 0xDA);
  }
  out_ += text;
  return *this;
}

Writer& Writer::integer(std::uint64_t value) {
  if (value < 0x80) {
    out_.push_back(static_cast<char>(value));
  } else if (value <= 0xFF) {
    out_.push_back(static_cast<char>(0xCC));
    big_endian(value, 1);
  } else if (value <= 0xFFFF) {
    out_.push_back(static_cast<char>(0xCD));
    big_endian(value, 2);
  } else if (value <= 0xFFFFFFFF) {
    out_.push_back(static_cast<char>(0xCE));
    big_endian(value, 4);
  } else {
    out_.push_back(static_cast<char>(0xCF));
    big_endian(value, 8);
  }
  return *this;
}

Writer& Writer::signed_integer(std::int64_t value) {
  if (value >= 0) {
    return integer(static_cast<std::uint64_t>(value));
  }
  const auto bits = static_cast<std::uint64_t>(value);
  if (value >= -32) {
    out_.push_back(static_cast<char>(bits));
  } else if (value >= INT8_MIN) {
    out_.push_back(static_cast<char>(0xd0));
    big_endian(bits, 1);
  } else if (value >= INT16_MIN) {
    out_.push_back(static_cast<char>(0xd1));
    big_endian(bits, 2);
  } else if (value >= INT32_MIN) {
    out_.push_back(static_cast<char>(0xd2));
    big_endian(bits, 4);
  } else {
    out_.push_back(static_cast<char>(0xd3));
    big_endian(bits, 8);
  }
  return *this;
}

Writer& Writer::number(double value) {
  out_.push_back(static_cast<char>(0xCB));
  big_endian(std::bit_cast<std::uint64_t>(value), 8);
  return *this;
}

Writer& Writer::nil() {
  out_.push_back(static_cast<char>(0xC0));
  return *this;
}

}  // namespace fairlead::mock::msgpack
