#include "tokenizer/sentencepiece_normalizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/utf8.hpp"
#include "tokenizer/piece_trie.hpp"

namespace fairlead::tokenizer {
namespace {

// Bytes between two looks at whether the result is still wanted.
constexpr std::size_t kStopBytes = 1U << 16;
// Nothing real makes a text this much longer, or a character; a map that does is none of
// characters.
constexpr std::size_t kMaxGrowth = 64;
constexpr std::size_t kMaxReplacement = 1024;

}  // namespace

LiteralMatcher user_defined_matcher(std::span<const SentencePiece> pieces) {
  constexpr std::size_t kMaxPrefixes = 64;
  std::vector<PieceTrie::Piece> texts;
  for (const SentencePiece& piece : pieces) {
    if (piece.kind == PieceKind::UserDefined) {
      texts.push_back({piece.text, static_cast<std::uint32_t>(texts.size())});
    }
  }
  const PieceTrie trie(texts);
  LiteralMatcher matcher;
  for (const PieceTrie::Piece& piece : texts) {
    std::size_t prefixes = 0;
    PieceTrie::Node node = PieceTrie::kRoot;
    for (const char c : piece.text) {
      node = trie.step(node, static_cast<unsigned char>(c));
      prefixes += trie.value(node) != PieceTrie::kNoValue ? 1 : 0;
    }
    matcher.add(prefixes <= kMaxPrefixes ? piece.text : std::string_view());
  }
  return matcher;
}

Result<SentencePieceNormalizer> SentencePieceNormalizer::create(const NormalizerRules& rules,
                                                                LiteralMatcher user_defined) {
  SentencePieceNormalizer normalizer;
  normalizer.rules_ = rules;
  normalizer.rules_.charsmap = {};
  normalizer.user_defined_ = std::move(user_defined);
  if (!rules.charsmap.empty()) {
    Result<Charsmap> charsmap = Charsmap::create(rules.charsmap);
    if (!charsmap) {
      return std::unexpected(charsmap.error());
    }
    if (charsmap->longest_replacement() > kMaxReplacement) {
      return fail(ErrorCode::InvalidRequest,
                  fmt::format("precompiled_charsmap: a replacement is longer than {} bytes",
                              kMaxReplacement));
    }
    normalizer.charsmap_ = std::move(*charsmap);
  }
  return normalizer;
}

SentencePieceNormalizer::Prefix SentencePieceNormalizer::next(std::string_view text) const {
  Prefix prefix;
  if (charsmap_) {
    const Charsmap::Match match = charsmap_->longest(text);
    prefix.certain = !match.may_grow;
    if (match.length != 0) {
      prefix.text = match.replacement;
      prefix.length = match.length;
      return prefix;
    }
  }
  // A key may have ended inside a character; what is left of it is no character.
  const int length = utf8::sequence_length(text);
  prefix.text = length != 0 ? text.substr(0, static_cast<std::size_t>(length)) : "\uFFFD";
  prefix.length = static_cast<std::size_t>(std::max(length, 1));
  return prefix;
}

Result<> SentencePieceNormalizer::apply(std::string_view text, bool dummy_prefix, std::string& out,
                                        const std::stop_token& stop) const {
  Stream stream(*this, dummy_prefix);
  if (keeps_text()) {
    // Each character stays what it is, but for spaces.
    if (!text.empty()) {
      stream.put(text, out);
    }
    stream.end(out);
    return {};
  }
  const std::size_t limit = out.size() + kMaxGrowth * (text.size() + kStopBytes);
  std::optional<LiteralMatcher::Match> literal = user_defined_.find(text, 0);
  std::size_t look = kStopBytes;
  for (std::size_t at = 0; at < text.size();) {
    // A key that began before it may have gone beyond its start.
    if (literal && literal->span.begin < at) {
      literal = user_defined_.find(text, at);
    }
    Prefix prefix;
    if (literal && literal->span.begin == at) {
      prefix.length = literal->span.end - at;
      prefix.text = text.substr(at, prefix.length);
    } else {
      prefix = next(text.substr(at));
    }
    stream.put(prefix.text, out);
    at += prefix.length;
    if (out.size() > limit) {
      return fail(ErrorCode::InvalidRequest, "the normalized text is out of proportion");
    }
    if (at >= look) {
      look = at + kStopBytes;
      if (stop.stop_requested()) {
        return fail(ErrorCode::ClientGone, "nobody waits for the tokens any more");
      }
    }
  }
  stream.end(out);
  return {};
}

SentencePieceNormalizer::Stream::Stream(const SentencePieceNormalizer& rules, bool dummy_prefix)
    : rules_(&rules),
      dummy_prefix_(dummy_prefix && rules.rules_.add_dummy_prefix),
      behind_space_(rules.rules_.remove_extra_whitespaces) {}

void SentencePieceNormalizer::Stream::push(std::string_view text, std::string& out) {
  held_ += text;
  std::size_t done = 0;
  while (done < held_.size()) {
    const Prefix prefix = rules_->next(std::string_view(held_).substr(done));
    if (!prefix.certain) {
      break;
    }
    put(prefix.text, out);
    done += prefix.length;
  }
  held_.erase(0, done);
}

void SentencePieceNormalizer::Stream::finish(std::string& out) {
  for (std::string_view rest = held_; !rest.empty();) {
    const Prefix prefix = rules_->next(rest);
    put(prefix.text, out);
    rest.remove_prefix(prefix.length);
  }
  held_.clear();
  end(out);
}

void SentencePieceNormalizer::Stream::put(std::string_view text, std::string& out) {
  const bool remove_extra = rules_->rules_.remove_extra_whitespaces;
  if (!begun_) {
    if (remove_extra && text == " ") {
      return;
    }
    begun_ = true;
    if (dummy_prefix_ && !rules_->rules_.whitespace_as_suffix) {
      put_space(out);
    }
  }
  if (behind_space_) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  }
  if (text.empty()) {
    return;
  }
  behind_space_ = remove_extra && text.ends_with(' ');
  for (std::size_t at = text.find(' '); at != std::string_view::npos; at = text.find(' ')) {
    put_visible(text.substr(0, at), out);
    put_space(out);
    text.remove_prefix(at + 1);
  }
  put_visible(text, out);
}

void SentencePieceNormalizer::Stream::put_space(std::string& out) {
  if (rules_->rules_.remove_extra_whitespaces) {
    ++spaces_;
  } else {
    out += rules_->space();
  }
}

// Text that looks like an escaped space at the end goes like one.
void SentencePieceNormalizer::Stream::put_visible(std::string_view text, std::string& out) {
  const std::string_view space = rules_->space();
  std::size_t behind = 0;
  if (rules_->rules_.remove_extra_whitespaces) {
    for (; text.ends_with(space); ++behind) {
      text.remove_suffix(space.size());
    }
  }
  if (!text.empty()) {
    for (; spaces_ != 0; --spaces_) {
      out += space;
    }
    out += text;
  }
  spaces_ += behind;
}

void SentencePieceNormalizer::Stream::end(std::string& out) {
  spaces_ = 0;
  if (begun_ && dummy_prefix_ && rules_->rules_.whitespace_as_suffix) {
    out += rules_->space();
  }
}

}  // namespace fairlead::tokenizer
