#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace fairlead::kv::testing {

/// MessagePack values for tests, each function one value. Lengths stay below 2^16.
inline std::string head(unsigned fixed, unsigned limit, unsigned code16, std::size_t count) {
  if (count < limit) {
    return {static_cast<char>(fixed + count)};
  }
  return {static_cast<char>(code16), static_cast<char>(count >> 8U), static_cast<char>(count)};
}

/// A nil.
inline std::string nil() { return "\xc0"; }

/// An unsigned integer in eight bytes.
inline std::string u64(std::uint64_t value) {
  std::string out = "\xcf";
  for (int shift = 56; shift >= 0; shift -= 8) {
    out.push_back(static_cast<char>(value >> static_cast<unsigned>(shift)));
  }
  return out;
}

/// A signed integer in eight bytes.
inline std::string i64(std::int64_t value) {
  std::string out = u64(static_cast<std::uint64_t>(value));
  out[0] = '\xd3';
  return out;
}

/// A string.
inline std::string str(std::string_view text) {
  return head(0xa0, 32, 0xda, text.size()) + std::string(text);
}

/// Bytes.
inline std::string bin(std::string_view bytes) {
  return std::string{'\xc5', static_cast<char>(bytes.size() >> 8U),
                     static_cast<char>(bytes.size())} +
         std::string(bytes);
}

/// A list of ready values.
template <class Values = std::initializer_list<std::string>>
std::string list(const Values& values) {
  std::string out = head(0x90, 16, 0xdc, values.size());
  for (const std::string& value : values) {
    out += value;
  }
  return out;
}

/// A list of ready values.
inline std::string list(std::initializer_list<std::string> values) {
  return list<std::initializer_list<std::string>>(values);
}

/// A list of numbers.
inline std::string numbers(std::initializer_list<std::uint64_t> values) {
  std::string out = head(0x90, 16, 0xdc, values.size());
  for (const std::uint64_t value : values) {
    out += u64(value);
  }
  return out;
}

/// The list of the numbers from `first` to `last`.
inline std::string range(std::uint64_t first, std::uint64_t last) {
  std::string out = head(0x90, 16, 0xdc, last + 1 - first);
  for (std::uint64_t value = first; value <= last; ++value) {
    out += u64(value);
  }
  return out;
}

/// A map whose keys are strings.
inline std::string map(std::initializer_list<std::pair<std::string_view, std::string>> members) {
  std::string out = head(0x80, 16, 0xde, members.size());
  for (const auto& [key, value] : members) {
    out += str(key) + value;
  }
  return out;
}

/// A batch of ready events.
inline std::string batch(std::initializer_list<std::string> events) {
  return list({u64(1), list(events), nil()});
}

}  // namespace fairlead::kv::testing
