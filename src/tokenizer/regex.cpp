#include "tokenizer/regex.hpp"

#include <fmt/format.h>
#include <oniguruma.h>

#include "tokenizer/regex_pattern.hpp"
#include "tokenizer/utf8_valid.hpp"

namespace fairlead::tokenizer {

namespace {

// Backtracking frames of one search, about 40 bytes each.
constexpr unsigned kMaxStackFrames = 4 * 1024 * 1024;
// Backtracking steps of one search; the library's own limit is per starting position.
constexpr unsigned long kMaxRetries = 100'000'000;

const OnigUChar* bytes(const char* text) { return reinterpret_cast<const OnigUChar*>(text); }

void initialize_library() {
  static const int done = [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_set_match_stack_limit_size(kMaxStackFrames);
    onig_set_retry_limit_in_search(kMaxRetries);
    return onig_initialize(encodings, 1);
  }();
  static_cast<void>(done);
}

std::string error_text(int code, const OnigErrorInfo* info) {
  OnigUChar text[ONIG_MAX_ERROR_MESSAGE_LEN] = {};
  const int length = info != nullptr ? onig_error_code_to_str(text, code, info)
                                     : onig_error_code_to_str(text, code);
  return {reinterpret_cast<const char*>(text), static_cast<std::size_t>(length)};
}

}  // namespace

void Regex::FreePattern::operator()(re_pattern_buffer* pattern) const { onig_free(pattern); }

void Regex::Matches::FreeRegion::operator()(re_registers* region) const {
  onig_region_free(region, 1);
}

Result<Regex> Regex::compile(std::string_view pattern) {
  initialize_library();
  const Result<std::string> expanded = expand_pattern(pattern);
  if (!expanded) {
    return std::unexpected(expanded.error());
  }
  OnigRegex compiled = nullptr;
  OnigErrorInfo info{};
  const char* begin = expanded->data();
  const int code = onig_new(&compiled, bytes(begin), bytes(begin + expanded->size()),
                            ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_RUBY, &info);
  if (code != ONIG_NORMAL) {
    return fail(ErrorCode::InvalidRequest, fmt::format("regex: {}", error_text(code, &info)));
  }
  return Regex(compiled);
}

Regex::Matches::Matches(const Regex& regex, std::string_view text)
    : regex_(regex), text_(text), region_(onig_region_new()) {}

Result<bool> Regex::Matches::next(Span& match) {
  while (position_ <= text_.size()) {
    const char* begin = text_.data();
    const char* end = begin + text_.size();
    const int found =
        onig_search(regex_.pattern_.get(), bytes(begin), bytes(end), bytes(begin + position_),
                    bytes(end), region_.get(), ONIG_OPTION_NONE);
    if (found == ONIG_MISMATCH) {
      return false;
    }
    if (found < 0) {
      return fail(ErrorCode::InvalidRequest, fmt::format("regex: {}", error_text(found, nullptr)));
    }
    match = {static_cast<std::size_t>(region_->beg[0]), static_cast<std::size_t>(region_->end[0])};
    if (match.begin == match.end && match.end == last_end_) {
      position_ += position_ < text_.size()
                       ? character_length(static_cast<unsigned char>(text_[position_]))
                       : 1;
      continue;
    }
    position_ = match.end;
    last_end_ = match.end;
    return true;
  }
  return false;
}

}  // namespace fairlead::tokenizer
