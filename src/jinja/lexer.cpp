#include "jinja/lexer.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/utf8.hpp"
#include "jinja/text.hpp"
#include "jinja/unicode.hpp"

namespace fairlead::jinja {
namespace {

struct Operator {
  std::string_view text;
  TokenType type;
};

// Longer ones first.
constexpr std::array kOperators = {
    Operator{"//", TokenType::FloorDiv}, Operator{"**", TokenType::Pow},
    Operator{"==", TokenType::Eq},       Operator{"!=", TokenType::Ne},
    Operator{">=", TokenType::GtEq},     Operator{"<=", TokenType::LtEq},
    Operator{"+", TokenType::Add},       Operator{"-", TokenType::Sub},
    Operator{"/", TokenType::Div},       Operator{"*", TokenType::Mul},
    Operator{"%", TokenType::Mod},       Operator{"~", TokenType::Tilde},
    Operator{"[", TokenType::LBracket},  Operator{"]", TokenType::RBracket},
    Operator{"(", TokenType::LParen},    Operator{")", TokenType::RParen},
    Operator{"{", TokenType::LBrace},    Operator{"}", TokenType::RBrace},
    Operator{">", TokenType::Gt},        Operator{"<", TokenType::Lt},
    Operator{"=", TokenType::Assign},    Operator{".", TokenType::Dot},
    Operator{":", TokenType::Colon},     Operator{"|", TokenType::Pipe},
    Operator{",", TokenType::Comma},     Operator{";", TokenType::Semicolon},
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') {
        ++i;
      }
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) {
    out.pop_back();
  }
  return out;
}

void append_escape(std::string& out, char32_t c) {
  const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
  out += c < 0x100 ? "\\x" : c < 0x10000 ? "\\u" : "\\U";
  for (int shift = (digits - 1) * 4; shift >= 0; shift -= 4) {
    out += "0123456789abcdef"[(c >> shift) & 0xF];
  }
}

// Jinja writes other scripts as escapes and then decodes all escapes at once, so a backslash in
// front of such a character swallows the one of its escape.
std::string to_ascii(std::string_view text) {
  std::string out;
  for (std::size_t pos = 0; pos < text.size();) {
    if (static_cast<unsigned char>(text[pos]) < 0x80) {
      out += text[pos++];
    } else {
      append_escape(out, utf8::decode(text, pos));
    }
  }
  return out;
}

// Reads up to `limit` digits of a base; the number read.
std::size_t read_digits(std::string_view text, std::size_t limit, int base, char32_t& out) {
  std::uint32_t value = 0;
  std::size_t size = 0;
  for (; size < limit && size < text.size(); ++size) {
    const char c = text[size];
    const int digit = is_digit(c)            ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : 99;
    if (digit >= base) {
      break;
    }
    value = value * static_cast<std::uint32_t>(base) + static_cast<std::uint32_t>(digit);
  }
  out = value;
  return size;
}

