#include "engine/sglang_grpc/answer.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

namespace fairlead::engine::sglang_grpc {
namespace {

std::unexpected<Error> protocol_error(std::string_view what) {
  return fail(ErrorCode::EngineProtocol, std::string("Generate: ").append(what));
}

/// One field of a protobuf message.
struct Field {
  std::uint32_t number = 0;
  std::uint64_t varint = 0;  ///< Of wire type 0.
  std::string_view bytes;    ///< Of wire type 2.
  enum class Type : std::uint8_t { Varint, Bytes, Other } type = Type::Other;
};

/// Takes fields off the front of a message.
class FieldReader {
 public:
  explicit FieldReader(std::string_view message) : rest_(message) {}

  bool at_end() const { return rest_.empty(); }

  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < rest_.size() && i < kLongestVarint; ++i) {
      const auto byte = static_cast<unsigned char>(rest_[i]);
      value |= std::uint64_t{byte & 0x7FU} << (7 * i);
      if (byte < 0x80) {
        rest_.remove_prefix(i + 1);
        return value;
      }
    }
    return std::nullopt;
  }

  /// Nothing when the message is malformed.
  std::optional<Field> next() {
    const std::optional<std::uint64_t> tag = varint();
    if (!tag || *tag >> 3 == 0 || *tag > std::numeric_limits<std::uint32_t>::max()) {
      return std::nullopt;
    }
    Field field;
    field.number = static_cast<std::uint32_t>(*tag >> 3);
    std::optional<std::uint64_t> size;
    switch (*tag & 7) {
      case 0:
        size = varint();
        field.type = Field::Type::Varint;
        field.varint = size.value_or(0);
        return size ? std::optional(field) : std::nullopt;
      case 1: size = 8; break;
      case 2:
        size = varint();
        field.type = Field::Type::Bytes;
        break;
      case 5: size = 4; break;
      default: return std::nullopt;  // groups, which this schema never had
    }
    if (!size || *size > rest_.size()) {
      return std::nullopt;
    }
    field.bytes = rest_.substr(0, static_cast<std::size_t>(*size));
    rest_.remove_prefix(field.bytes.size());
    return field;
  }

 private:
  static constexpr std::size_t kLongestVarint = 10;
  std::string_view rest_;
};

/// Of an int32, which protobuf cuts to 32 bits.
Result<> add_id(std::uint64_t varint, std::vector<TokenId>& ids) {
  const auto id = static_cast<std::int32_t>(static_cast<std::uint32_t>(varint));
  if (id < 0) {
    return protocol_error("a negative token id");
  }
  ids.push_back(static_cast<TokenId>(id));
  return {};
}

Result<> add_packed(std::string_view bytes, std::vector<TokenId>& ids) {
  FieldReader reader(bytes);
  while (!reader.at_end()) {
    const std::optional<std::uint64_t> value = reader.varint();
    if (!value) {
      return protocol_error("a message could not be decoded");
    }
    if (Result<> added = add_id(*value, ids); !added) {
      return added;
    }
  }
  return {};
}

/// A key that is used and where its value goes.
using Slot = std::pair<std::string_view, std::string_view Answer::*>;
constexpr std::array<Slot, 7> kSlots{{
    {"finish_reason", &Answer::finish_reason},
    {"completion_tokens", &Answer::output_tokens},
    {"cached_tokens", &Answer::cached_tokens},
    {"output_token_logprobs", &Answer::token_logprobs},
    {"output_top_logprobs", &Answer::top_logprobs},
    {"input_token_logprobs", &Answer::input_logprobs},
    {"input_top_logprobs", &Answer::input_top},
}};

/// A map's entry: `{key = 1; value = 2}`.
bool read_entry(std::string_view entry, Answer& out) {
  FieldReader reader(entry);
  std::string_view key;
  std::string_view value;
  while (!reader.at_end()) {
    const std::optional<Field> field = reader.next();
    if (!field) {
      return false;
    }
    if (field->type == Field::Type::Bytes && field->number == 1) {
      key = field->bytes;
    } else if (field->type == Field::Type::Bytes && field->number == 2) {
      value = field->bytes;
    }
  }
  const auto slot = std::ranges::find(kSlots, key, &Slot::first);
  if (slot != kSlots.end()) {
    out.*slot->second = value;
  }
  return true;
}

Result<> read_field(const Field& field, Answer& out) {
  switch (field.number) {
    case 1:
      if (field.type == Field::Type::Bytes) {
        return add_packed(field.bytes, out.ids);
      }
      return field.type == Field::Type::Varint ? add_id(field.varint, out.ids) : Result<>();
    case 2:
      if (field.type == Field::Type::Bytes && !read_entry(field.bytes, out)) {
        return protocol_error("meta_info could not be decoded");
      }
      return {};
    case 3:
      if (field.type == Field::Type::Varint) {
        out.finished = field.varint != 0;
      }
      return {};
    default: return {};
  }
}

}  // namespace

Result<> read_answer(std::string_view message, Answer& out) {
  std::vector<TokenId> ids = std::move(out.ids);
  ids.clear();
  out = {};
  out.ids = std::move(ids);
  FieldReader reader(message);
  while (!reader.at_end()) {
    const std::optional<Field> field = reader.next();
    if (!field) {
      return protocol_error("a message could not be decoded");
    }
    if (Result<> read = read_field(*field, out); !read) {
      return read;
    }
  }
  return {};
}

}  // namespace fairlead::engine::sglang_grpc
