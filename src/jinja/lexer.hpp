#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "jinja/value.hpp"

namespace fairlead::jinja {

/// Kind of a token.
enum class TokenType : std::uint8_t {
  Data,
  BlockBegin,
  BlockEnd,
  VariableBegin,
  VariableEnd,
  Name,
  String,
  Integer,
  Float,
  Eof,
  Add,
  Assign,
  Colon,
  Comma,
  Div,
  Dot,
  Eq,
  FloorDiv,
  Gt,
  GtEq,
  LBrace,
  LBracket,
  LParen,
  Lt,
  LtEq,
  Mod,
  Mul,
  Ne,
  Pipe,
  Pow,
  RBrace,
  RBracket,
  RParen,
  Semicolon,
  Sub,
  Tilde,
};

/// One token.
struct Token {
  TokenType type = TokenType::Eof;  ///< Its kind.
  std::uint32_t line = 1;           ///< Where it begins.
  std::string text;                 ///< Name, string value, or digits of a number.
};

/// How error messages name a token.
std::string describe(const Token& token);
/// How error messages name a kind of token.
std::string describe(TokenType type);

/// Splits a template as Jinja's lexer does with `trim_blocks` and `lstrip_blocks`: whitespace
/// control, raw blocks and comments are gone from the result. The last token is `Eof`.
Result<std::vector<Token>> tokenize(std::string_view source);

/// An error at a line.
std::unexpected<Error> syntax_error(std::string message, std::uint32_t line);

}  // namespace fairlead::jinja