// Decodes Python's `unicode_escape`; nothing for a malformed escape.
std::optional<std::string> unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    if (++i == text.size()) {
      return std::nullopt;
    }
    const char c = text[i];
    char32_t point = 0;
    switch (c) {
      case '\n': continue;
      case '\\':
      case '\'':
      case '"': out += c; continue;
      case 'a': out += '\a'; continue;
      case 'b': out += '\b'; continue;
      case 'f': out += '\f'; continue;
      case 'n': out += '\n'; continue;
      case 'r': out += '\r'; continue;
      case 't': out += '\t'; continue;
      case 'v': out += '\v'; continue;
      default: break;
    }
    if (c >= '0' && c <= '7') {
      i += read_digits(text.substr(i), 3, 8, point) - 1;
      utf8::append(out, point);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t size = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      if (read_digits(text.substr(i + 1), size, 16, point) != size || point > 0x10FFFF) {
        return std::nullopt;
      }
      i += size;
      utf8::append(out, point);
    } else if (c == 'N') {
      return std::nullopt;
    } else {
      out += '\\';
      out += c;
    }
  }
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Token>> run() {
    while (pos_ < source_.size()) {
      if (auto done = root(); !done) {
        return std::unexpected(done.error());
      }
    }
    push(TokenType::Eof, {});
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(pos_); }

  void push(TokenType type, std::string_view text) {
    tokens_.push_back({type, line_, std::string(text)});
  }

  // Moves over `size` bytes and counts their lines.
  void advance(std::size_t size) {
    const std::string_view passed = rest().substr(0, size);
    line_ += static_cast<std::uint32_t>(std::ranges::count(passed, '\n'));
    if (!passed.empty()) {
      line_starting_ = passed.back() == '\n';
    }
    pos_ += size;
  }

  void data(std::string_view text) {
    if (!text.empty()) {
      push(TokenType::Data, text);
    }
  }

  // Text in front of a tag after whitespace control.
  std::string_view before_tag(std::string_view text, char sign, bool variable) const {
    if (sign == '-') {
      return text::strip(text, text::Side::Right);
    }
    if (sign == '+' || variable) {
      return text;
    }
    const std::size_t line = text.rfind('\n') + 1;  // Also right when there is none.
    if (line == 0 && !line_starting_) {
      return text;
    }
    return text::strip(text.substr(line), text::Side::Left).empty() ? text.substr(0, line) : text;
  }

  // Template text up to the next tag, and the tag.
  Result<> root() {
    const std::string_view all = rest();
    std::size_t at = 0;
    while (true) {
      at = all.find('{', at);
      if (at == std::string_view::npos || at + 1 >= all.size()) {
        data(all);
        advance(all.size());
        return {};
      }
      const char kind = all[at + 1];
      if (kind == '%' || kind == '#' || kind == '{') {
        break;
      }
      ++at;
    }
    const char kind = all[at + 1];
    if (kind == '%') {
      if (const std::size_t raw = raw_begin(all.substr(at)); raw != 0) {
        const char sign = sign_at(all, at + 2);
        data(before_tag(all.substr(0, at), sign, false));
        advance(at + raw);
        return raw_body();
      }
    }
    const char sign = sign_at(all, at + 2);
    data(before_tag(all.substr(0, at), sign, kind == '{'));
    advance(at + 2 + (sign != 0 ? 1 : 0));
    if (kind == '#') {
      return comment();
    }
    push(kind == '%' ? TokenType::BlockBegin : TokenType::VariableBegin, {});
    return expression(kind == '%');
  }

  static char sign_at(std::string_view text, std::size_t at) {
    return at < text.size() && (text[at] == '-' || text[at] == '+') ? text[at] : '\0';
  }

  static std::size_t skip_space(std::string_view text, std::size_t at) {
    while (at < text.size()) {
      std::size_t next = at;
      if (!unicode::is_space(utf8::decode(text, next))) {
        break;
      }
      at = next;
    }
    return at;
  }

  // Size of `{% raw %}` with its whitespace control; 0 when it is something else.
  static std::size_t raw_begin(std::string_view text) {
    std::size_t at = 2 + (sign_at(text, 2) != 0 ? 1 : 0);
    at = skip_space(text, at);
    if (!text.substr(at).starts_with("raw")) {
      return 0;
    }
    at = skip_space(text, at + 3);
    if (text.substr(at).starts_with("-%}")) {
      return skip_space(text, at + 3);
    }
    return text.substr(at).starts_with("%}") ? at + 2 : 0;
  }

  // Size of a closing `%}` or `#}` with what it swallows; 0 when `text` does not begin with one.
  static std::size_t close_size(std::string_view text, std::string_view end) {
    if (text.starts_with('+') && text.substr(1).starts_with(end)) {
      return 1 + end.size();
    }
    if (text.starts_with('-') && text.substr(1).starts_with(end)) {
      return skip_space(text, 1 + end.size());
    }
    if (!text.starts_with(end)) {
      return 0;
    }
    return end.size() + (text.substr(end.size()).starts_with('\n') ? 1 : 0);
  }

  Result<> raw_body() {
    const std::string_view all = rest();
    for (std::size_t at = all.find("{%"); at != std::string_view::npos;
         at = all.find("{%", at + 1)) {
      const char sign = sign_at(all, at + 2);
      std::size_t end = skip_space(all, at + 2 + (sign != 0 ? 1 : 0));
      if (!all.substr(end).starts_with("endraw")) {
        continue;
      }
      end = skip_space(all, end + 6);
      const std::size_t close = close_size(all.substr(end), "%}");
      if (close == 0) {
        continue;
      }
      data(before_tag(all.substr(0, at), sign, false));
      advance(end + close);
      return {};
    }
    return syntax_error("Missing end of raw directive", line_);
  }

  Result<> comment() {
    const std::string_view all = rest();
    const std::size_t at = all.find("#}");
    if (at == std::string_view::npos) {
      return syntax_error("Missing end of comment tag", line_);
    }
    const bool signed_end = at > 0 && (all[at - 1] == '-' || all[at - 1] == '+');
    const std::size_t begin = signed_end ? at - 1 : at;
    advance(begin + close_size(all.substr(begin), "#}"));
    return {};
  }

  // The inside of a statement or variable tag, with its end.
  Result<> expression(bool block) {
    std::string brackets;
    while (pos_ < source_.size()) {
      const std::string_view all = rest();
      if (brackets.empty()) {
        if (const std::size_t size = tag_end(all, block); size != 0) {
          push(block ? TokenType::BlockEnd : TokenType::VariableEnd, {});
          advance(size);
          return {};
        }
      }
      if (const std::size_t space = skip_space(all, 0); space != 0) {
        advance(space);
        continue;
      }
      if (const std::size_t size = number(all); size != 0) {
        continue;
      }
      if (const std::size_t size = name_size(all); size != 0) {
        push(TokenType::Name, all.substr(0, size));
        advance(size);
        continue;
      }
      auto done = all[0] == '\'' || all[0] == '"' ? string(all) : operation(all, brackets);
      if (!done) {
        return done;
      }
    }
    return {};
  }

  static std::size_t tag_end(std::string_view all, bool block) {
    if (block) {
      return close_size(all, "%}");
    }
    if (all.starts_with("-}}")) {
      return skip_space(all, 3);
    }
    return all.starts_with("}}") ? 2 : 0;
  }

  static std::size_t name_size(std::string_view all) {
    std::size_t pos = 0;
    while (pos < all.size()) {
      std::size_t next = pos;
      const std::uint16_t mask = unicode::classes(utf8::decode(all, next));
      if ((mask & (pos == 0 ? unicode::kIdStart : unicode::kIdContinue)) == 0) {
        break;
      }
      pos = next;
    }
    return pos;
  }

  // Digits that single underscores may separate; where they end.
  static std::size_t digits(std::string_view all, std::size_t at, bool (*accepts)(char)) {
    if (at >= all.size() || !accepts(all[at])) {
      return at;
    }
    while (at < all.size()) {
      if (accepts(all[at])) {
        ++at;
      } else if (all[at] == '_' && at + 1 < all.size() && accepts(all[at + 1])) {
        at += 2;
      } else {
        break;
      }
    }
    return at;
  }

  static std::size_t float_size(std::string_view all) {
    const std::size_t whole = digits(all, 0, is_digit);
    std::size_t end = whole;
    bool is_float = false;
    if (end < all.size() && all[end] == '.') {
      const std::size_t fraction = digits(all, end + 1, is_digit);
      if (fraction > end + 1) {
        end = fraction;
        is_float = true;
      }
    }
    if (end < all.size() && (all[end] == 'e' || all[end] == 'E')) {
      std::size_t exponent = end + 1;
      if (exponent < all.size() && (all[exponent] == '+' || all[exponent] == '-')) {
        ++exponent;
      }
      const std::size_t stop = digits(all, exponent, is_digit);
      if (stop > exponent) {
        return stop;
      }
    }
    return is_float ? end : 0;
  }

  static std::size_t prefixed_size(std::string_view all, char letter, bool (*accepts)(char)) {
    if (all.size() < 3 || all[0] != '0' || (all[1] | 0x20) != letter) {
      return 0;
    }
    const std::size_t begin = all[2] == '_' ? 3 : 2;
    const std::size_t end = digits(all, begin, accepts);
    return end > begin ? end : 0;
  }

  std::size_t number(std::string_view all) {
    if (!is_digit(all[0])) {
      return 0;
    }
    const bool after_dot = !tokens_.empty() && pos_ > 0 && source_[pos_ - 1] == '.';
    std::size_t size = after_dot ? 0 : float_size(all);
    TokenType type = size != 0 ? TokenType::Float : TokenType::Integer;
    if (size == 0) {
      size = integer_size(all);
    }
    std::string text;
    std::ranges::copy_if(all.substr(0, size), std::back_inserter(text),
                         [](char c) { return c != '_'; });
    push(type, text);
    advance(size);
    return size;
  }

  static std::size_t integer_size(std::string_view all) {
    const auto binary = [](char c) { return c == '0' || c == '1'; };
    const auto octal = [](char c) { return c >= '0' && c <= '7'; };
    const auto hex = [](char c) { return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); };
    for (const std::size_t size : {prefixed_size(all, 'b', binary), prefixed_size(all, 'o', octal),
                                   prefixed_size(all, 'x', hex)}) {
      if (size != 0) {
        return size;
      }
    }
    return all[0] == '0' ? digits(all, 0, [](char c) { return c == '0'; })
                         : digits(all, 0, is_digit);
  }

  Result<> string(std::string_view all) {
    std::size_t end = 1;
    while (end < all.size() && all[end] != all[0]) {
      end += all[end] == '\\' ? 2 : 1;
    }
    if (end >= all.size()) {
      return unexpected_char();
    }
    const std::string_view body = all.substr(1, end - 1);
    if (body.find('\\') == std::string_view::npos) {
      push(TokenType::String, body);
    } else {
      const auto decoded = unescape(to_ascii(body));
      if (!decoded) {
        return syntax_error("malformed escape sequence in a string", line_);
      }
      push(TokenType::String, *decoded);
    }
    advance(end + 1);
    return {};
  }

  Result<> operation(std::string_view all, std::string& brackets) {
    const auto* found = std::ranges::find_if(
        kOperators, [&](const Operator& op) { return all.starts_with(op.text); });
    if (found == kOperators.end()) {
      return unexpected_char();
    }
    const char c = found->text[0];
    if (found->type == TokenType::LBrace || found->type == TokenType::LParen ||
        found->type == TokenType::LBracket) {
      brackets += c == '{' ? '}' : c == '(' ? ')' : ']';
    } else if (found->type == TokenType::RBrace || found->type == TokenType::RParen ||
               found->type == TokenType::RBracket) {
      if (brackets.empty()) {
        return syntax_error(std::string("unexpected '") + c + "'", line_);
      }
      if (brackets.back() != c) {
        return syntax_error(
            std::string("unexpected '") + c + "', expected '" + brackets.back() + "'", line_);
      }
      brackets.pop_back();
    }
    push(found->type, {});
    advance(found->text.size());
    return {};
  }

  std::unexpected<Error> unexpected_char() const {
    std::size_t pos = 0;
    utf8::decode(rest(), pos);
    return syntax_error("unexpected char '" + std::string(rest().substr(0, pos)) + "' at " +
                            std::to_string(text::length(std::string_view(source_).substr(0, pos_))),
                        line_);
  }

  const std::string source_;
  std::size_t pos_ = 0;
  std::uint32_t line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::unexpected<Error> syntax_error(std::string message, std::uint32_t line) {
  return fail(ErrorCode::InvalidRequest,
              std::move(message) + " (line " + std::to_string(line) + ")", "chat_template");
}

