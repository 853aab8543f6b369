#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace fairlead::engine::vllm_http {

/// The elements of a JSON array, one at a time, each as its text.
class ArrayText {
 public:
  ArrayText() = default;
  /// `inside` is what stands between the brackets and has `count` elements.
  ArrayText(std::string_view inside, std::size_t count) : rest_(inside), count_(count) {}

  /// Number of elements at the beginning.
  std::size_t size() const { return count_; }
  /// The next element; at most `size` times.
  std::string_view next();

 private:
  std::string_view rest_;
  std::size_t count_ = 0;
};

/// A whole answer without its long arrays, which are decoded one element at a time: as documents
/// they would take several times the memory of their text.
struct SplitAnswer {
  std::string rest;                          ///< The answer with both arrays empty.
  std::optional<ArrayText> prompt_logprobs;  ///< `prompt_logprobs`.
  std::optional<ArrayText> token_logprobs;   ///< `logprobs.content` of the first choice.
};

/// Takes `text` apart, which outlives what is returned. Nothing when it is no JSON object; where
/// its parts are JSON is found when they are parsed.
std::optional<SplitAnswer> split_answer(std::string_view text);

}  // namespace fairlead::engine::vllm_http
