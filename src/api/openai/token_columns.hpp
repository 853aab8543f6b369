#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "api/openai/logprobs.hpp"
#include "engine/client.hpp"

namespace fairlead::api::openai {

/// Text that grows at its end and leaves from its front. It is kept in pieces, so that neither
/// costs a second copy of a long one. Positions count from the first byte ever appended.
class Column {
 public:
  /// Where the next item is appended, whole.
  std::string& tail();
  /// Position behind the last byte.
  std::size_t end() const { return tail_begin_ + (pieces_.empty() ? 0 : pieces_.back().size()); }
  /// Bytes held.
  std::size_t size() const { return end() - begin_; }
  /// Appends all of it to `out`.
  void append_to(std::string& out) const;
  /// Moves what is before the position `end` behind `out`.
  void take(std::string& out, std::size_t end) { remove(end, &out); }
  /// Removes what is before the position `end`.
  void drop(std::size_t end) { remove(end, nullptr); }

 private:
  void remove(std::size_t end, std::string* out);

  std::vector<std::string> pieces_;
  std::size_t begin_ = 0;
  std::size_t tail_begin_ = 0;  // of the last piece
};

/// One choice's tokens and their log-probabilities on the way to the client: rows come in with the
/// tokens and leave, in order, with the text they belong to.
class TokenColumns {
 public:
  /// What of each token is kept.
  struct Shape {
    bool chat = true;         ///< Objects, or else parallel arrays.
    bool logprobs = false;    ///< Entries are wanted.
    std::uint32_t limit = 0;  ///< Alternatives per entry.
  };

  /// `writer` outlives the object.
  TokenColumns(const LogprobWriter& writer, Shape shape) : writer_(&writer), shape_(shape) {}

  /// An output token; `entry` is null when no log-probabilities are wanted. `offset` counts the
  /// characters before its text and never falls.
  void add(engine::TokenId id, const engine::TokenLogprob* entry, std::uint32_t offset);
  /// A prompt token of parallel arrays; `entry` is null for the first one, which has no value.
  void add_prompt(engine::TokenId id, const engine::TokenLogprob* entry, std::uint32_t offset);

  /// Rows whose text, or text behind them, is among the first `characters`.
  std::size_t ready(std::uint32_t characters) const;
  /// All rows.
  std::size_t size() const { return rows_.size(); }

  /// Bytes held.
  std::size_t bytes() const {
    return items_.size() + logprobs_.size() + maps_.size() + rows_.size() * sizeof(Row);
  }

  /// The value of `logprobs` for the first `count` rows; offsets end at `characters`. They cannot
  /// be written again and are to be dropped next.
  void take_logprobs(std::string& out, std::size_t count, std::uint32_t characters);
  /// Their ids as an array, those of the prompt left out.
  void write_ids(std::string& out, std::size_t count) const;
  /// Removes the first `count` rows.
  void drop(std::size_t count);

 private:
  struct Row {
    engine::TokenId id;
    std::uint32_t offset;
    bool of_prompt;
    // Where its items end, each with its comma in front.
    std::size_t item_end;
    std::size_t logprob_end;
    std::size_t map_end;
  };
  void add_row(engine::TokenId id, std::uint32_t offset, bool of_prompt);
  void add_arrays(engine::TokenId id, const engine::TokenLogprob* entry);

  const LogprobWriter* writer_;
  Shape shape_;
  std::vector<Row> rows_;
  Column items_;     // chat: entries; completions: `tokens`
  Column logprobs_;  // `token_logprobs`
  Column maps_;      // `top_logprobs`
};

}  // namespace fairlead::api::openai
