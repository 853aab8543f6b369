#include "kv/msgpack_reader.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <limits>

namespace fairlead::kv::msgpack {
namespace {

// First bytes, named as in the format's specification.
enum Code : unsigned char {
  kFixIntLast = 0x7f,
  kFixMap = 0x80,
  kFixMapLast = 0x8f,
  kFixArray = 0x90,
  kFixArrayLast = 0x9f,
  kFixStr = 0xa0,
  kFixStrLast = 0xbf,
  kNil = 0xc0,
  kUnused = 0xc1,
  kFalse = 0xc2,
  kTrue = 0xc3,
  kBin8 = 0xc4,
  kBin32 = 0xc6,
  kExt8 = 0xc7,
  kExt32 = 0xc9,
  kFloat32 = 0xca,
  kFloat64 = 0xcb,
  kUint8 = 0xcc,
  kUint16 = 0xcd,
  kUint32 = 0xce,
  kUint64 = 0xcf,
  kInt8 = 0xd0,
  kInt64 = 0xd3,
  kFixExt1 = 0xd4,
  kFixExt16 = 0xd8,
  kStr8 = 0xd9,
  kStr32 = 0xdb,
  kArray16 = 0xdc,
  kArray32 = 0xdd,
  kMap16 = 0xde,
  kMap32 = 0xdf,
  kNegativeFixInt = 0xe0,
};

/// The `width` bytes at `at` (1, 2, 4 or 8) as a big-endian number.
std::uint64_t big_endian(const unsigned char* at, unsigned width) {
  std::uint64_t value = 0;
  for (unsigned i = 0; i < width; ++i) {
    value = value << 8U | at[i];
  }
  return value;
}

constexpr Type type_of(unsigned char code) {
  if (code <= kFixIntLast || code >= kNegativeFixInt || (code >= kUint8 && code <= kInt64)) {
    return Type::Integer;
  }
  if (code <= kFixMapLast || code == kMap16 || code == kMap32) {
    return Type::Map;
  }
  if (code <= kFixArrayLast || code == kArray16 || code == kArray32) {
    return Type::Array;
  }
  if (code <= kFixStrLast || (code >= kStr8 && code <= kStr32)) {
    return Type::String;
  }
  if (code == kNil) {
    return Type::Nil;
  }
  if (code == kUnused) {
    return Type::None;
  }
  if (code <= kTrue) {
    return Type::Boolean;
  }
  if (code <= kBin32) {
    return Type::Binary;
  }
  return code == kFloat32 || code == kFloat64 ? Type::Float : Type::Extension;
}

constexpr std::array<Type, 256> kTypes = [] {
  std::array<Type, 256> types{};
  for (unsigned code = 0; code < types.size(); ++code) {
    types[code] = type_of(static_cast<unsigned char>(code));
  }
  return types;
}();

/// Eight bytes as a big-endian number.
std::uint64_t load_big_endian(const unsigned char* at) {
  std::uint64_t raw = 0;
  std::memcpy(&raw, at, sizeof(raw));
  return std::endian::native == std::endian::little ? __builtin_bswap64(raw) : raw;
}

/// Where a short non-negative integer lies in the eight bytes that begin with its code.
struct Form {
  std::uint8_t bytes = 0;  ///< With the code; 0 = not such an integer.
  std::uint8_t head_bits = 0;
  std::uint8_t tail_bits = 0;
};

constexpr std::array<Form, 256> kForms = [] {
  std::array<Form, 256> forms{};
  for (unsigned code = 0; code <= kFixIntLast; ++code) {
    forms[code] = {.bytes = 1, .head_bits = 0, .tail_bits = 56};
  }
  forms[kUint8] = {.bytes = 2, .head_bits = 8, .tail_bits = 56};
  forms[kUint16] = {.bytes = 3, .head_bits = 8, .tail_bits = 48};
  forms[kUint32] = {.bytes = 5, .head_bits = 8, .tail_bits = 32};
  return forms;
}();

}  // namespace

Type Reader::next() const { return at_ == end_ ? Type::None : kTypes[*at_]; }

bool Reader::nil() {
  if (at_ == end_ || *at_ != kNil) {
    return false;
  }
  ++at_;
  return true;
}

bool Reader::boolean(bool& out) {
  if (next() != Type::Boolean) {
    return false;
  }
  out = *at_++ == kTrue;
  return true;
}

bool Reader::integer(Integer& out) {
  if (next() != Type::Integer) {
    return false;
  }
  const unsigned char code = *at_;
  if (code <= kFixIntLast) {
    out = {.bits = code, .negative = false};
    ++at_;
    return true;
  }
  if (code >= kNegativeFixInt) {
    out = {.bits = ~std::uint64_t{0xff} | code, .negative = true};
    ++at_;
    return true;
  }
  const bool is_signed = code >= kInt8;
  const unsigned width = 1U << (code - (is_signed ? kInt8 : kUint8));
  if (left() <= width) {
    return false;
  }
  std::uint64_t bits = big_endian(at_ + 1, width);
  const std::uint64_t sign = std::uint64_t{1} << (8 * width - 1);
  const bool negative = is_signed && (bits & sign) != 0;
  if (negative) {
    bits = (bits ^ sign) - sign;
  }
  out = {.bits = bits, .negative = negative};
  at_ += 1 + width;
  return true;
}

bool Reader::u32(std::uint32_t& out) {
  Reader ahead = *this;
  Integer value;
  if (!ahead.integer(value) || value.negative ||
      value.bits > std::numeric_limits<std::uint32_t>::max()) {
    return false;
  }
  out = static_cast<std::uint32_t>(value.bits);
  *this = ahead;
  return true;
}

bool Reader::u32s(std::size_t count, std::uint32_t* out) {
  // The short forms without branches on which of them it is, since in a list of tokens that cannot
  // be predicted. Everything else, and the last few bytes, value by value.
  std::size_t i = 0;
  while (i < count) {
    const unsigned char* at = at_;
    while (i < count && end_ - at >= static_cast<std::ptrdiff_t>(sizeof(std::uint64_t))) {
      const Form form = kForms[*at];
      if (form.bytes == 0) {
        break;
      }
      out[i++] =
          static_cast<std::uint32_t>((load_big_endian(at) << form.head_bits) >> form.tail_bits);
      at += form.bytes;
    }
    at_ = at;
    if (i < count) {
      if (!u32(out[i])) {
        return false;
      }
      ++i;
    }
  }
  return true;
}

bool Reader::number(double& out) {
  Integer value;
  if (integer(value)) {
    out = value.negative ? static_cast<double>(static_cast<std::int64_t>(value.bits))
                         : static_cast<double>(value.bits);
    return true;
  }
  if (next() != Type::Float) {
    return false;
  }
  const unsigned width = *at_ == kFloat32 ? 4 : 8;
  if (left() <= width) {
    return false;
  }
  const std::uint64_t bits = big_endian(at_ + 1, width);
  out = width == 4 ? static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)))
                   : std::bit_cast<double>(bits);
  at_ += 1 + width;
  return true;
}

