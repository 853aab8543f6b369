#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fairlead::kv::msgpack {

/// Kind of a value.
enum class Type : std::uint8_t {
  Nil,        ///< No value.
  Boolean,    ///< True or false.
  Integer,    ///< Of any width and sign.
  Float,      ///< 32 or 64 bits.
  String,     ///< Text; its encoding is not checked.
  Binary,     ///< Bytes.
  Array,      ///< A count, then that many values.
  Map,        ///< A count, then that many pairs of values.
  Extension,  ///< A type number and bytes.
  None,       ///< The end of the bytes, or a byte that starts no value.
};

/// An integer between -2^63 and 2^64 - 1.
struct Integer {
  std::uint64_t bits = 0;  ///< The value modulo 2^64.
  bool negative = false;   ///< `bits` is then a negative number in two's complement.
};

/// Reads MessagePack values one after the other out of bytes that it neither owns nor copies. A
/// read that returns false leaves the reader where it was. Counts of arrays and maps are refused
/// when the bytes left cannot hold so many values, so a count read is safe to reserve for. Nothing
/// recurses: however deep values nest, neither stack nor memory grows.
class Reader {
 public:
  /// Starts at the first of `bytes`.
  explicit Reader(std::string_view bytes)
      : at_(reinterpret_cast<const unsigned char*>(bytes.data())), end_(at_ + bytes.size()) {}

  /// True when all bytes are consumed.
  bool at_end() const { return at_ == end_; }
  /// Bytes not yet consumed.
  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }
  /// Address of the next byte.
  const char* position() const { return reinterpret_cast<const char*>(at_); }

  /// Kind of the next value. A value of that kind may still be cut off.
  Type next() const;
  /// Consumes a nil.
  bool nil();
  /// Reads a boolean. Likewise below: false when the next value is something else or cut off.
  bool boolean(bool& out);
  /// Reads an integer of any form.
  bool integer(Integer& out);
  /// Reads an integer of any form from 0 to 2^32 - 1.
  bool u32(std::uint32_t& out);
  /// Reads an integer or a float.
  bool number(double& out);
  /// Reads a string.
  bool string(std::string_view& out);
  /// Reads bytes.
  bool binary(std::string_view& out);
  /// Reads an extension.
  bool extension(std::int8_t& type, std::string_view& out);
  /// Reads the head of an array: `count` values follow.
  bool array(std::uint32_t& count);
  /// Reads the head of a map: `pairs` keys follow, each with its value.
  bool map(std::uint32_t& pairs);
  /// Reads `count` integers from 0 to 2^32 - 1 into `out`. False leaves the reader at the first
  /// that is something else.
  bool u32s(std::size_t count, std::uint32_t* out);
  /// Consumes one value with everything inside it.
  bool skip();

 private:
  bool head(unsigned char fixed_first, unsigned char fixed_last, unsigned char code16,
            std::size_t bytes_per_item, std::uint32_t& count);
  bool blob(std::size_t head_bytes, unsigned width, std::string_view& out);

  const unsigned char* at_;
  const unsigned char* end_;
};

}  // namespace fairlead::kv::msgpack
