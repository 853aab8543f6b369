#include "tokenizer/token_decoder.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "tokenizer/byte_level.hpp"
#include "tokenizer/utf8_valid.hpp"

namespace fairlead::tokenizer {

namespace {

namespace step = decoder_step;

constexpr std::string_view kReplacement = "\uFFFD";

// The step at `index` when it is of this kind; moves `index` behind it.
template <class Step>
const Step* take(const std::vector<DecoderStep>& steps, std::size_t& index) {
  const Step* found = index < steps.size() ? std::get_if<Step>(&steps[index]) : nullptr;
  index += found != nullptr ? 1 : 0;
  return found;
}

void append_broken(std::string& out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    out += kReplacement;
  }
}

}  // namespace

TokenDecoder::TokenDecoder(std::vector<DecoderStep> steps) : steps_(std::move(steps)) {
  find_shape();
  find_prompt_tail();
}

Result<TokenDecoder> TokenDecoder::create(const json::Value& config) {
  Result<std::vector<DecoderStep>> steps = read_decoder(config);
  if (!steps) {
    return std::unexpected(steps.error());
  }
  return TokenDecoder(std::move(*steps));
}

TokenDecoder TokenDecoder::create(PieceDecoding rules) {
  TokenDecoder decoder({});
  decoder.shape_ = Shape::Pieces;
  decoder.pieces_ = std::move(rules);
  return decoder;
}

void TokenDecoder::find_shape() {
  std::size_t index = 0;
  if (const auto* join = take<step::Join>(steps_, index)) {
    prefix_ = join->prefix ? &*join->prefix : nullptr;
    cleanup_ = take<step::Cleanup>(steps_, index) != nullptr;
    shape_ = index == steps_.size() ? Shape::Joined : Shape::Any;
    return;
  }
  if (const auto* metaspace = take<step::Metaspace>(steps_, index)) {
    space_ = &metaspace->replacement;
    drop_in_first_ = metaspace->drop_in_first;
  } else if (const auto* replace = take<step::Replace>(steps_, index)) {
    space_ = &replace->literal;
    if (replace->content != " ") {
      return;
    }
  }
  // A character outside ASCII that becomes a space leaves the names of bytes as they are.
  if (space_ != nullptr && static_cast<unsigned char>(space_->text().front()) < 0x80) {
    return;
  }
  byte_fallback_ = take<step::ByteFallback>(steps_, index) != nullptr;
  if (byte_fallback_ && drop_in_first_) {
    return;  // what is left of the first token may be such a name
  }
  if (take<step::Fuse>(steps_, index) != nullptr) {
    if (const auto* strip = take<step::Strip>(steps_, index)) {
      if (strip->content != " " || strip->stop != 0) {
        return;
      }
      strip_left_ = strip->start;
    }
  }
  shape_ = index == steps_.size() ? Shape::Spaces : Shape::Any;
}

void TokenDecoder::find_prompt_tail() {
  bool fused = false;
  for (const DecoderStep& one : steps_) {
    const bool byte_level = std::holds_alternative<step::ByteLevel>(one);
    if (fused && (byte_level || std::holds_alternative<step::RegexReplace>(one))) {
      prompt_tail_ = SIZE_MAX;
    }
    fused = fused || byte_level || std::holds_alternative<step::Fuse>(one);
  }
}

std::string TokenDecoder::decode(std::span<const std::string_view> tokens,
                                 ByteRuns byte_runs) const {
  if (shape_ == Shape::Pieces) {
    std::string text;
    PieceText pieces(pieces_);
    for (const std::string_view token : tokens) {
      pieces.push(token, text);
    }
    pieces.finish(text);
    return text;
  }
  std::vector<std::string> list(tokens.begin(), tokens.end());
  for (const DecoderStep& one : steps_) {
    apply(one, list, byte_runs);
  }
  std::string text;
  for (const std::string& token : list) {
    text += token;
  }
  return text;
}

std::string TokenDecoder::decode(std::span<const std::string_view> tokens) const {
  return decode(tokens, ByteRuns::Whole);
}

std::string TokenDecoder::decode_by_character(std::span<const std::string_view> tokens) const {
  return decode(tokens, ByteRuns::ByCharacter);
}

std::string TokenDecoder::token_bytes(std::string_view token) const {
  if (shape_ == Shape::Pieces) {
    return pieces_.bytes(token);
  }
  const auto has = [&]<class Step>(std::type_identity<Step>) {
    return std::ranges::any_of(
        steps_, [](const DecoderStep& one) { return std::holds_alternative<Step>(one); });
  };
  if (has(std::type_identity<step::ByteFallback>())) {
    if (const std::optional<char> byte = byte_token(token)) {
      return std::string(1, *byte);
    }
  }
  if (std::string bytes;
      has(std::type_identity<step::ByteLevel>()) && append_byte_level_bytes(bytes, token)) {
    return bytes;
  }
  if (shape_ == Shape::Spaces) {
    std::string text(token);
    if (space_ != nullptr) {
      space_->replace_in(text, " ");
    }
    return text;
  }
  // What the token adds between two others that have nothing to do with it.
  constexpr std::string_view kBefore = "\x02";
  constexpr std::string_view kBehind = "\x03";
  const auto between = [&](std::string_view middle) {
    Stream stream(*this, std::span(&kBefore, 1));
    std::string text;
    for (const std::string_view one : {middle, kBehind}) {
      if (!one.empty()) {
        stream.push(one, text);
      }
    }
    stream.flush(text);
    return text;
  };
  std::string text = between(token);
  const std::string behind = between({});
  if (text.ends_with(behind)) {
    text.resize(text.size() - behind.size());
  }
  return text;
}