/// Bytes behind a head of `head_bytes` whose last `width` are their number.
bool Reader::blob(std::size_t head_bytes, unsigned width, std::string_view& out) {
  if (left() < head_bytes) {
    return false;
  }
  const std::uint64_t size = big_endian(at_ + head_bytes - width, width);
  if (left() - head_bytes < size) {
    return false;
  }
  out = {position() + head_bytes, static_cast<std::size_t>(size)};
  at_ += head_bytes + size;
  return true;
}

bool Reader::string(std::string_view& out) {
  if (next() != Type::String) {
    return false;
  }
  if (*at_ >= kStr8) {
    const unsigned width = 1U << (*at_ - kStr8);
    return blob(1 + width, width, out);
  }
  const std::size_t size = *at_ - kFixStr;
  if (left() <= size) {
    return false;
  }
  out = {position() + 1, size};
  at_ += 1 + size;
  return true;
}

bool Reader::binary(std::string_view& out) {
  if (next() != Type::Binary) {
    return false;
  }
  const unsigned width = 1U << (*at_ - kBin8);
  return blob(1 + width, width, out);
}

bool Reader::extension(std::int8_t& type, std::string_view& out) {
  if (next() != Type::Extension) {
    return false;
  }
  const bool fixed = *at_ >= kFixExt1 && *at_ <= kFixExt16;
  const unsigned width = fixed ? 0 : 1U << (*at_ - kExt8);
  const std::size_t head_bytes = 2 + width;
  if (left() < head_bytes) {
    return false;
  }
  const std::uint64_t size =
      fixed ? std::uint64_t{1} << (*at_ - kFixExt1) : big_endian(at_ + 1, width);
  if (left() - head_bytes < size) {
    return false;
  }
  type = static_cast<std::int8_t>(at_[1 + width]);
  out = {position() + head_bytes, static_cast<std::size_t>(size)};
  at_ += head_bytes + size;
  return true;
}

/// The head of an array or map; `code16` is its 16-bit form, the 32-bit form follows it.
bool Reader::head(unsigned char fixed_first, unsigned char fixed_last, unsigned char code16,
                  std::size_t bytes_per_item, std::uint32_t& count) {
  if (at_ == end_) {
    return false;
  }
  const unsigned char code = *at_;
  std::size_t size = 1;
  std::uint64_t items = 0;
  if (code >= fixed_first && code <= fixed_last) {
    items = static_cast<std::uint64_t>(code) - fixed_first;
  } else if (code == code16 || code == code16 + 1) {
    const unsigned width = code == code16 ? 2 : 4;
    size += width;
    if (left() < size) {
      return false;
    }
    items = big_endian(at_ + 1, width);
  } else {
    return false;
  }
  if ((left() - size) / bytes_per_item < items) {
    return false;
  }
  count = static_cast<std::uint32_t>(items);
  at_ += size;
  return true;
}

bool Reader::array(std::uint32_t& count) {
  return head(kFixArray, kFixArrayLast, kArray16, 1, count);
}

bool Reader::map(std::uint32_t& pairs) { return head(kFixMap, kFixMapLast, kMap16, 2, pairs); }

bool Reader::skip() {
  Reader ahead = *this;
  // Values still to be passed over: those inside an array or map join those behind it.
  std::uint64_t open = 1;
  while (open > 0) {
    --open;
    double number = 0;
    bool flag = false;
    std::int8_t type = 0;
    std::uint32_t count = 0;
    std::string_view bytes;
    bool read = false;
    switch (ahead.next()) {
      case Type::Nil: read = ahead.nil(); break;
      case Type::Boolean: read = ahead.boolean(flag); break;
      case Type::Integer:
      case Type::Float: read = ahead.number(number); break;
      case Type::String: read = ahead.string(bytes); break;
      case Type::Binary: read = ahead.binary(bytes); break;
      case Type::Extension: read = ahead.extension(type, bytes); break;
      case Type::Array:
        read = ahead.array(count);
        open += count;
        break;
      case Type::Map:
        read = ahead.map(count);
        open += std::uint64_t{2} * count;
        break;
      case Type::None: break;
    }
    if (!read || open > ahead.left()) {
      return false;
    }
  }
  *this = ahead;
  return true;
}

}  // namespace fairlead::kv::msgpack
