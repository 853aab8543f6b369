#include "jinja/expression_parser.hpp"

#include <algorithm>

namespace fairlead::jinja {

ExprPtr ExpressionParser::parse_expression(bool conditional) {
  const Nested nested(*this);
  if (failed()) {
    return broken();
  }
  return conditional ? parse_conditional() : parse_or();
}

ExprPtr ExpressionParser::parse_conditional() {
  std::uint32_t line = current().line;
  ExprPtr yes = parse_or();
  while (!failed() && skip_name("if")) {
    ExprPtr test = parse_or();
    ExprPtr no = skip_name("else") ? parse_expression() : nullptr;
    const std::uint16_t depth = std::max({depth_of(test), depth_of(yes), depth_of(no)});
    yes = finish(
        std::make_unique<ConditionalExpr>(std::move(test), std::move(yes), std::move(no), line),
        depth);
    line = current().line;
  }
  return yes;
}

ExprPtr ExpressionParser::binary(ExprKind kind, Arithmetic op, ExprPtr left, ExprPtr right,
                                 std::uint32_t line) {
  const std::uint16_t depth = std::max(depth_of(left), depth_of(right));
  return finish(std::make_unique<BinaryExpr>(kind, op, std::move(left), std::move(right), line),
                depth);
}

ExprPtr ExpressionParser::parse_or() {
  const std::uint32_t line = current().line;
  ExprPtr left = parse_and();
  while (!failed() && skip_name("or")) {
    left = binary(ExprKind::Or, Arithmetic::Add, std::move(left), parse_and(), line);
  }
  return left;
}

ExprPtr ExpressionParser::parse_and() {
  const std::uint32_t line = current().line;
  ExprPtr left = parse_not();
  while (!failed() && skip_name("and")) {
    left = binary(ExprKind::And, Arithmetic::Add, std::move(left), parse_not(), line);
  }
  return left;
}

ExprPtr ExpressionParser::parse_not() {
  if (!at_name("not")) {
    return parse_compare();
  }
  const Nested nested(*this);
  if (failed()) {
    return broken();
  }
  const std::uint32_t line = current().line;
  next();
  return unary(ExprKind::Not, parse_not(), line);
}

ExprPtr ExpressionParser::unary(ExprKind kind, ExprPtr operand, std::uint32_t line) {
  const std::uint16_t depth = depth_of(operand);
  return finish(std::make_unique<UnaryExpr>(kind, std::move(operand), line), depth);
}

std::optional<CompareOp> ExpressionParser::compare_operator() {
  switch (current().type) {
    case TokenType::Eq: next(); return CompareOp::Eq;
    case TokenType::Ne: next(); return CompareOp::Ne;
    case TokenType::Lt: next(); return CompareOp::Lt;
    case TokenType::LtEq: next(); return CompareOp::LtEq;
    case TokenType::Gt: next(); return CompareOp::Gt;
    case TokenType::GtEq: next(); return CompareOp::GtEq;
    default: break;
  }
  if (skip_name("in")) {
    return CompareOp::In;
  }
  if (at_name("not") && look().type == TokenType::Name && look().text == "in") {
    next();
    next();
    return CompareOp::NotIn;
  }
  return std::nullopt;
}

ExprPtr ExpressionParser::parse_compare() {
  const std::uint32_t line = current().line;
  ExprPtr first = parse_sum();
  std::unique_ptr<CompareExpr> node;
  std::uint16_t depth = depth_of(first);
  while (!failed()) {
    const auto op = compare_operator();
    if (!op) {
      break;
    }
    if (!node) {
      node = std::make_unique<CompareExpr>(std::move(first), line);
    }
    ExprPtr operand = parse_sum();
    depth = std::max(depth, depth_of(operand));
    node->links.emplace_back(*op, std::move(operand));
  }
  return node ? finish(std::move(node), depth) : std::move(first);
}

ExprPtr ExpressionParser::parse_sum() {
  const std::uint32_t line = current().line;
  ExprPtr left = parse_concat();
  while (!failed() && (at(TokenType::Add) || at(TokenType::Sub))) {
    const Arithmetic op = at(TokenType::Add) ? Arithmetic::Add : Arithmetic::Subtract;
    next();
    left = binary(ExprKind::Binary, op, std::move(left), parse_concat(), line);
  }
  return left;
}

ExprPtr ExpressionParser::parse_concat() {
  const std::uint32_t line = current().line;
  std::vector<ExprPtr> parts;
  parts.push_back(parse_product());
  while (!failed() && skip(TokenType::Tilde)) {
    parts.push_back(parse_product());
  }
  if (parts.size() == 1) {
    return std::move(parts[0]);
  }
  const std::uint16_t depth = depth_of(parts);
  return finish(std::make_unique<ConcatExpr>(std::move(parts), line), depth);
}

ExprPtr ExpressionParser::parse_product() {
  const std::uint32_t line = current().line;
  ExprPtr left = parse_power();
  while (!failed()) {
    Arithmetic op = Arithmetic::Multiply;
    if (at(TokenType::Div)) {
      op = Arithmetic::Divide;
    } else if (at(TokenType::FloorDiv)) {
      op = Arithmetic::FloorDivide;
    } else if (at(TokenType::Mod)) {
      op = Arithmetic::Modulo;
    } else if (!at(TokenType::Mul)) {
      break;
    }
    next();
    left = binary(ExprKind::Binary, op, std::move(left), parse_power(), line);
  }
  return left;
}

ExprPtr ExpressionParser::parse_power() {
  const std::uint32_t line = current().line;
  ExprPtr left = parse_unary();
  while (!failed() && skip(TokenType::Pow)) {
    left = binary(ExprKind::Binary, Arithmetic::Power, std::move(left), parse_unary(), line);
  }
  return left;
}

ExprPtr ExpressionParser::parse_unary(bool with_filter) {
  const Nested nested(*this);
  if (failed()) {
    return broken();
  }
  const std::uint32_t line = current().line;
  ExprPtr node;
  if (skip(TokenType::Sub)) {
    node = unary(ExprKind::Negate, parse_unary(false), line);
  } else if (skip(TokenType::Add)) {
    node = unary(ExprKind::Positive, parse_unary(false), line);
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filter ? parse_filter_expr(std::move(node)) : std::move(node);
}

}  // namespace fairlead::jinja
