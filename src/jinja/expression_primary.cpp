#include "jinja/expression_parser.hpp"

#include <algorithm>

namespace fairlead::jinja {

bool ExpressionParser::is_constant_name(std::string_view name) {
  return name == "true" || name == "false" || name == "none" || name == "True" || name == "False" ||
         name == "None";
}

// Names to assign to; with `attributes`, also attributes of namespaces.
template <typename ParseItem>
ExpressionParser::CommaList ExpressionParser::parse_comma_list(ParseItem parse_item) {
  CommaList list;
  while (!failed()) {
    if (!list.items.empty() && !expect(TokenType::Comma)) {
      break;
    }
    if (is_tuple_end()) {
      break;
    }
    list.items.push_back(parse_item());
    if (!at(TokenType::Comma)) {
      break;
    }
    list.last_comma = current().line;
  }
  return list;
}

ExprPtr ExpressionParser::missing_expression() {
  error("Expected an expression, got '" + describe(current()) + "'");
  return broken();
}

ExprPtr ExpressionParser::parse_target(bool attributes) {
  const std::uint32_t line = current().line;
  CommaList list = parse_comma_list([&] { return parse_target_item(attributes); });
  if (!list.last_comma) {
    return list.items.empty() ? missing_expression() : std::move(list.items[0]);
  }
  const std::uint16_t depth = depth_of(list.items);
  return finish(std::make_unique<SequenceExpr>(ExprKind::Tuple, std::move(list.items), line),
                depth);
}

ExprPtr ExpressionParser::parse_target_item(bool attributes) {
  const Nested nested(*this);
  if (failed()) {
    return broken();
  }
  const std::uint32_t line = current().line;
  if (skip(TokenType::LParen)) {
    ExprPtr inner = parse_target(false);
    expect(TokenType::RParen);
    return inner;
  }
  if (!at(TokenType::Name)) {
    error(at(TokenType::String) || at(TokenType::Integer) || at(TokenType::Float)
              ? "can't assign to 'const'"
              : "unexpected '" + describe(current()) + "'");
    return broken();
  }
  if (is_constant_name(current().text)) {
    error("can't assign to 'const'");
  }
  auto node = std::make_unique<NameExpr>(current().text, line);
  next();
  if (attributes && skip(TokenType::Dot)) {
    node->attribute = current().text;
    expect(TokenType::Name);
  }
  return node;
}

bool ExpressionParser::is_tuple_end() const {
  return at(TokenType::VariableEnd) || at(TokenType::BlockEnd) || at(TokenType::RParen);
}

ExprPtr ExpressionParser::parse_tuple(bool conditional, bool parentheses) {
  const std::uint32_t line = current().line;
  CommaList list = parse_comma_list([&] { return parse_expression(conditional); });
  if (!list.last_comma) {
    if (!list.items.empty()) {
      return std::move(list.items[0]);
    }
    if (!parentheses) {
      return missing_expression();
    }
  }
  return sequence(ExprKind::Tuple, std::move(list.items), list.last_comma.value_or(line));
}

ExprPtr ExpressionParser::parse_primary() {
  const Token& token = current();
  const std::uint32_t line = token.line;
  switch (token.type) {
    case TokenType::Name: return parse_name();
    case TokenType::String: {
      std::string text;
      for (; at(TokenType::String); next()) {
        text += current().text;
      }
      return constant(Value::string(text), line);
    }
    case TokenType::Integer: {
      next();
      return constant(integer_value(token.text), line);
    }
    case TokenType::Float: {
      next();
      return constant(Value::number(parse_float(token.text).value_or(0)), line);
    }
    case TokenType::LParen: {
      next();
      ExprPtr inner = parse_tuple(true, true);
      expect(TokenType::RParen);
      return inner;
    }
    case TokenType::LBracket: return parse_list();
    case TokenType::LBrace: return parse_dict();
    default: error("unexpected '" + describe(token) + "'"); return broken();
  }
}

Value ExpressionParser::integer_value(const std::string& text) {
  const auto value = parse_int(text, 0);
  if (!value) {
    return Value::integer(0);
  }
  if (const auto small = value->small()) {
    return Value::integer(*small);
  }
  return make<BigObject>(Kind::BigInt, *value);
}

ExprPtr ExpressionParser::parse_name() {
  const std::string name = current().text;
  const std::uint32_t line = current().line;
  next();
  if (name == "true" || name == "True") {
    return constant(Value::boolean(true), line);
  }
  if (name == "false" || name == "False") {
    return constant(Value::boolean(false), line);
  }
  if (name == "none" || name == "None") {
    return constant(Value(), line);
  }
  return std::make_unique<NameExpr>(name, line);
}

ExprPtr ExpressionParser::parse_list() {
  const std::uint32_t line = current().line;
  next();
  std::vector<ExprPtr> items;
  while (!failed() && !at(TokenType::RBracket)) {
    if (!items.empty() && !expect(TokenType::Comma)) {
      break;
    }
    if (at(TokenType::RBracket)) {
      break;
    }
    items.push_back(parse_expression());
  }
  expect(TokenType::RBracket);
  return sequence(ExprKind::List, std::move(items), line);
}

ExprPtr ExpressionParser::parse_dict() {
  const std::uint32_t line = current().line;
  next();
  std::vector<std::pair<ExprPtr, ExprPtr>> items;
  std::uint16_t depth = 0;
  bool constants = true;
  while (!failed() && !at(TokenType::RBrace)) {
    if (!items.empty() && !expect(TokenType::Comma)) {
      break;
    }
    if (at(TokenType::RBrace)) {
      break;
    }
    ExprPtr key = parse_expression();
    if (!expect(TokenType::Colon)) {
      break;
    }
    ExprPtr value = parse_expression();
    depth = std::max({depth, depth_of(key), depth_of(value)});
    constants = constants && is_const(key) && is_const(value) && hashable(const_value(key));
    items.emplace_back(std::move(key), std::move(value));
  }
  expect(TokenType::RBrace);
  if (constants && !failed()) {
    std::vector<Pair> pairs;
    for (const auto& [key, value] : items) {
      pairs.emplace_back(const_value(key), const_value(value));
    }
    return finish(constant(Value::dict(std::move(pairs)), line), depth);
  }
  return finish(std::make_unique<DictExpr>(std::move(items), line), depth);
}

}  // namespace fairlead::jinja