std::string describe(TokenType type) {
  switch (type) {
    case TokenType::Data: return "template data / text";
    case TokenType::BlockBegin: return "begin of statement block";
    case TokenType::BlockEnd: return "end of statement block";
    case TokenType::VariableBegin: return "begin of print statement";
    case TokenType::VariableEnd: return "end of print statement";
    case TokenType::Name: return "name";
    case TokenType::String: return "string";
    case TokenType::Integer: return "integer";
    case TokenType::Float: return "float";
    case TokenType::Eof: return "end of template";
    default: break;
  }
  const auto* found =
      std::ranges::find_if(kOperators, [type](const Operator& op) { return op.type == type; });
  return found == kOperators.end() ? "token" : std::string(found->text);
}

std::string describe(const Token& token) {
  return token.type == TokenType::Name ? token.text : describe(token.type);
}

Result<std::vector<Token>> tokenize(std::string_view source) {
  constexpr std::size_t kMaxSource = std::size_t{8} << 20;
  if (source.size() > kMaxSource) {
    return fail(ErrorCode::InvalidRequest, "the template is larger than 8 MiB", "chat_template");
  }
  if (!utf8::valid(source)) {
    return fail(ErrorCode::InvalidRequest, "the template is not valid UTF-8", "chat_template");
  }
  return Lexer(normalize_newlines(source)).run();
}

}  // namespace fairlead::jinja
