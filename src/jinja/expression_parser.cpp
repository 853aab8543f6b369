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

}  // namespace fairlead::jinja
