#include "tokenizer/sentencepiece_decoder.hpp"

#include "tokenizer/decoder_step.hpp"

namespace fairlead::tokenizer {
namespace {

constexpr std::string_view kSpace = "\u2581";
constexpr std::string_view kReplacement = "\uFFFD";
constexpr char kVerbatim = '\0';  // in no piece

void append_spaced(std::string_view token, std::string& out) {
  for (std::size_t at = token.find(kSpace); at != std::string_view::npos; at = token.find(kSpace)) {
    out += token.substr(0, at);
    out += ' ';
    token.remove_prefix(at + kSpace.size());
  }
  out += token;
}

void append_broken(std::string& out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    out += kReplacement;
  }
}

}  // namespace

Result<PieceDecoding> PieceDecoding::create(const SentencePieceFile& file) {
  PieceDecoding rules;
  rules.byte_fallback = file.byte_fallback;
  rules.drop_leading = file.normalizer.remove_extra_whitespaces;
  rules.drop_first = file.normalizer.add_dummy_prefix;
  if (file.denormalizer) {
    Result<SentencePieceNormalizer> normalizer =
        SentencePieceNormalizer::create(*file.denormalizer, {});
    if (!normalizer) {
      return std::unexpected(normalizer.error());
    }
    rules.denormalizer = std::make_shared<const SentencePieceNormalizer>(std::move(*normalizer));
  }
  return rules;
}

std::string PieceDecoding::verbatim(std::string_view text) {
  return std::string(1, kVerbatim) + std::string(text);
}

std::optional<std::string_view> PieceDecoding::verbatim_text(std::string_view token) {
  return token.starts_with(kVerbatim) ? std::optional(token.substr(1)) : std::nullopt;
}

std::string PieceDecoding::bytes(std::string_view token) const {
  if (const auto text = verbatim_text(token)) {
    return std::string(*text);
  }
  if (const std::optional<char> byte = byte_fallback ? byte_token(token) : std::nullopt) {
    return std::string(1, *byte);
  }
  std::string text;
  append_spaced(token, text);
  return text;
}

PieceText::PieceText(const PieceDecoding& rules)
    : rules_(&rules), drop_(rules.drop_first || rules.drop_leading) {
  if (rules.denormalizer) {
    denormalizer_.emplace(*rules.denormalizer);
  }
}

void PieceText::push(std::string_view token, std::string& out) {
  if (!denormalizer_) {
    return put(token, out);
  }
  plain_.clear();
  put(token, plain_);
  denormalizer_->push(plain_, out);
}

void PieceText::finish(std::string& out) {
  if (!denormalizer_) {
    return end_bytes(out);
  }
  plain_.clear();
  end_bytes(plain_);
  denormalizer_->push(plain_, out);
  denormalizer_->finish(out);
}

void PieceText::put(std::string_view token, std::string& out) {
  const std::size_t start = out.size();
  if (const std::optional<char> byte = rules_->byte_fallback ? byte_token(token) : std::nullopt) {
    const PartialCharacter::Outcome outcome = partial_.push(*byte);
    append_broken(out, outcome.broken_bytes);
    out += outcome.character;
    // What bytes are still to become is text as well.
    drop_ = false;
    return;
  }
  end_bytes(out);
  if (const auto text = PieceDecoding::verbatim_text(token)) {
    out += *text;
  } else {
    if (drop_ && token.starts_with(kSpace)) {
      token.remove_prefix(kSpace.size());
      drop_ = rules_->drop_leading;
    }
    append_spaced(token, out);
  }
  drop_ = drop_ && out.size() == start;
}

void PieceText::end_bytes(std::string& out) {
  append_broken(out, partial_.size());
  partial_.clear();
}

}  // namespace fairlead::tokenizer
