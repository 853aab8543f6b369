#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"
#include "tokenizer/literal.hpp"
#include "tokenizer/regex.hpp"

namespace fairlead::tokenizer {

/// The steps that the reference's decoders are made of. Each turns a list of tokens into another;
/// the text is the last list joined.
namespace decoder_step {

/// In each token, the literal becomes `content`.
struct Replace {
  Literal literal;      ///< What to find.
  std::string content;  ///< What it becomes.
};

/// The empty literal: `content` stands before, between and behind the characters of each token.
struct Intersperse {
  std::string content;   ///< What is put there.
  bool in_empty_tokens;  ///< Whether a token without characters becomes `content`.
};

/// In each token, what the regex matches becomes `content`, literally.
struct RegexReplace {
  Regex regex;          ///< What to find.
  std::string content;  ///< What it becomes.
};

/// Runs of tokens `<0xNN>` become text.
struct ByteFallback {};

/// All tokens become one, from byte-level spellings.
struct ByteLevel {};

/// All tokens become one.
struct Fuse {};

/// Up to `start` copies of a character leave each token's start, then up to `stop` its end.
struct Strip {
  std::string content;  ///< One character.
  std::size_t start;    ///< Most copies taken from the left.
  std::size_t stop;     ///< Most copies taken from what is left, from the right.
};

/// A space goes before every token but the first, except that a token with the prefix loses it
/// instead. Without a prefix every token but the first gets its space.
struct Join {
  std::optional<std::string> prefix;  ///< May be empty.
};

/// English clean-up of each token: no space before punctuation and contractions.
struct Cleanup {};

/// A character becomes a space, or nothing in the first token.
struct Metaspace {
  Literal replacement;  ///< One character.
  bool drop_in_first;   ///< Whether the first token loses it.
};

/// A token equal to the one before it goes.
struct DropRepeated {};

/// Empty tokens go.
struct DropEmpty {};

/// In each token the suffix becomes a space, in the last one nothing.
struct WordEnd {
  std::optional<Literal> suffix;  ///< None: empty, which stands around each character.
};

}  // namespace decoder_step

/// One step. Immutable after reading.
using DecoderStep =
    std::variant<decoder_step::Replace, decoder_step::Intersperse, decoder_step::RegexReplace,
                 decoder_step::ByteFallback, decoder_step::ByteLevel, decoder_step::Fuse,
                 decoder_step::Strip, decoder_step::Join, decoder_step::Cleanup,
                 decoder_step::Metaspace, decoder_step::DropRepeated, decoder_step::DropEmpty,
                 decoder_step::WordEnd>;

/// What becomes of a run of byte tokens that is not all well-formed.
enum class ByteRuns : std::uint8_t {
  Whole,        ///< As the reference: U+FFFD for each of its bytes, also those of characters.
  ByCharacter,  ///< Characters stay, U+FFFD for each other byte: what a stream can know in time.
};

/// Interprets the `decoder` member of a tokenizer.json; null joins tokens with one space.
Result<std::vector<DecoderStep>> read_decoder(const json::Value& config);

/// Applies one step to a whole list of tokens, which are well-formed UTF-8.
void apply(const DecoderStep& step, std::vector<std::string>& tokens, ByteRuns byte_runs);

/// The byte that a token `<0xNN>` stands for.
std::optional<char> byte_token(std::string_view token);

/// The replacements of `Cleanup`, in order.
const std::vector<decoder_step::Replace>& cleanup_replacements();
/// Applies them to one token.
void clean_up(std::string& token);
/// False when `clean_up` certainly changes nothing.
bool may_need_cleanup(std::string_view token);

/// Puts `content` before, between and behind the characters of `text`.
std::string intersperse(std::string_view text, std::string_view content);
/// Applies a regex replacement to one token. A regex that gives up leaves the rest as it is.
void replace_matches(const decoder_step::RegexReplace& step, std::string& token);

}  // namespace fairlead::tokenizer
