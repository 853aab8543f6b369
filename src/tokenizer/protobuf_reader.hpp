#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace fairlead::tokenizer {

/// The fields of one protobuf message, in order. Reads outside bytes: what is malformed ends the
/// message with `failed`.
class ProtobufReader {
 public:
  /// How a field is written.
  enum class Wire : std::uint8_t { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };

  /// One field; which of the values counts is told by `wire`.
  struct Field {
    std::uint64_t number = 0;  ///< As in the message's definition.
    Wire wire = Wire::Varint;  ///< How it is written.
    std::uint64_t value = 0;   ///< Of a varint or a fixed field.
    std::string_view bytes;    ///< Of a string, bytes or a message.
    /// A fixed field as a number.
    float number32() const { return std::bit_cast<float>(static_cast<std::uint32_t>(value)); }
  };

  /// The message must outlive the reader.
  explicit ProtobufReader(std::string_view message) : rest_(message) {}

  /// The next field; nothing at the end and when what follows is malformed. Groups, which proto3
  /// does not have, count as malformed.
  std::optional<Field> next() {
    if (rest_.empty() || failed_) {
      return std::nullopt;
    }
    Field field;
    const std::optional<std::uint64_t> tag = varint();
    if (!tag || *tag >> 3 == 0) {
      return fail();
    }
    field.number = *tag >> 3;
    field.wire = static_cast<Wire>(*tag & 7);
    std::optional<std::uint64_t> value;
    switch (field.wire) {
      case Wire::Varint: value = varint(); break;
      case Wire::Fixed64: value = fixed(8); break;
      case Wire::Fixed32: value = fixed(4); break;
      case Wire::Bytes:
        value = varint();
        if (!value || *value > rest_.size()) {
          return fail();
        }
        field.bytes = rest_.substr(0, static_cast<std::size_t>(*value));
        rest_.remove_prefix(field.bytes.size());
        break;
      default: break;
    }
    if (!value) {
      return fail();
    }
    field.value = *value;
    return field;
  }

  /// Whether the message turned out to be malformed.
  bool failed() const { return failed_; }

 private:
  std::nullopt_t fail() {
    failed_ = true;
    return std::nullopt;
  }
  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) {
        return value;
      }
    }
    return std::nullopt;
  }
  std::optional<std::uint64_t> fixed(std::size_t size) {
    if (rest_.size() < size) {
      return std::nullopt;
    }
    std::uint64_t value = 0;
    static_assert(std::endian::native == std::endian::little);
    std::memcpy(&value, rest_.data(), size);
    rest_.remove_prefix(size);
    return value;
  }

  std::string_view rest_;
  bool failed_ = false;
};

}  // namespace fairlead::tokenizer
