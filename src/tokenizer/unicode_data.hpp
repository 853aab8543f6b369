#pragma once

#include <cstddef>
#include <cstdint>

/// Tables written by tools/unicode/generate.py. Arrays of packed words hold the first code point of
/// each run and the run's value; a run ends where the next begins, the last one at U+10FFFF.
namespace fairlead::tokenizer::data {

/// Inclusive range of code points.
struct Range {
  std::uint32_t first;  ///< First code point.
  std::uint32_t last;   ///< Last code point.
};

/// A name of a script, lower case without separators.
struct ScriptName {
  const char* name;     ///< The alias.
  std::uint32_t index;  ///< Value in `kScripts`.
};

/// Full canonical decomposition of one code point.
struct Decomposition {
  std::uint32_t code_point;  ///< What decomposes.
  std::uint16_t offset;      ///< First element in `kDecompositionText`.
  std::uint16_t length;      ///< Number of elements.
};

/// A primary composite.
struct Composition {
  std::uint32_t first;      ///< Starter.
  std::uint32_t second;     ///< What follows it.
  std::uint32_t composite;  ///< The composed code point.
};

/// Lower case of one code point.
struct CaseMapping {
  std::uint32_t code_point;  ///< What has a lower case.
  std::uint32_t first;       ///< Its lower case.
  std::uint32_t second;      ///< A second code point of it, or 0.
};

/// General category as code point << 5 | index of its two-letter name in `kCategoryNames`.
extern const std::uint32_t kCategories[];
/// Number of elements; likewise below.
extern const std::size_t kCategoriesSize;

/// `\w` of the reference's regex.
extern const Range kWord[];
/// Size of `kWord`.
extern const std::size_t kWordSize;
/// `\s` of the reference's regex.
extern const Range kSpace[];
/// Size of `kSpace`.
extern const std::size_t kSpaceSize;
/// `\p{Alphabetic}` of the reference's regex.
extern const Range kAlphabetic[];
/// Size of `kAlphabetic`.
extern const std::size_t kAlphabeticSize;
/// `\p{Uppercase}` of the reference's regex.
extern const Range kUppercase[];
/// Size of `kUppercase`.
extern const std::size_t kUppercaseSize;
/// `\p{Lowercase}` of the reference's regex.
extern const Range kLowercase[];
/// Size of `kLowercase`.
extern const std::size_t kLowercaseSize;
/// `\p{Punct}` of the reference's regex (wider than category P).
extern const Range kPunct[];
/// Size of `kPunct`.
extern const std::size_t kPunctSize;
/// `\p{Emoji}` of the reference's regex.
extern const Range kEmoji[];
/// Size of `kEmoji`.
extern const std::size_t kEmojiSize;
/// Word characters beside a `single_word` added token.
extern const Range kAddedTokenWord[];
/// Size of `kAddedTokenWord`.
extern const std::size_t kAddedTokenWordSize;

/// Script as code point << 8 | index; 255 is none.
extern const std::uint32_t kScripts[];
/// Size of `kScripts`.
extern const std::size_t kScriptsSize;
/// Script names sorted by name.
extern const ScriptName kScriptNames[];
/// Size of `kScriptNames`.
extern const std::size_t kScriptNamesSize;

/// Canonical combining class as code point << 8 | class.
extern const std::uint32_t kCombiningClasses[];
/// Size of `kCombiningClasses`.
extern const std::size_t kCombiningClassesSize;
/// Decompositions sorted by code point, without Hangul syllables.
extern const Decomposition kDecompositions[];
/// Size of `kDecompositions`.
extern const std::size_t kDecompositionsSize;
/// Text of the decompositions.
extern const std::uint32_t kDecompositionText[];
/// Size of `kDecompositionText`.
extern const std::size_t kDecompositionTextSize;
/// Compositions sorted by first, then second, without Hangul.
extern const Composition kCompositions[];
/// Size of `kCompositions`.
extern const std::size_t kCompositionsSize;
/// 1 for code points that NFC may change or reorder, as code point << 8 | flag.
extern const std::uint32_t kNfcAttention[];
/// Size of `kNfcAttention`.
extern const std::size_t kNfcAttentionSize;

/// Lower case as the `Lowercase` normalizer writes it, sorted by code point.
extern const CaseMapping kLowerMappings[];
/// Size of `kLowerMappings`.
extern const std::size_t kLowerMappingsSize;
/// Compatibility decompositions where they differ from the canonical ones, sorted by code point.
extern const Decomposition kCompatibilityDecompositions[];
/// Size of `kCompatibilityDecompositions`.
extern const std::size_t kCompatibilityDecompositionsSize;
/// Text of the compatibility decompositions.
extern const std::uint32_t kCompatibilityDecompositionText[];
/// Size of `kCompatibilityDecompositionText`.
extern const std::size_t kCompatibilityDecompositionTextSize;
/// What the `StripAccents` normalizer removes.
extern const Range kAccents[];
/// Size of `kAccents`.
extern const std::size_t kAccentsSize;
/// What `clean_text` of `BertNormalizer` removes.
extern const Range kBertControl[];
/// Size of `kBertControl`.
extern const std::size_t kBertControlSize;
/// What `strip_accents` of `BertNormalizer` removes from decomposed text.
extern const Range kBertAccents[];
/// Size of `kBertAccents`.
extern const std::size_t kBertAccentsSize;
/// What the `Punctuation` and `BertPreTokenizer` pre-tokenizers split on.
extern const Range kPunctuation[];
/// Size of `kPunctuation`.
extern const std::size_t kPunctuationSize;
/// What the `Digits` pre-tokenizer takes for digits.
extern const Range kNumeric[];
/// Size of `kNumeric`.
extern const std::size_t kNumericSize;
/// Script as the `UnicodeScripts` pre-tokenizer sees it, as code point << 8 | number; 255 joins
/// any.
extern const std::uint32_t kPreTokenizerScripts[];
/// Size of `kPreTokenizerScripts`.
extern const std::size_t kPreTokenizerScriptsSize;
/// Class for grapheme clusters as code point << 8 | conjunct << 4 | break (`grapheme.cpp`).
extern const std::uint32_t kGraphemeBreaks[];
/// Size of `kGraphemeBreaks`.
extern const std::size_t kGraphemeBreaksSize;

}  // namespace fairlead::tokenizer::data
