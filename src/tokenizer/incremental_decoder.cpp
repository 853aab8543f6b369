#include "tokenizer/incremental_decoder.hpp"

#include <algorithm>

#include "base/utf8.hpp"

namespace fairlead::tokenizer {

namespace {

constexpr std::string_view kReplacement = "\uFFFD";

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

IncrementalDecoder::IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special_tokens,
                                       std::span<const TokenId> prompt)
    : tokenizer_(&tokenizer), skip_special_(skip_special_tokens) {
  if (const TokenDecoder* const decoder = tokenizer.decoder()) {
    stream_.emplace(*decoder, prompt_tail(prompt));
    return;
  }
  // A lead byte always begins a new character, so the last three bytes tell how the text ends.
  std::array<char, 3> tail{};
  std::size_t size = 0;
  for (std::size_t i = prompt.size(); i-- > 0 && size < tail.size();) {
    if (skipped(prompt[i])) {
      continue;
    }
    const std::string_view bytes = tokenizer.token_bytes(prompt[i]);
    for (std::size_t j = bytes.size(); j-- > 0 && size < tail.size();) {
      tail[tail.size() - ++size] = bytes[j];
    }
  }
  std::string_view text(tail.data() + tail.size() - size, size);
  while (!text.empty() && (is_continuation(text.front()) || !utf8::is_incomplete(text))) {
    text.remove_prefix(1);
  }
  std::copy(text.begin(), text.end(), pending_.begin());
  pending_size_ = text.size();
  pending_prompt_ = text.size();
}

// The spellings of those last tokens of the prompt that the stream must know.
std::vector<std::string_view> IncrementalDecoder::prompt_tail(
    std::span<const TokenId> prompt) const {
  std::vector<std::string_view> tail;
  const std::size_t wanted = tokenizer_->decoder()->prompt_tail();
  for (std::size_t i = prompt.size(); i-- > 0 && tail.size() < wanted;) {
    if (tokenizer_->is_known(prompt[i]) && !skipped(prompt[i])) {
      tail.push_back(tokenizer_->decoder_token(prompt[i]));
    }
  }
  std::ranges::reverse(tail);
  return tail;
}

// Feeds bytes to the pending character until it is complete or known to be ill-formed; returns what
// is left of them.
std::string_view IncrementalDecoder::complete_pending(std::string_view bytes, std::string& out) {
  while (pending_size_ != 0 && !bytes.empty()) {
    pending_[pending_size_] = bytes.front();
    const std::string_view character(pending_.data(), pending_size_ + 1);
    if (utf8::sequence_length(character) != 0) {
      out += character;
      pending_size_ = 0;
    } else if (utf8::is_incomplete(character)) {
      ++pending_size_;
    } else {
      // The byte begins something else; what came before is one ill-formed part, which the prompt
      // has shown already when it is all the prompt's.
      if (pending_size_ > pending_prompt_) {
        out += kReplacement;
      }
      pending_size_ = 0;
      pending_prompt_ = 0;
      return bytes;
    }
    bytes.remove_prefix(1);
  }
  if (pending_size_ == 0) {
    pending_prompt_ = 0;
  }
  return bytes;
}

void IncrementalDecoder::push(TokenId id, std::string& out) {
  if (skipped(id)) {
    return;
  }
  if (stream_) {
    if (tokenizer_->is_known(id)) {
      stream_->push(tokenizer_->decoder_token(id), out);
    }
    return;
  }
  std::string_view bytes = complete_pending(tokenizer_->token_bytes(id), out);
  while (!bytes.empty()) {
    const auto ascii_end = std::find_if(
        bytes.begin(), bytes.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
    const auto ascii = static_cast<std::size_t>(ascii_end - bytes.begin());
    out += bytes.substr(0, ascii);
    bytes.remove_prefix(ascii);
    if (bytes.empty()) {
      break;
    }
    if (utf8::is_incomplete(bytes)) {
      std::copy(bytes.begin(), bytes.end(), pending_.begin());
      pending_size_ = bytes.size();
      break;
    }
    std::size_t length = 0;
    const char32_t c = utf8::decode(bytes, length);  // U+FFFD for an ill-formed part
    utf8::append(out, c);
    bytes.remove_prefix(length);
  }
}

void IncrementalDecoder::flush(std::string& out) {
  if (stream_) {
    stream_->flush(out);
    return;
  }
  if (pending_size_ > pending_prompt_) {
    out += kReplacement;
  }
  pending_size_ = 0;
  pending_prompt_ = 0;
}

}  // namespace fairlead::tokenizer
