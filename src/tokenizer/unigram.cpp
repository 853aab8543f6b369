#include "tokenizer/unigram.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/utf8.hpp"
#include "tokenizer/vocabulary.hpp"

namespace fairlead::tokenizer {

namespace {

// How much worse than the worst piece an unknown character is.
constexpr double kUnknownPenalty = 10.0;

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
  std::vector<double> scores;
  double lowest = std::numeric_limits<double>::infinity();
  for (const auto& [text, score] : pieces) {
    if (model->text_.size() + text.size() > INT32_MAX) {
      return fail(ErrorCode::InvalidRequest, "the vocabulary is larger than 2 GiB", "model.vocab");
    }
    keys.push_back({text, static_cast<TokenId>(keys.size())});
    model->pieces_.push_back(
        {static_cast<std::uint32_t>(model->text_.size()), static_cast<std::uint32_t>(text.size())});
    model->text_ += text;
    scores.push_back(score);
    lowest = std::min(lowest, score);
  }
  model->search_ = UnigramSearch<double>(keys, std::move(scores), options.unk_id.value_or(kNone),
                                         lowest - kUnknownPenalty);
  model->unk_id_ = options.unk_id;
  model->byte_fallback_ = options.byte_fallback;
  for (unsigned byte = 0; byte < 256; ++byte) {
    model->fallback_[byte] = model->find(fmt::format("<0x{:02X}>", byte)).value_or(kNone);
  }
  return model;
}

// Writes ids; fuses neighbouring unknown characters, also across the places where the text is cut.
class UnigramModel::Run {
 public:
  Run(const UnigramModel& model, std::string_view text, std::vector<TokenId>& out)
      : model_(model), text_(text), out_(out) {}

  // The next piece.
  void take(std::size_t begin, std::size_t length, TokenId id) {
    if (id == model_.unk_id_) {
      unknown_bytes_ += length;
    } else {
      flush(begin);
      out_.push_back(id);
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
};

Result<> UnigramModel::encode(std::string_view piece, std::vector<TokenId>& out,
                              const std::stop_token& stop) const {
  Run run(*this, piece, out);
  const auto unknown = [this]() -> Result<> {
    return unk_id_ ? Result<>()
                   : fail(ErrorCode::InvalidRequest,
                          "a character is in no token and the tokenizer has no unk_id");
  };
  const Result<> done = search_.run(
      piece,
      [&](std::size_t begin, std::size_t length, TokenId id) { run.take(begin, length, id); },
      unknown, stop);
  if (done) {
    run.flush(piece.size());
  }
  return done;
}

std::size_t UnigramModel::longest_token() const {
  const bool bytes = byte_fallback_ && std::ranges::find(fallback_, kNone) == fallback_.end();
  if (unk_id_ && !bytes) {
    return 0;  // any number of unknown characters become one token
  }
  std::size_t longest = 1;
  for (const Piece& piece : pieces_) {
    longest =
        std::max(longest, utf8::count(std::string_view(text_).substr(piece.offset, piece.length)));
  }
  return longest;
}

std::optional<TokenId> UnigramModel::find(std::string_view spelling) const {
  const TokenId id = search_.find(spelling);
  return id == kNone ? std::nullopt : std::optional(id);
}

std::optional<std::string_view> UnigramModel::spelling(TokenId id) const {
  if (id >= pieces_.size()) {
    return std::nullopt;
  }
  return std::string_view(text_).substr(pieces_[id].offset, pieces_[id].length);
}

}  // namespace fairlead::tokenizer
