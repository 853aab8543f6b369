#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "base/utf8.hpp"

namespace fairlead::tokenizer {

/// Gathers bytes into UTF-8 characters, one byte at a time.
class PartialCharacter {
 public:
  /// What a byte settles.
  struct Outcome {
    std::size_t broken_bytes = 0;  ///< Bytes, the new one last, now known to be in no character.
    std::size_t broken_parts = 0;  ///< The same as maximal ill-formed parts.
    std::string_view character;    ///< What the byte completes; valid until the next call.
  };

  /// Takes the next byte.
  Outcome push(char byte) {
    Outcome outcome;
    for (;;) {
      bytes_[size_] = byte;
      const std::string_view sequence(bytes_.data(), size_ + 1);
      if (utf8::sequence_length(sequence) != 0) {
        size_ = 0;
        outcome.character = sequence;
        return outcome;
      }
      if (utf8::is_incomplete(sequence)) {
        ++size_;
        return outcome;
      }
      ++outcome.broken_parts;
      if (size_ == 0) {
        ++outcome.broken_bytes;
        return outcome;
      }
      // The byte begins something else; what came before it is the ill-formed part.
      outcome.broken_bytes += size_;
      size_ = 0;
    }
  }

  /// Number of bytes of a character that is begun and not complete; at most 3.
  std::size_t size() const { return size_; }
  /// Forgets them.
  void clear() { size_ = 0; }

 private:
  std::array<char, 4> bytes_{};
  std::size_t size_ = 0;
};

}  // namespace fairlead::tokenizer
