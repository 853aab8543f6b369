#include "jinja/resolver.hpp"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "jinja/ast_walk.hpp"
#include "jinja/lexer.hpp"
#include "jinja/symbols.hpp"

namespace fairlead::jinja {
namespace {

// Filters of Jinja that are not provided; using one fails when it is reached.
constexpr std::string_view kKnownFilters[] = {"pprint", "striptags", "urlize", "wordwrap"};

// What the surroundings of a statement are.
struct Place {
  bool soft = false;     // Unknown filters and tests fail only when they are reached.
  bool in_loop = false;  // Jumps are allowed.
};

class Resolver {
 public:
  explicit Resolver(Program& program) : program_(program) {}

  Result<> run() {
    FunctionScope root;
    Symbols symbols{nullptr, &root, &work_};
    Analyser(symbols).body(program_.body);
    program_.loads = finish(symbols);
    body(program_.body, symbols, {});
    program_.slots = root.slots;
    if (work_ > Symbols::kMaxWork) {
      error("the template has too many variables and conditions", 1);
    }
    if (error_) {
      return std::unexpected(*error_);
    }
    return {};
  }

 private:
  // Variables --------------------------------------------------------------------------------

  static std::uint32_t slot(const Symbols& scope, std::string_view name) {
    const auto found = scope.slots.find(name);
    if (found != scope.slots.end()) {
      return found->second;
    }
    const std::uint32_t fresh = scope.function->slots++;
    scope.slots.emplace(std::string(name), fresh);
    return fresh;
  }

  VariableRef global(const std::string& name) {
    const auto next = static_cast<std::uint32_t>(program_.globals.size());
    const auto [found, fresh] = globals_.try_emplace(name, next);
    if (fresh) {
      program_.globals.push_back(name);
    }
    return {VariableRef::kGlobal, found->second};
  }

  VariableRef reference(const Symbols* scope, const std::string& name, const FunctionScope* from) {
    for (; scope != nullptr; scope = scope->parent) {
      const auto found = scope->names.find(name);
      if (found == scope->names.end()) {
        continue;
      }
      if (found->second == Origin::Context && !scope->stores.contains(name)) {
        return global(name);
      }
      std::uint32_t up = 0;
      for (const FunctionScope* function = from; function != scope->function;
           function = function->parent) {
        ++up;
      }
      return {up, slot(*scope, name)};
    }
    return global(name);
  }

  // First values of a scope whose analysis is complete.
  Loads finish(const Symbols& scope) {
    Loads loads;
    for (const auto& [name, origin] : scope.names) {
      if (origin == Origin::Parameter ||
          (origin == Origin::Context && !scope.stores.contains(name))) {
        continue;
      }
      Load load;
      load.slot = slot(scope, name);
      if (origin != Origin::Unset) {
        load.from = Load::From::Variable;
        load.source = origin == Origin::Context ? global(name)
                                                : reference(scope.parent, name, scope.function);
      }
      loads.push_back(load);
    }
    return loads;
  }

  // Expressions ------------------------------------------------------------------------------

  void expr(Expr& node, const Symbols& scope, bool soft) {
    switch (node.kind) {
      case ExprKind::Name: {
        auto& name = static_cast<NameExpr&>(node);
        name.ref = reference(&scope, name.name, scope.function);
        return;
      }
      case ExprKind::Conditional: soft = true; break;
      case ExprKind::Filter:
      case ExprKind::Test: check_builtin(static_cast<const BuiltinExpr&>(node), soft); break;
      default: break;
    }
    each_child(node, [&](Expr& child) { expr(child, scope, soft); });
  }
  void maybe(const ExprPtr& node, const Symbols& scope, bool soft) {
    if (node) {
      expr(*node, scope, soft);
    }
  }

  void check_builtin(const BuiltinExpr& node, bool soft) {
    const bool filter = node.kind == ExprKind::Filter;
    if (node.function == nullptr && !soft &&
        !(filter && std::ranges::find(kKnownFilters, node.name) != std::end(kKnownFilters))) {
      error(std::string("No ") + (filter ? "filter" : "test") + " named '" + node.name + "'.",
            node.line);
    }
  }

