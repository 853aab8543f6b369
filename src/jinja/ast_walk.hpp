#pragma once

#include "jinja/ast.hpp"

namespace fairlead::jinja {

/// Calls `visit` on each argument.
template <class Visit>
void each_arg(const ArgExprs& args, Visit visit) {
  for (const ExprPtr& arg : args.positional) {
    visit(*arg);
  }
  for (const auto& [name, value] : args.named) {
    visit(*value);
  }
  for (const ExprPtr* extra : {&args.star, &args.double_star}) {
    if (*extra) {
      visit(**extra);
    }
  }
}

/// Calls `visit` on each direct subexpression.
template <class Visit>
void each_child(const Expr& expr, Visit visit) {
  const auto maybe = [&visit](const ExprPtr& child) {
    if (child) {
      visit(*child);
    }
  };
  switch (expr.kind) {
    case ExprKind::Const:
    case ExprKind::Name: break;
    case ExprKind::Tuple:
    case ExprKind::List:
      for (const ExprPtr& item : static_cast<const SequenceExpr&>(expr).items) {
        visit(*item);
      }
      break;
    case ExprKind::Dict:
      for (const auto& [key, value] : static_cast<const DictExpr&>(expr).items) {
        visit(*key);
        visit(*value);
      }
      break;
    case ExprKind::Not:
    case ExprKind::Negate:
    case ExprKind::Positive: visit(*static_cast<const UnaryExpr&>(expr).operand); break;
    case ExprKind::Binary:
    case ExprKind::And:
    case ExprKind::Or:
      visit(*static_cast<const BinaryExpr&>(expr).left);
      visit(*static_cast<const BinaryExpr&>(expr).right);
      break;
    case ExprKind::Concat:
      for (const ExprPtr& part : static_cast<const ConcatExpr&>(expr).parts) {
        visit(*part);
      }
      break;
    case ExprKind::Compare:
      visit(*static_cast<const CompareExpr&>(expr).first);
      for (const auto& [op, operand] : static_cast<const CompareExpr&>(expr).links) {
        visit(*operand);
      }
      break;
    case ExprKind::Conditional: {
      const auto& node = static_cast<const ConditionalExpr&>(expr);
      visit(*node.test);
      visit(*node.yes);
      maybe(node.no);
      break;
    }
    case ExprKind::GetAttr: visit(*static_cast<const GetAttrExpr&>(expr).object); break;
    case ExprKind::GetItem:
      visit(*static_cast<const GetItemExpr&>(expr).object);
      visit(*static_cast<const GetItemExpr&>(expr).key);
      break;
    case ExprKind::Slice: {
      const auto& node = static_cast<const SliceExpr&>(expr);
      maybe(node.start);
      maybe(node.stop);
      maybe(node.step);
      break;
    }
    case ExprKind::Filter:
    case ExprKind::Test:
      maybe(static_cast<const BuiltinExpr&>(expr).input);
      each_arg(static_cast<const BuiltinExpr&>(expr).args, visit);
      break;
    case ExprKind::Call:
      visit(*static_cast<const CallExpr&>(expr).callee);
      each_arg(static_cast<const CallExpr&>(expr).args, visit);
      break;
  }
}

}  // namespace fairlead::jinja
