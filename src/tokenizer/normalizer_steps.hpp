#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "tokenizer/charsmap.hpp"
#include "tokenizer/normalization.hpp"
#include "tokenizer/regex.hpp"

namespace fairlead::tokenizer {

/// A text on its way through a normalizer.
struct NormalizedText {
  std::string text;             ///< Well-formed UTF-8.
  std::size_t start_bytes = 0;  ///< Bytes at the front that stand for the input's first character.
  std::string spare;            ///< Room for a step to write into.
};

/// One step of a normalizer. Immutable.
class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  /// Changes the text. Fails once `stop` is requested.
  virtual Result<> apply(NormalizedText& text, const std::stop_token& stop) const = 0;
  /// So many characters may become one; 0 when some may become nothing.
  virtual std::size_t shrinks() const { return 0; }
};

/// A step, owned.
using NormalizerStepPtr = std::shared_ptr<const NormalizerStep>;

/// A Unicode normalization form.
NormalizerStepPtr normalization_step(NormalizationForm form);
/// `Lowercase`: full lower case, one character at a time.
NormalizerStepPtr lowercase_step();
/// `StripAccents`: removes combining marks.
NormalizerStepPtr strip_accents_step();
/// `Strip`: removes white space at the ends.
NormalizerStepPtr strip_step(bool left, bool right);
/// `Prepend`: puts text before any text that is not empty.
NormalizerStepPtr prepend_step(std::string_view prefix);
/// `Nmt`: removes and replaces controls.
NormalizerStepPtr nmt_step();
/// `ByteLevel`: writes every byte as its printable character.
NormalizerStepPtr byte_level_step();
/// `clean_text` of `BertNormalizer`.
NormalizerStepPtr bert_clean_step();
/// `handle_chinese_chars` of `BertNormalizer`.
NormalizerStepPtr bert_chinese_step();
/// `strip_accents` of `BertNormalizer`, behind form D.
NormalizerStepPtr bert_accents_step();
/// `Replace` of a literal, which must not be empty.
NormalizerStepPtr replace_step(std::string_view literal, std::string_view content);
/// `Replace` of a regex.
NormalizerStepPtr replace_step(Regex regex, std::string_view content);
/// `Precompiled`.
NormalizerStepPtr charsmap_step(Charsmap map);

}  // namespace fairlead::tokenizer
