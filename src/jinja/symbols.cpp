#include "jinja/symbols.hpp"

#include "jinja/ast_walk.hpp"

namespace fairlead::jinja {

bool Symbols::has_outer(std::string_view name) const {
  for (const Symbols* scope = parent; scope != nullptr; scope = scope->parent) {
    if (scope->names.contains(name)) {
      return true;
    }
  }
  return false;
}

void Symbols::load(const std::string& name) {
  if (!names.contains(name) && !has_outer(name)) {
    names.emplace(name, Origin::Context);
  }
}

void Symbols::store(const std::string& name) {
  stores.insert(name);
  if (!names.contains(name)) {
    names.emplace(name, has_outer(name) ? Origin::Alias : Origin::Unset);
  }
}

void Symbols::declare(const std::string& name) {
  stores.insert(name);
  names[name] = Origin::Parameter;
}

void Symbols::merge(const std::vector<Symbols>& branches) {
  std::set<std::string, std::less<>> fresh;
  for (const Symbols& branch : branches) {
    fresh.insert(branch.stores.begin(), branch.stores.end());
  }
  for (const std::string& name : stores) {
    fresh.erase(name);
  }
  for (const Symbols& branch : branches) {
    for (const auto& [name, origin] : branch.names) {
      names[name] = origin;
    }
    stores.insert(branch.stores.begin(), branch.stores.end());
  }
  for (const std::string& name : fresh) {
    names[name] = has_outer(name) ? Origin::Alias : Origin::Context;
  }
}

void NameVisitor::expr(const Expr& node) {
  if (node.kind == ExprKind::Name) {
    loads.insert(static_cast<const NameExpr&>(node).name);
  }
  each_child(node, [this](const Expr& child) { expr(child); });
}

void NameVisitor::maybe(const ExprPtr& node) {
  if (node) {
    expr(*node);
  }
}

void NameVisitor::target(const Expr& node) {
  if (node.kind == ExprKind::Name) {
    const auto& name = static_cast<const NameExpr&>(node);
    (name.attribute.empty() ? stores : loads).insert(name.name);
    return;
  }
  each_child(node, [this](const Expr& child) { target(child); });
}

void NameVisitor::code(const MacroBody& macro) {
  for (const auto& parameter : macro.parameters) {
    maybe(parameter.otherwise);
  }
  body(macro.body);
}

void NameVisitor::body(const Body& statements) {
  for (const auto& node : statements) {
    statement(*node);
  }
}

void NameVisitor::statement(const Statement& node) {
  switch (node.kind) {
    case StatementKind::Output:
      for (const OutputPart& part : static_cast<const OutputStatement&>(node).parts) {
        maybe(part.expr);
      }
      break;
    case StatementKind::If: {
      const auto& branch = static_cast<const IfStatement&>(node);
      for (const auto& [test, statements] : branch.branches) {
        expr(*test);
        body(statements);
      }
      body(branch.otherwise);
      break;
    }
    case StatementKind::For: {
      const auto& loop = static_cast<const ForStatement&>(node);
      target(*loop.target);
      expr(*loop.iterable);
      maybe(loop.test);
      body(loop.body);
      body(loop.otherwise);
      break;
    }
    case StatementKind::Set:
      target(*static_cast<const SetStatement&>(node).target);
      expr(*static_cast<const SetStatement&>(node).value);
      break;
    case StatementKind::SetBlock:
      target(*static_cast<const SetBlockStatement&>(node).target);
      maybe(static_cast<const SetBlockStatement&>(node).filter);
      body(static_cast<const SetBlockStatement&>(node).body);
      break;
    case StatementKind::Macro: code(static_cast<const MacroStatement&>(node).code); break;
    case StatementKind::CallBlock:
      expr(*static_cast<const CallBlockStatement&>(node).call);
      code(static_cast<const CallBlockStatement&>(node).code);
      break;
    case StatementKind::FilterBlock:
      expr(*static_cast<const FilterBlockStatement&>(node).filter);
      body(static_cast<const FilterBlockStatement&>(node).body);
      break;
    case StatementKind::With:
      for (const auto& [name, value] : static_cast<const WithStatement&>(node).assignments) {
        expr(*value);
      }
      body(static_cast<const WithStatement&>(node).body);
      break;
    case StatementKind::Scope: body(static_cast<const ScopeStatement&>(node).body); break;
    case StatementKind::Break:
    case StatementKind::Continue:
    case StatementKind::Unavailable: break;
  }
}

void Analyser::expr(const Expr& node) {
  if (node.kind == ExprKind::Name) {
    symbols_->load(static_cast<const NameExpr&>(node).name);
  }
  each_child(node, [this](const Expr& child) { expr(child); });
}

void Analyser::maybe(const ExprPtr& node) {
  if (node) {
    expr(*node);
  }
}

void Analyser::target(const Expr& node, bool parameter) {
  if (node.kind != ExprKind::Name) {
    each_child(node, [&](const Expr& child) { target(child, parameter); });
    return;
  }
  const auto& name = static_cast<const NameExpr&>(node);
  if (!name.attribute.empty()) {
    symbols_->load(name.name);
  } else if (parameter) {
    symbols_->declare(name.name);
  } else {
    symbols_->store(name.name);
  }
}

void Analyser::body(const Body& statements) {
  for (const auto& node : statements) {
    statement(*node);
  }
}

void Analyser::code(const MacroBody& macro) {
  for (const auto& parameter : macro.parameters) {
    symbols_->declare(parameter.name);
  }
  for (const auto& parameter : macro.parameters) {
    maybe(parameter.otherwise);
  }
  body(macro.body);
}

void Analyser::statement(const Statement& node) {
  switch (node.kind) {
    case StatementKind::Output:
      for (const OutputPart& part : static_cast<const OutputStatement&>(node).parts) {
        maybe(part.expr);
      }
      break;
    case StatementKind::If: branch(static_cast<const IfStatement&>(node), 0); break;
    case StatementKind::For: expr(*static_cast<const ForStatement&>(node).iterable); break;
    case StatementKind::Set:
      expr(*static_cast<const SetStatement&>(node).value);
      target(*static_cast<const SetStatement&>(node).target, false);
      break;
    case StatementKind::SetBlock:
      target(*static_cast<const SetBlockStatement&>(node).target, false);
      break;
    case StatementKind::Macro:
      symbols_->store(static_cast<const MacroStatement&>(node).code.name);
      break;
    case StatementKind::CallBlock: expr(*static_cast<const CallBlockStatement&>(node).call); break;
    case StatementKind::FilterBlock:
      expr(*static_cast<const FilterBlockStatement&>(node).filter);
      break;
    case StatementKind::With:
      for (const auto& [name, value] : static_cast<const WithStatement&>(node).assignments) {
        expr(*value);
      }
      break;
    case StatementKind::Scope:
    case StatementKind::Break:
    case StatementKind::Continue:
    case StatementKind::Unavailable: break;
  }
}

// Jinja sees each `elif` as an `if` of its own inside the list of them.
void Analyser::branch(const IfStatement& node, std::size_t first) {
  Symbols* original = symbols_;
  expr(*node.branches[first].first);
  constexpr std::size_t kCopies = 3;
  *original->work += kCopies * (1 + original->names.size() + original->stores.size());
  if (*original->work > Symbols::kMaxWork) {
    return;
  }
  std::vector<Symbols> copies(kCopies, *original);
  symbols_ = copies.data();
  body(node.branches[first].second);
  symbols_ = &copies[1];
  if (first == 0) {
    for (std::size_t i = 1; i < node.branches.size(); ++i) {
      branch(node, i);
    }
  }
  symbols_ = &copies[2];
  if (first == 0) {
    body(node.otherwise);
  }
  symbols_ = original;
  symbols_->merge(copies);
}

}  // namespace fairlead::jinja
