#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <stop_token>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "tokenizer/piece_trie.hpp"
#include "tokenizer/tokenizer.hpp"
#include "tokenizer/utf8_valid.hpp"

namespace fairlead::tokenizer {

/// Finds, of all ways to cut a text into scored pieces, the one with the highest sum of scores,
/// added in the order of the text; of equal ones that whose last piece began first. The two
/// libraries that do this add numbers of different sizes, which decides between close ways.
/// Immutable.
template <std::floating_point Score>
class UnigramSearch {
 public:
  /// No piece.
  static constexpr TokenId kNone = ~TokenId{0};

  UnigramSearch() = default;
  /// `pieces` and the score of each of their values. Characters that are no piece by themselves
  /// become `unknown`, which may be `kNone`, for `unknown_score`.
  UnigramSearch(std::span<const PieceTrie::Piece> pieces, std::vector<Score> scores,
                TokenId unknown, Score unknown_score)
      : trie_(pieces),
        scores_(std::move(scores)),
        unknown_(unknown),
        unknown_score_(unknown_score) {}

  /// Scores whose sum so far is beyond this are counted from there on; 0: never. SentencePiece does
  /// it, since its sums lose digits as they grow.
  void set_reset(Score beyond) { reset_ = beyond; }

  /// The piece that is `text`, or `kNone`.
  TokenId find(std::string_view text) const {
    const PieceTrie::Node node = trie_.walk(PieceTrie::kRoot, text);
    return node == PieceTrie::kNowhere ? kNone : trie_.value(node);
  }

  /// Calls `take(begin, length, piece)` for the pieces of `text`, well-formed UTF-8, in order.
  /// `unknown()` is called when a character that is no piece is met, and ends the search when it
  /// fails. Time grows with the length of the text times that of the longest piece; memory with the
  /// longest stretch in which pieces overlap everywhere. `ClientGone` soon after `stop` is
  /// requested.
  template <class Take, class Unknown>
  Result<> run(std::string_view text, Take&& take, Unknown&& unknown,
               const std::stop_token& stop) const {
    // Characters between two looks at whether the result is still wanted.
    constexpr std::size_t kStopCharacters = 1U << 16;
    if (text.empty()) {
      return {};
    }
    thread_local std::vector<Step> kept_steps;
    thread_local std::vector<Step> kept_path;
    const Scratch steps_scratch(kept_steps);
    const Scratch path_scratch(kept_path);
    std::vector<Step>& steps = kept_steps;
    std::size_t base = 0;
    steps.assign(1, Step());
    for (std::size_t at = 0, count = 0; at < text.size(); ++count) {
      if (count % kStopCharacters == kStopCharacters - 1 && stop.stop_requested()) {
        return fail(ErrorCode::ClientGone, "nobody waits for the tokens any more");
      }
      if (at > base && at - base + 1 == steps.size()) {
        // No piece reaches beyond this place: whatever follows, the best way leads through it.
        give(base, steps, kept_path, take);
        steps.assign(1, Step{.score = steps.back().score});
        base = at;
      }
      if (Result<> done = extend(text, at, base, steps, unknown); !done) {
        return done;
      }
      at += character_length(static_cast<unsigned char>(text[at]));
    }
    give(base, steps, kept_path, take);
    return {};
  }

 private:
  // The best way to one place of the text: the piece it comes by, and the score of all of it. Steps
  // that were never entered have the length 0.
  struct Step {
    Score score = 0;
    TokenId id = kNone;
    std::uint32_t length = 0;
  };

  // Working memory that a thread keeps between texts, unless the last one needed much.
  class Scratch {
   public:
    explicit Scratch(std::vector<Step>& memory) : memory_(memory) {}
    ~Scratch() {
      if (memory_.capacity() > kKept) {
        memory_ = {};
      }
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

   private:
    static constexpr std::size_t kKept = 1U << 15;

    std::vector<Step>& memory_;
  };

  // Gives the pieces from `start` to the last of `steps`, which stand for the places from there.
  template <class Take>
  static void give(std::size_t start, const std::vector<Step>& steps, std::vector<Step>& reversed,
                   Take& take) {
    reversed.clear();
    for (std::size_t at = steps.size() - 1; at > 0; at -= steps[at].length) {
      reversed.push_back(steps[at]);
    }
    for (const Step& step : std::views::reverse(reversed)) {
      take(start, std::size_t{step.length}, step.id);
      start += step.length;
    }
  }

  void reset(std::size_t from, std::vector<Step>& steps) const {
    const Score offset = steps[from].score;
    if (reset_ == 0 || (offset >= -reset_ && offset <= reset_)) {
      return;
    }
    for (std::size_t i = from; i < steps.size(); ++i) {
      if (i == from || steps[i].length != 0) {
        steps[i].score -= offset;
      }
    }
  }

  // Enters the pieces that start at `at` of `text` into `steps`, which stand for the places from
  // `base` on.
  template <class Unknown>
  Result<> extend(std::string_view text, std::size_t at, std::size_t base, std::vector<Step>& steps,
                  Unknown& unknown) const {
    reset(at - base, steps);
    const Score so_far = steps[at - base].score;
    const auto offer = [&](std::size_t end, Score score, TokenId id) {
      if (end - base >= steps.size()) {
        steps.resize(end - base + 1);
      }
      Step& step = steps[end - base];
      if (step.length != 0 && !(score > step.score)) {
        return false;
      }
      step = {score, id, static_cast<std::uint32_t>(end - at)};
      return true;
    };
    const std::size_t next = at + character_length(static_cast<unsigned char>(text[at]));
    bool covered = false;
    PieceTrie::Node node = PieceTrie::kRoot;
    for (std::size_t end = at; end < text.size();) {
      node = trie_.step(node, static_cast<unsigned char>(text[end++]));
      if (node == PieceTrie::kNowhere) {
        break;
      }
      if (const TokenId id = trie_.value(node); id != PieceTrie::kNoValue) {
        offer(end, scores_[id] + so_far, id);
        covered = covered || end == next;
      }
    }
    if (!covered && offer(next, unknown_score_ + so_far, unknown_)) {
      return unknown();
    }
    return {};
  }

  PieceTrie trie_;
  std::vector<Score> scores_;
  TokenId unknown_ = kNone;
  Score unknown_score_ = 0;
  Score reset_ = 0;
};

}  // namespace fairlead::tokenizer
