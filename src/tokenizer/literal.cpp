#include "tokenizer/literal.hpp"

#include <algorithm>
#include <utility>

namespace fairlead::tokenizer {

Literal::Literal(std::string text) : text_(std::move(text)), borders_(text_.size() + 1, 0) {
  std::uint32_t border = 0;
  for (std::size_t i = 1; i < text_.size(); ++i) {
    while (border != 0 && text_[i] != text_[border]) {
      border = borders_[border];
    }
    border += text_[i] == text_[border] ? 1 : 0;
    borders_[i + 1] = border;
  }
}

void Literal::replace_in(std::string& subject, std::string_view content) const {
  std::size_t at = subject.find(text_);
  if (at == std::string::npos) {
    return;
  }
  std::string result;
  std::size_t from = 0;
  for (; at != std::string::npos; at = subject.find(text_, from)) {
    result.append(subject, from, at - from);
    result += content;
    from = at + text_.size();
  }
  result.append(subject, from);
  subject = std::move(result);
}

bool LiteralSearch::next(std::string_view& piece, std::string& out) {
  const std::string& text = literal_->text_;
  while (!piece.empty()) {
    if (matched_ == 0) {
      const std::size_t at = std::min(piece.find(text.front()), piece.size());
      out += piece.substr(0, at);
      piece.remove_prefix(at);
      if (piece.empty()) {
        return false;
      }
    }
    const char c = piece.front();
    while (matched_ != 0 && text[matched_] != c) {
      const std::size_t border = literal_->borders_[matched_];
      out.append(text, 0, matched_ - border);
      matched_ = border;
    }
    if (text[matched_] == c) {
      ++matched_;
      piece.remove_prefix(1);
      if (matched_ == text.size()) {
        matched_ = 0;
        return true;
      }
    }  // else the byte is looked at again as the first of an occurrence, or goes out
  }
  return false;
}

}  // namespace fairlead::tokenizer
