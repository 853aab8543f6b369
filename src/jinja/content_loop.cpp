#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/ast.hpp"
#include "jinja/template.hpp"

namespace fairlead::jinja {
namespace {

bool is_name(const Expr& expr, std::string_view name) {
  return expr.kind == ExprKind::Name && static_cast<const NameExpr&>(expr).name == name;
}

bool is_key(const Expr& expr, std::string_view key) {
  if (expr.kind != ExprKind::Const) {
    return false;
  }
  const Value& value = static_cast<const ConstExpr&>(expr).value;
  return value.is_string() && value.text() == key;
}

// The variable itself or its attribute `key`, possibly filtered, tested or sliced.
bool reads(const Expr& expr, std::string_view variable, std::string_view key) {
  if (expr.kind == ExprKind::Filter || expr.kind == ExprKind::Test) {
    const auto& input = static_cast<const BuiltinExpr&>(expr).input;
    return input != nullptr && reads(*input, variable, key);
  }
  if (expr.kind == ExprKind::GetItem) {
    const auto& item = static_cast<const GetItemExpr&>(expr);
    if (item.key->kind == ExprKind::Slice) {
      return reads(*item.object, variable, key);
    }
    return !key.empty() && is_name(*item.object, variable) && is_key(*item.key, key);
  }
  if (key.empty()) {
    return is_name(expr, variable);
  }
  if (expr.kind != ExprKind::GetAttr) {
    return false;
  }
  const auto& attribute = static_cast<const GetAttrExpr&>(expr);
  return is_name(*attribute.object, variable) && attribute.name == key;
}

struct Found {
  std::vector<const SetStatement*> sets;
  std::vector<const ForStatement*> loops;

  void body(const Body& statements) {
    for (const auto& statement : statements) {
      visit(*statement);
    }
  }

  void visit(const Statement& node) {
    switch (node.kind) {
      case StatementKind::If:
        for (const auto& [test, statements] : static_cast<const IfStatement&>(node).branches) {
          body(statements);
        }
        body(static_cast<const IfStatement&>(node).otherwise);
        break;
      case StatementKind::For:
        loops.push_back(&static_cast<const ForStatement&>(node));
        body(loops.back()->body);
        body(static_cast<const ForStatement&>(node).otherwise);
        break;
      case StatementKind::Set: sets.push_back(&static_cast<const SetStatement&>(node)); break;
      case StatementKind::SetBlock: body(static_cast<const SetBlockStatement&>(node).body); break;
      case StatementKind::Macro: body(static_cast<const MacroStatement&>(node).code.body); break;
      case StatementKind::CallBlock:
        body(static_cast<const CallBlockStatement&>(node).code.body);
        break;
      case StatementKind::FilterBlock:
        body(static_cast<const FilterBlockStatement&>(node).body);
        break;
      case StatementKind::With: body(static_cast<const WithStatement&>(node).body); break;
      case StatementKind::Scope: body(static_cast<const ScopeStatement&>(node).body); break;
      case StatementKind::Output:
      case StatementKind::Break:
      case StatementKind::Continue:
      case StatementKind::Unavailable: break;
    }
  }
};

// `messages` and every variable that is set to it or to a part of it.
std::vector<std::string> names_of_messages(const Found& found) {
  constexpr std::size_t kMaxNames = 64;
  std::vector<std::string> names = {"messages"};
  std::deque<std::string> open = {"messages"};
  while (!open.empty() && names.size() < kMaxNames) {
    const std::string name = open.front();
    open.pop_front();
    for (const SetStatement* set : found.sets) {
      if (set->target->kind == ExprKind::Name && reads(*set->value, name, {})) {
        const std::string& target = static_cast<const NameExpr&>(*set->target).name;
        names.push_back(target);
        if (target != name) {
          open.push_back(target);
        }
      }
    }
  }
  return names;
}

}  // namespace

bool Template::loops_over_content() const {
  Found found;
  found.body(program_->body);
  std::vector<std::string> messages;
  for (const std::string& name : names_of_messages(found)) {
    for (const ForStatement* loop : found.loops) {
      if (loop->target->kind == ExprKind::Name && reads(*loop->iterable, name, {})) {
        messages.push_back(static_cast<const NameExpr&>(*loop->target).name);
      }
    }
  }
  for (const ForStatement* loop : found.loops) {
    if (loop->target->kind != ExprKind::Name) {
      continue;
    }
    // Newer templates hand the content to a macro whose parameter has this name.
    if (is_name(*loop->iterable, "content")) {
      return true;
    }
    for (const std::string& message : messages) {
      if (reads(*loop->iterable, message, "content")) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace fairlead::jinja
