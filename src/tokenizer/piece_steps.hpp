#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "tokenizer/split.hpp"

namespace fairlead::tokenizer {

/// A piece of text on its way through a pre-tokenizer.
struct Piece {
  std::string_view text;        ///< Well-formed UTF-8, not empty; valid during the call only.
  std::size_t start_bytes = 0;  ///< Bytes at the front that stand for the input's first character.
};

/// Takes a piece; a failure ends the work.
using PieceSink = std::function<Result<>(const Piece&)>;

/// One step of a pre-tokenizer. Immutable.
class PieceStep {
 public:
  virtual ~PieceStep() = default;
  /// Passes on what becomes of a piece, in order. Fails once `stop` is requested.
  virtual Result<> split(const Piece& piece, const PieceSink& sink,
                         const std::stop_token& stop) const = 0;
  /// True when no character of a piece vanishes, whatever may be added.
  virtual bool keeps_text() const { return false; }
};

/// A step, owned.
using PieceStepPtr = std::shared_ptr<const PieceStep>;

/// When `Metaspace` puts its character before a piece that does not begin with it.
enum class PrependScheme : std::uint8_t {
  First,   ///< Before the piece at the start of the input.
  Never,   ///< Not at all.
  Always,  ///< Before every piece.
};

/// `Split` and whatever is one.
PieceStepPtr split_step(Split split);
/// `ByteLevel`: a space before the piece, the GPT-2 pattern, bytes as printable characters.
PieceStepPtr byte_level_pieces_step(bool add_prefix_space, bool use_regex);
/// `Metaspace`: spaces become `replacement`, a cut before each.
PieceStepPtr metaspace_step(std::string_view replacement, PrependScheme scheme, bool split);
/// `FixedLength`: pieces of `length` characters (at least 1).
PieceStepPtr fixed_length_step(std::size_t length);
/// `Whitespace`: runs of word characters and runs of others; white space vanishes.
PieceStepPtr whitespace_step();
/// `UnicodeScripts`: a cut where the script changes.
PieceStepPtr scripts_step();
/// `WhitespaceSplit`: cuts at white space, which vanishes.
PieceStepPtr whitespace_split_step();
/// `Punctuation`.
PieceStepPtr punctuation_step(SplitBehavior behavior);

}  // namespace fairlead::tokenizer
