#include "tokenizer/unigram.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <ranges>

#include "tokenizer/utf8_valid.hpp"
#include "tokenizer/vocabulary.hpp"

namespace fairlead::tokenizer {

namespace {

// How much worse than the worst piece an unknown character is.
constexpr double kUnknownPenalty = 10.0;
// Characters between two looks at whether the result is still wanted.
constexpr std::size_t kStopCharacters = 1U << 16;
// Working memory that a thread keeps between texts, unless the last one needed much.
template <class T>
class Scratch {
 public:
  explicit Scratch(std::vector<T>& memory) : memory_(memory) {}
  ~Scratch() {
    if (memory_.capacity() > kKept) {
      memory_ = {};
    }
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

 private:
  static constexpr std::size_t kKept = 1U << 15;

  std::vector<T>& memory_;
};

}  // namespace

Result<std::unique_ptr<const Model>> UnigramModel::create(std::span<const ScoredPiece> pieces,
                                                          const UnigramOptions& options) {
  if (options.unk_id && *options.unk_id >= pieces.size()) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("unk_id {} is not among {} entries", *options.unk_id, pieces.size()),
                "model.unk_id");
  }
  if (pieces.size() > kMaxTokenId) {
    return fail(ErrorCode::InvalidRequest, fmt::format("more than {} entries", kMaxTokenId),
                "model.vocab");
  }
  std::unique_ptr<UnigramModel> model(new UnigramModel());
  std::vector<PieceTrie::Piece> keys;
  keys.reserve(pieces.size());
  double lowest = std::numeric_limits<double>::infinity();
  for (const auto& [text, score] : pieces) {
    if (model->text_.size() + text.size() > INT32_MAX) {
      return fail(ErrorCode::InvalidRequest, "the vocabulary is larger than 2 GiB", "model.vocab");
    }
    keys.push_back({text, static_cast<TokenId>(keys.size())});
    model->pieces_.push_back({static_cast<std::uint32_t>(model->text_.size()),
                              static_cast<std::uint32_t>(text.size()), score});
    model->text_ += text;
    lowest = std::min(lowest, score);
  }
  model->trie_ = PieceTrie(keys);
  model->unk_id_ = options.unk_id;
  model->unk_score_ = lowest - kUnknownPenalty;
  model->byte_fallback_ = options.byte_fallback;
  for (unsigned byte = 0; byte < 256; ++byte) {
    model->fallback_[byte] = model->find(fmt::format("<0x{:02X}>", byte)).value_or(kNone);
  }
  return model;
}

// Writes ids; fuses neighbouring unknown characters, also across the places where the text is cut.
class UnigramModel::Run {
 public:
  Run(const UnigramModel& model, std::string_view text, std::vector<TokenId>& out,
      std::vector<Step>& scratch)
      : model_(model), text_(text), out_(out), reversed_(scratch) {}

  // Appends the pieces from `start` to the last of `steps`, which stand for the places from there.
  void append(std::size_t start, const std::vector<Step>& steps) {
    reversed_.clear();
    for (std::size_t at = steps.size() - 1; at > 0; at -= steps[at].length) {
      reversed_.push_back(steps[at]);
    }
    for (const Step& step : std::views::reverse(reversed_)) {
      if (step.id == model_.unk_id_) {
        unknown_bytes_ += step.length;
      } else {
        flush(start);
        out_.push_back(step.id);
      }
      start += step.length;
    }
  }

  // Writes what is unknown before `end`.
  void flush(std::size_t end) {
    if (unknown_bytes_ == 0) {
      return;
    }
    const std::string_view unknown = text_.substr(end - unknown_bytes_, unknown_bytes_);
    unknown_bytes_ = 0;
    const auto byte_id = [this](char c) { return model_.fallback_[static_cast<unsigned char>(c)]; };
    if (const std::optional<TokenId> id = model_.find(unknown)) {
      out_.push_back(*id);  // several characters together may be a piece that lost to them
    } else if (model_.byte_fallback_ && std::all_of(unknown.begin(), unknown.end(),
                                                    [&](char c) { return byte_id(c) != kNone; })) {
      for (const char c : unknown) {
        out_.push_back(byte_id(c));
      }
    } else {
      out_.push_back(*model_.unk_id_);
    }
  }

 private:
  const UnigramModel& model_;
  std::string_view text_;
  std::vector<TokenId>& out_;
  std::size_t unknown_bytes_ = 0;
  std::vector<Step>& reversed_;
};

// Enters the pieces that start at `at` of `text` into `steps`, which stand for the places from
// `base` on. Steps that were never entered have the length 0.
Result<> UnigramModel::extend(std::string_view text, std::size_t at, std::size_t base,
                              std::vector<Step>& steps) const {
  const double so_far = steps[at - base].score;
  const auto offer = [&](std::size_t end, double score, TokenId id) {
    if (end - base >= steps.size()) {
      steps.resize(end - base + 1);
    }
    Step& step = steps[end - base];
    if (step.length != 0 && score <= step.score) {
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
      offer(end, pieces_[id].score + so_far, id);
      covered = covered || end == next;
    }
  }
  if (!covered && offer(next, unk_score_ + so_far, unk_id_.value_or(kNone)) && !unk_id_) {
    return fail(ErrorCode::InvalidRequest,
                "a character is in no token and the tokenizer has no unk_id");
  }
  return {};
}

Result<> UnigramModel::encode(std::string_view piece, std::vector<TokenId>& out,
                              const std::stop_token& stop) const {
  if (piece.empty()) {
    return {};
  }
  thread_local std::vector<Step> kept_steps;
  thread_local std::vector<Step> kept_path;
  const Scratch<Step> steps_scratch(kept_steps);
  const Scratch<Step> path_scratch(kept_path);
  std::vector<Step>& steps = kept_steps;
  Run run(*this, piece, out, kept_path);
  std::size_t base = 0;
  steps.assign(1, Step());
  for (std::size_t at = 0, count = 0; at < piece.size(); ++count) {
    if (count % kStopCharacters == kStopCharacters - 1 && stop.stop_requested()) {
      return fail(ErrorCode::ClientGone, "nobody waits for the tokens any more");
    }
    if (at > base && at - base + 1 == steps.size()) {
      // No piece reaches beyond this place: whatever follows, the best way leads through it.
      run.append(base, steps);
      steps.assign(1, Step{.score = steps.back().score});
      base = at;
    }
    if (Result<> done = extend(piece, at, base, steps); !done) {
      return done;
    }
    at += character_length(static_cast<unsigned char>(piece[at]));
  }
  run.append(base, steps);
  run.flush(piece.size());
  return {};
}

std::optional<TokenId> UnigramModel::find(std::string_view spelling) const {
  const PieceTrie::Node node = trie_.walk(PieceTrie::kRoot, spelling);
  if (node == PieceTrie::kNowhere || trie_.value(node) == PieceTrie::kNoValue) {
    return std::nullopt;
  }
  return trie_.value(node);
}

std::optional<std::string_view> UnigramModel::spelling(TokenId id) const {
  if (id >= pieces_.size()) {
    return std::nullopt;
  }
  return std::string_view(text_).substr(pieces_[id].offset, pieces_[id].length);
}

}  // namespace fairlead::tokenizer
