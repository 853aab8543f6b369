#include "jinja/expression_parser.hpp"

#include <algorithm>

namespace fairlead::jinja {
namespace {

// Each is compared with those before it.
constexpr std::size_t kMaxNamedArgs = 1000;

}  // namespace

ExprPtr ExpressionParser::parse_postfix(ExprPtr node) {
  while (!failed()) {
    if (at(TokenType::Dot) || at(TokenType::LBracket)) {
      node = parse_subscript(std::move(node));
    } else if (at(TokenType::LParen)) {
      node = parse_call(std::move(node));
    } else {
      break;
    }
  }
  return node;
}

ExprPtr ExpressionParser::parse_filter_expr(ExprPtr node) {
  while (!failed()) {
    if (at(TokenType::Pipe)) {
      node = parse_filters(std::move(node), false);
    } else if (at_name("is")) {
      node = parse_test(std::move(node));
    } else if (at(TokenType::LParen)) {
      node = parse_call(std::move(node));
    } else {
      break;
    }
  }
  return node;
}

ExprPtr ExpressionParser::get_item(ExprPtr object, ExprPtr key, std::uint32_t line) {
  const std::uint16_t depth = std::max(depth_of(object), depth_of(key));
  return finish(std::make_unique<GetItemExpr>(std::move(object), std::move(key), line), depth);
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr node) {
  const std::uint32_t line = current().line;
  if (skip(TokenType::Dot)) {
    const Token& token = current();
    if (token.type == TokenType::Name) {
      next();
      const std::uint16_t depth = depth_of(node);
      return finish(std::make_unique<GetAttrExpr>(std::move(node), token.text, line), depth);
    }
    if (token.type != TokenType::Integer) {
      error("expected name or number");
      return node;
    }
    next();
    return get_item(std::move(node), constant(integer_value(token.text), token.line), line);
  }
  next();
  std::vector<ExprPtr> keys;
  while (!failed() && !at(TokenType::RBracket)) {
    if (!keys.empty() && !expect(TokenType::Comma)) {
      break;
    }
    keys.push_back(parse_subscribed());
  }
  expect(TokenType::RBracket);
  if (keys.size() == 1) {
    return get_item(std::move(node), std::move(keys[0]), line);
  }
  if (std::ranges::any_of(keys, [](const ExprPtr& key) { return key->kind == ExprKind::Slice; })) {
    error("slices inside a tuple of indices are not supported", line);
    return node;
  }
  return get_item(std::move(node), sequence(ExprKind::Tuple, std::move(keys), line), line);
}

ExprPtr ExpressionParser::parse_subscribed() {
  const std::uint32_t line = current().line;
  const auto at_end = [this] { return at(TokenType::RBracket) || at(TokenType::Comma); };
  ExprPtr start;
  if (!at(TokenType::Colon)) {
    start = parse_expression();
    if (!at(TokenType::Colon)) {
      return start;
    }
  }
  next();
  ExprPtr stop;
  ExprPtr step;
  if (!at(TokenType::Colon) && !at_end()) {
    stop = parse_expression();
  }
  if (skip(TokenType::Colon) && !at_end()) {
    step = parse_expression();
  }
  const std::uint16_t depth = std::max({depth_of(start), depth_of(stop), depth_of(step)});
  return finish(
      std::make_unique<SliceExpr>(std::move(start), std::move(stop), std::move(step), line), depth);
}

ArgExprs ExpressionParser::parse_args() {
  const std::uint32_t line = current().line;
  ArgExprs args;
  next();
  bool comma = false;
  while (!failed() && !at(TokenType::RParen)) {
    if (comma) {
      if (!expect(TokenType::Comma)) {
        break;
      }
      if (at(TokenType::RParen)) {
        break;
      }
    }
    bool valid = true;
    if (skip(TokenType::Mul)) {
      valid = !args.star && !args.double_star;
      args.star = parse_expression();
    } else if (skip(TokenType::Pow)) {
      valid = !args.double_star;
      args.double_star = parse_expression();
    } else if (at(TokenType::Name) && look().type == TokenType::Assign) {
      valid = !args.double_star;
      const std::string name = current().text;
      next();
      next();
      if (std::ranges::any_of(args.named, [&](const auto& arg) { return arg.first == name; })) {
        error("keyword argument repeated: " + name, line);
      }
      if (args.named.size() == kMaxNamedArgs) {
        error("a call has too many named arguments", line);
      }
      args.named.emplace_back(name, parse_expression());
    } else {
      valid = !args.star && !args.double_star && args.named.empty();
      args.positional.push_back(parse_expression());
    }
    if (!valid) {
      error("invalid syntax for function call expression", line);
    }
    comma = true;
  }
  expect(TokenType::RParen);
  return args;
}

ExprPtr ExpressionParser::parse_call(ExprPtr callee) {
  const std::uint32_t line = current().line;
  ArgExprs args = parse_args();
  const std::uint16_t depth = std::max(depth_of(callee), depth_of(args));
  return finish(std::make_unique<CallExpr>(std::move(callee), std::move(args), line), depth);
}

std::string ExpressionParser::parse_dotted_name() {
  std::string name = current().text;
  if (!expect(TokenType::Name)) {
    return name;
  }
  while (skip(TokenType::Dot)) {
    name += "." + current().text;
    if (!expect(TokenType::Name)) {
      break;
    }
  }
  return name;
}

// Filters after `node` (null: the text of a block); with `inline_start`, the first one has no
// bar before it.
ExprPtr ExpressionParser::parse_filters(ExprPtr node, bool inline_start) {
  while (!failed() && (at(TokenType::Pipe) || inline_start)) {
    if (!inline_start) {
      next();
    }
    inline_start = false;
    const std::uint32_t line = current().line;
    std::string name = parse_dotted_name();
    ArgExprs args;
    if (at(TokenType::LParen)) {
      args = parse_args();
    }
    const std::uint16_t depth = std::max(depth_of(node), depth_of(args));
    node = finish(std::make_unique<BuiltinExpr>(ExprKind::Filter, std::move(node), std::move(name),
                                                std::move(args), line),
                  depth);
  }
  return node;
}

bool ExpressionParser::at_test_argument() const {
  switch (current().type) {
    case TokenType::Name:
      return current().text != "else" && current().text != "or" && current().text != "and";
    case TokenType::String:
    case TokenType::Integer:
    case TokenType::Float:
    case TokenType::LBracket:
    case TokenType::LBrace: return true;
    default: return false;
  }
}

ExprPtr ExpressionParser::parse_test(ExprPtr node) {
  const std::uint32_t line = current().line;
  next();
  const bool negated = skip_name("not");
  std::string name = parse_dotted_name();
  ArgExprs args;
  if (at(TokenType::LParen)) {
    args = parse_args();
  } else if (at_test_argument()) {
    if (at_name("is")) {
      error("You cannot chain multiple tests with is");
    }
    args.positional.push_back(parse_postfix(parse_primary()));
  }
  const std::uint16_t depth = std::max(depth_of(node), depth_of(args));
  node = finish(std::make_unique<BuiltinExpr>(ExprKind::Test, std::move(node), std::move(name),
                                              std::move(args), line),
                depth);
  return negated ? unary(ExprKind::Not, std::move(node), line) : std::move(node);
}

}  // namespace fairlead::jinja
