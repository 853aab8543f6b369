#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace fairlead::engine::sglang_grpc {

/// Reads the lists of `meta_info` from the front, one value at a time and without a document: in
/// cumulative streams they are repeated with every token, and most of them is skipped. Takes what
/// SGLang sends where JSON has no word: bare `NaN` and infinities, and Python's text of a list,
/// with its quotes and `None`, also as a JSON string.
class LenientJson {
 public:
  /// `text` must outlive it.
  explicit LenientJson(std::string_view text);

  /// Takes `c` if it is the next character that is no space.
  bool take(char c);
  /// Takes a word of letters if it comes next.
  bool take(std::string_view word);
  /// A number that is finite. Nothing, and nothing is taken, when something else comes.
  std::optional<double> number();
  /// An integer, likewise.
  std::optional<std::int64_t> integer();
  /// Skips one value of any kind; false when there is none or it has no end.
  bool skip();
  /// True when only spaces are left.
  bool at_end();

 private:
  void skip_spaces();
  bool skip_string();

  std::string_view rest_;
};

/// Number of elements of the list that `text` is; nothing when it is no list, or has no end.
std::optional<std::size_t> list_size(std::string_view text);

/// `text` as a count; nothing when it is none.
std::optional<std::uint32_t> to_count(std::string_view text);

}  // namespace fairlead::engine::sglang_grpc