TokenDecoder::Stream::Stream(const TokenDecoder& decoder,
                             std::span<const std::string_view> prompt_tail)
    : decoder_(&decoder), strip_left_(decoder.strip_left_) {
  if (decoder.shape_ == Shape::Any) {
    pipeline_ = std::make_unique<DecoderPipeline>(decoder.steps_);
  } else if (decoder.shape_ == Shape::Pieces) {
    pieces_.emplace(decoder.pieces_);
  }
  if (prompt_tail.empty()) {
    return;
  }
  Stream prompt(decoder);
  std::string text;
  for (const std::string_view token : prompt_tail) {
    prompt.push(token, text);
  }
  const std::size_t certain = text.size();
  prompt.flush(text);
  shown_ = text.substr(certain);
  std::string unused;
  for (const std::string_view token : prompt_tail) {
    decode(token, unused);
  }
}

void TokenDecoder::Stream::push(std::string_view token, std::string& out) {
  const std::size_t start = out.size();
  decode(token, out);
  hide_shown(start, out);
}

void TokenDecoder::Stream::flush(std::string& out) {
  const std::size_t start = out.size();
  end(out);
  hide_shown(start, out);
}

// Takes away what `out` from `start` on has in common with what the prompt's text showed already.
void TokenDecoder::Stream::hide_shown(std::size_t start, std::string& out) {
  if (shown_.empty() || out.size() == start) {
    return;
  }
  const std::string_view fresh = std::string_view(out).substr(start);
  std::size_t common = 0;
  while (common < std::min(fresh.size(), shown_.size())) {
    const std::size_t length = character_length(static_cast<unsigned char>(fresh[common]));
    if (fresh.substr(common, length) != std::string_view(shown_).substr(common, length)) {
      break;
    }
    common += length;
  }
  if (common == fresh.size()) {
    shown_.erase(0, common);
  } else {
    shown_.clear();
  }
  out.erase(start, common);
}

void TokenDecoder::Stream::decode(std::string_view token, std::string& out) {
  switch (decoder_->shape_) {
    case Shape::Any: pipeline_->push(token, out); break;
    case Shape::Spaces: decode_spaces(token, out); break;
    case Shape::Joined: decode_joined(token, out); break;
    case Shape::Pieces: pieces_->push(token, out); break;
  }
  first_ = false;
}

void TokenDecoder::Stream::end(std::string& out) {
  if (pipeline_) {
    return pipeline_->finish(out);
  }
  if (pieces_) {
    return pieces_->finish(out);
  }
  append_broken(out, partial_.size());
  partial_.clear();
}

void TokenDecoder::Stream::decode_spaces(std::string_view token, std::string& out) {
  const std::size_t start = out.size();
  if (const std::optional<char> byte =
          decoder_->byte_fallback_ ? byte_token(token) : std::nullopt) {
    const PartialCharacter::Outcome outcome = partial_.push(*byte);
    append_broken(out, outcome.broken_bytes);
    out += outcome.character;
    return strip_left(start, out);
  }
  append_broken(out, partial_.size());
  partial_.clear();
  if (decoder_->space_ != nullptr) {
    const std::string& space = decoder_->space_->text();
    const std::string_view content = first_ && decoder_->drop_in_first_ ? "" : " ";
    for (std::size_t at = token.find(space); at != std::string_view::npos; at = token.find(space)) {
      out += token.substr(0, at);
      out += content;
      token.remove_prefix(at + space.size());
    }
  }
  out += token;
  strip_left(start, out);
}

void TokenDecoder::Stream::strip_left(std::size_t start, std::string& out) {
  if (strip_left_ == 0 || out.size() == start) {
    return;
  }
  const std::size_t spaces = std::min(out.find_first_not_of(' ', start), out.size()) - start;
  const std::size_t taken = std::min(spaces, strip_left_);
  strip_left_ = start + spaces == out.size() ? strip_left_ - taken : 0;
  out.erase(start, taken);
}

void TokenDecoder::Stream::decode_joined(std::string_view token, std::string& out) {
  const std::size_t start = out.size();
  if (!first_) {
    if (decoder_->prefix_ != nullptr && token.starts_with(*decoder_->prefix_)) {
      token.remove_prefix(decoder_->prefix_->size());
    } else {
      out += ' ';
    }
  }
  out += token;
  if (decoder_->cleanup_ && may_need_cleanup(std::string_view(out).substr(start))) {
    std::string cleaned = out.substr(start);
    clean_up(cleaned);
    out.replace(start, std::string::npos, cleaned);
  }
}

}  // namespace fairlead::tokenizer
