#include "jinja/expression_parser.hpp"

#include <algorithm>

namespace fairlead::jinja {
namespace {

void freeze(const Value& value, std::vector<std::unique_ptr<Object>>& owner) {
  Object* object = value.object();
  if (object == nullptr || object->references < 0) {
    return;
  }
  if (value.kind() == Kind::List || value.kind() == Kind::Tuple) {
    for (const Value& item : as<ListObject>(value).items()) {
      freeze(item, owner);
    }
  } else if (value.kind() == Kind::Dict) {
    for (const auto& [key, item] : as<DictObject>(value).store().entries()) {
      freeze(key, owner);
      freeze(item, owner);
    }
  }
  object->references = -1;
  owner.emplace_back(object);
}

}  // namespace

bool ExpressionParser::at_name(std::string_view name) const {
  return at(TokenType::Name) && current().text == name;
}

bool ExpressionParser::at_any_name(Names names) const {
  return at(TokenType::Name) && std::ranges::find(names, current().text) != names.end();
}

void ExpressionParser::next() {
  if (at_ + 1 < tokens_.size()) {
    ++at_;
  }
}

bool ExpressionParser::skip(TokenType type) {
  if (!at(type)) {
    return false;
  }
  next();
  return true;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!at_name(name)) {
    return false;
  }
  next();
  return true;
}

bool ExpressionParser::expect(TokenType type) {
  if (skip(type)) {
    return true;
  }
  unexpected(describe(type));
  return false;
}

bool ExpressionParser::expect_name(std::string_view name) {
  if (skip_name(name)) {
    return true;
  }
  unexpected(std::string(name));
  return false;
}

void ExpressionParser::unexpected(const std::string& expected) {
  if (at(TokenType::Eof)) {
    error("unexpected end of template, expected '" + expected + "'.");
  } else {
    error("expected token '" + expected + "', got '" + describe(current()) + "'");
  }
}

void ExpressionParser::error(std::string message, std::uint32_t line) {
  if (!error_) {
    error_ = syntax_error(std::move(message), line).error();
  }
}

ExprPtr ExpressionParser::finish(ExprPtr node, std::uint16_t inner) {
  node->depth = static_cast<std::uint16_t>(inner + 1);
  if (node->depth > kMaxDepth) {
    error("the expression is nested too deeply", node->line);
  }
  return node;
}

std::uint16_t ExpressionParser::depth_of(const std::vector<ExprPtr>& nodes) {
  std::uint16_t depth = 0;
  for (const ExprPtr& node : nodes) {
    depth = std::max(depth, depth_of(node));
  }
  return depth;
}

std::uint16_t ExpressionParser::depth_of(const ArgExprs& args) {
  std::uint16_t depth =
      std::max({depth_of(args.positional), depth_of(args.star), depth_of(args.double_star)});
  for (const auto& [name, value] : args.named) {
    depth = std::max(depth, depth_of(value));
  }
  return depth;
}

ExprPtr ExpressionParser::constant(Value value, std::uint32_t line) {
  freeze(value, program_.constants);
  return std::make_unique<ConstExpr>(std::move(value), line);
}

bool ExpressionParser::is_const(const ExprPtr& node) {
  return node != nullptr && node->kind == ExprKind::Const;
}

const Value& ExpressionParser::const_value(const ExprPtr& node) {
  return static_cast<const ConstExpr&>(*node).value;
}

// A display; of constants only, it is a constant itself.
ExprPtr ExpressionParser::sequence(ExprKind kind, std::vector<ExprPtr> items, std::uint32_t line) {
  if (std::ranges::all_of(items, is_const) && depth_of(items) < kMaxDepth) {
    std::vector<Value> values;
    for (const ExprPtr& item : items) {
      values.push_back(const_value(item));
    }
    ExprPtr node = constant(
        kind == ExprKind::List ? Value::list(std::move(values)) : Value::tuple(std::move(values)),
        line);
    return finish(std::move(node), depth_of(items));
  }
  const std::uint16_t depth = depth_of(items);
  return finish(std::make_unique<SequenceExpr>(kind, std::move(items), line), depth);
}

bool ExpressionParser::is_constant_name(std::string_view name) {
  return name == "true" || name == "false" || name == "none" || name == "True" || name == "False" ||
         name == "None";
}

// Names to assign to; with `attributes`, also attributes of namespaces.
ExprPtr ExpressionParser::parse_target(bool attributes) {
  const std::uint32_t line = current().line;
  std::vector<ExprPtr> items;
  bool tuple = false;
  while (!failed()) {
    if (!items.empty() && !expect(TokenType::Comma)) {
      break;
    }
    if (is_tuple_end()) {
      break;
    }
    items.push_back(parse_target_item(attributes));
    if (!at(TokenType::Comma)) {
      break;
    }
    tuple = true;
  }
  if (!tuple && items.empty()) {
    error("Expected an expression, got '" + describe(current()) + "'");
    return broken();
  }
  if (!tuple) {
    return std::move(items[0]);
  }
  const std::uint16_t depth = depth_of(items);
  return finish(std::make_unique<SequenceExpr>(ExprKind::Tuple, std::move(items), line), depth);
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
  std::uint32_t line = current().line;
  std::vector<ExprPtr> items;
  bool tuple = false;
  while (!failed()) {
    if (!items.empty() && !expect(TokenType::Comma)) {
      break;
    }
    if (is_tuple_end()) {
      break;
    }
    items.push_back(parse_expression(conditional));
    if (!at(TokenType::Comma)) {
      break;
    }
    tuple = true;
    line = current().line;
  }
  if (!tuple) {
    if (!items.empty()) {
      return std::move(items[0]);
    }
    if (!parentheses) {
      error("Expected an expression, got '" + describe(current()) + "'");
      return broken();
    }
  }
  return sequence(ExprKind::Tuple, std::move(items), line);
}

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