  // Statements -------------------------------------------------------------------------------

  void body(Body& statements, const Symbols& scope, Place place) {
    for (const auto& node : statements) {
      statement(*node, scope, place);
    }
  }

  void statement(Statement& node, const Symbols& scope, Place place) {
    switch (node.kind) {
      case StatementKind::Output:
        for (const OutputPart& part : static_cast<OutputStatement&>(node).parts) {
          maybe(part.expr, scope, place.soft);
        }
        break;
      case StatementKind::If: if_statement(static_cast<IfStatement&>(node), scope, place); break;
      case StatementKind::For: for_statement(static_cast<ForStatement&>(node), scope, place); break;
      case StatementKind::Set:
        maybe(static_cast<SetStatement&>(node).value, scope, place.soft);
        maybe(static_cast<SetStatement&>(node).target, scope, place.soft);
        break;
      case StatementKind::SetBlock:
        set_block(static_cast<SetBlockStatement&>(node), scope, place);
        break;
      case StatementKind::Macro: {
        auto& macro = static_cast<MacroStatement&>(node);
        code(macro.code, scope, macro.line);
        macro.ref = reference(&scope, macro.code.name, scope.function);
        break;
      }
      case StatementKind::CallBlock: {
        auto& call = static_cast<CallBlockStatement&>(node);
        code(call.code, scope, call.line);
        maybe(call.call, scope, place.soft);
        break;
      }
      case StatementKind::FilterBlock:
        filter_block(static_cast<FilterBlockStatement&>(node), scope, place);
        break;
      case StatementKind::With: with(static_cast<WithStatement&>(node), scope, place); break;
      case StatementKind::Scope: {
        auto& inner = static_cast<ScopeStatement&>(node);
        Symbols symbols{&scope, scope.function};
        Analyser(symbols).body(inner.body);
        inner.loads = finish(symbols);
        body(inner.body, symbols, {false, place.in_loop && !inner.isolated});
        break;
      }
      case StatementKind::Break:
      case StatementKind::Continue:
        if (!place.in_loop) {
          error(node.kind == StatementKind::Break ? "'break' outside loop"
                                                  : "'continue' not properly in loop",
                node.line);
        }
        break;
      case StatementKind::Unavailable: break;
    }
  }

  void if_statement(IfStatement& node, const Symbols& scope, Place place) {
    place.soft = true;
    for (auto& [test, statements] : node.branches) {
      expr(*test, scope, true);
      body(statements, scope, place);
    }
    body(node.otherwise, scope, place);
  }

  void for_statement(ForStatement& node, const Symbols& scope, Place place) {
    NameVisitor names;
    names.body(node.body);
    node.uses_loop = node.recursive || names.loads.contains("loop");
    names.target(*node.target);
    names.body(node.otherwise);
    if (names.stores.contains("loop")) {
      error("Can't assign to special loop variable in for-loop target", node.line);
    }
    FunctionScope own;
    own.parent = scope.function;
    FunctionScope* function = scope.function;
    if (node.recursive) {
      function->captured = true;
      function = &own;
    }
    Symbols inner{&scope, function};
    if (node.uses_loop) {
      inner.declare("loop");
    }
    Analyser(inner).target(*node.target, true);
    Analyser(inner).body(node.body);
    node.loads = finish(inner);
    if (node.uses_loop) {
      node.loop_slot = slot(inner, "loop");
    }
    maybe(node.iterable, scope, place.soft);
    if (node.test) {
      Symbols filter{&scope, function};
      Analyser(filter).target(*node.test_target, true);
      Analyser(filter).expr(*node.test);
      expr(*node.test_target, filter, false);
      expr(*node.test, filter, false);
    }
    expr(*node.target, inner, false);
    body(node.body, inner, {false, true});
    Symbols otherwise{&scope, function};
    Analyser(otherwise).body(node.otherwise);
    node.else_loads = finish(otherwise);
    body(node.otherwise, otherwise, {false, place.in_loop && !node.recursive});
    node.slots = own.slots;
    node.captured = own.captured;
  }

