#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "base/error.hpp"

// The regex library's own names.
struct re_pattern_buffer;  // NOLINT(readability-identifier-naming)
struct re_registers;       // NOLINT(readability-identifier-naming)

namespace fairlead::tokenizer {

/// A part of a text, in bytes.
struct Span {
  std::size_t begin = 0;  ///< First byte.
  std::size_t end = 0;    ///< One past the last.

  /// Member-wise.
  friend bool operator==(const Span&, const Span&) = default;
};

/// A compiled pattern in Oniguruma's Ruby syntax with the reference's Unicode classes. Immutable;
/// many threads may search with it at once, each through its own `Matches`.
class Regex {
 public:
  /// Compiles; the error tells what is wrong with the pattern.
  static Result<Regex> compile(std::string_view pattern);

  /// Successive non-overlapping matches in one text, as the reference's `find_iter`: an empty match
  /// right behind the previous match is skipped.
  class Matches {
   public:
    /// Both arguments must outlive the object.
    Matches(const Regex& regex, std::string_view text);

    /// Finds the next match. False when there is none; an error when the search was given up
    /// because it needs too many steps or too much memory.
    Result<bool> next(Span& match);

   private:
    struct FreeRegion {
      void operator()(re_registers* region) const;
    };

    const Regex& regex_;
    std::string_view text_;
    std::unique_ptr<re_registers, FreeRegion> region_;
    std::size_t position_ = 0;
    std::size_t last_end_ = static_cast<std::size_t>(-1);
  };

 private:
  struct FreePattern {
    void operator()(re_pattern_buffer* pattern) const;
  };

  explicit Regex(re_pattern_buffer* pattern) : pattern_(pattern) {}

  std::unique_ptr<re_pattern_buffer, FreePattern> pattern_;
};

}  // namespace fairlead::tokenizer
