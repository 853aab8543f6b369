#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fairlead::mock::msgpack {

/// Append-only writer of MessagePack in its shortest forms, as Python's `msgpack` packs. The caller
/// keeps announced sizes and written elements equal.
class Writer {
 public:
  /// Appends to `out`, which must outlive the writer.
  explicit Writer(std::string& out) : out_(out) {}

  /// Begins an array of `size` elements.
  Writer& array(std::uint32_t size);
  /// Begins a map of `size` key-value pairs.
  Writer& map(std::uint32_t size);
  /// A UTF-8 string.
  Writer& string(std::string_view text);
  /// A non-negative integer.
  Writer& integer(std::uint64_t value);
  /// Any integer.
  Writer& signed_integer(std::int64_t value);
  /// A 64-bit float.
  Writer& number(double value);
  /// nil.
  Writer& nil();

 private:
  Writer& sized(std::uint32_t size, std::uint32_t fix_limit, unsigned char fix, unsigned char wide);
  void big_endian(std::uint64_t value, int bytes);

  std::string& out_;
};

}  // namespace fairlead::mock::msgpack