  void set_block(SetBlockStatement& node, const Symbols& scope, Place place) {
    Symbols inner{&scope, scope.function};
    Analyser(inner).body(node.body);
    if (node.filter) {
      Analyser(inner).expr(*node.filter);
    }
    node.loads = finish(inner);
    body(node.body, inner, {false, place.in_loop});
    maybe(node.filter, inner, false);
    expr(*node.target, scope, place.soft);
  }

  void filter_block(FilterBlockStatement& node, const Symbols& scope, Place place) {
    Symbols inner{&scope, scope.function};
    Analyser(inner).body(node.body);
    Analyser(inner).expr(*node.filter);
    node.loads = finish(inner);
    body(node.body, inner, {false, place.in_loop});
    expr(*node.filter, inner, false);
  }

  void with(WithStatement& node, const Symbols& scope, Place place) {
    Symbols inner{&scope, scope.function};
    for (const auto& [target, value] : node.assignments) {
      Analyser(inner).target(*target, true);
    }
    Analyser(inner).body(node.body);
    node.loads = finish(inner);
    for (auto& [target, value] : node.assignments) {
      expr(*value, scope, place.soft);
      expr(*target, inner, false);
    }
    body(node.body, inner, {false, place.in_loop});
  }

  // A macro or call block: a function of its own.
  void code(MacroBody& macro, const Symbols& scope, std::uint32_t line) {
    FunctionScope own;
    own.parent = scope.function;
    scope.function->captured = true;
    Symbols inner{&scope, &own};
    const auto declared = [&macro](std::string_view name) {
      return std::ranges::find(macro.parameters, name, &MacroBody::Parameter::name);
    };
    NameVisitor names;
    names.body(macro.body);
    const auto undeclared = [&](std::string_view name) { return names.loads.contains(name); };
    const auto explicit_caller = declared("caller");
    macro.takes_caller = undeclared("caller");
    if (macro.takes_caller && explicit_caller != macro.parameters.end()) {
      if (!explicit_caller->otherwise) {
        error(
            "When defining macros or call blocks the special \"caller\" argument must be omitted "
            "or be given a default.",
            line);
      }
    } else if (macro.takes_caller) {
      inner.declare("caller");
    }
    macro.takes_kwargs = undeclared("kwargs") && declared("kwargs") == macro.parameters.end();
    macro.takes_varargs = undeclared("varargs") && declared("varargs") == macro.parameters.end();
    if (macro.takes_kwargs) {
      inner.declare("kwargs");
    }
    if (macro.takes_varargs) {
      inner.declare("varargs");
    }
    Analyser(inner).code(macro);
    macro.loads = finish(inner);
    for (auto& parameter : macro.parameters) {
      parameter.slot = slot(inner, parameter.name);
      maybe(parameter.otherwise, inner, false);
    }
    macro.caller_slot = macro.takes_caller ? slot(inner, "caller") : 0;
    macro.kwargs_slot = macro.takes_kwargs ? slot(inner, "kwargs") : 0;
    macro.varargs_slot = macro.takes_varargs ? slot(inner, "varargs") : 0;
    body(macro.body, inner, {});
    macro.slots = own.slots;
    macro.captured = own.captured;
  }

  void error(std::string message, std::uint32_t line) {
    if (!error_) {
      error_ = syntax_error(std::move(message), line).error();
    }
  }

  Program& program_;
  std::unordered_map<std::string, std::uint32_t> globals_;  // Places of the program's.
  std::uint64_t work_ = 0;
  std::optional<Error> error_;
};

}  // namespace

Result<> resolve_program(Program& program) { return Resolver(program).run(); }

}  // namespace fairlead::jinja
