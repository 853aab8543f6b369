#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/ast.hpp"

namespace fairlead::jinja {

/// Variables that one call of a function has (the root, a macro, a recursive loop).
struct FunctionScope {
  FunctionScope* parent = nullptr;  ///< The function around it.
  std::uint32_t slots = 0;          ///< Variables so far.
  bool captured = false;            ///< Something inside keeps them.
};

/// Where a variable of a scope gets its first value from.
enum class Origin : std::uint8_t {
  Parameter,  ///< It is assigned before anything reads it.
  Context,    ///< The template's context.
  Alias,      ///< The variable of that name around the scope.
  Unset,      ///< Nowhere.
};

/// The names of one scope. Which names a scope has, and where each gets its first value from,
/// follows Jinja's compiler; branches are analysed on copies and merged.
struct Symbols {
  /// Entries that are copied before a template counts as hostile; real ones take a few thousand.
  static constexpr std::uint64_t kMaxWork = 200'000;

  Symbols(const Symbols* outer, FunctionScope* of) : Symbols(outer, of, outer->work) {}
  Symbols(const Symbols* outer, FunctionScope* of, std::uint64_t* copied)
      : parent(outer), function(of), work(copied) {}

  /// True when a scope around this one has the name.
  bool has_outer(std::string_view name) const;
  /// The name is read.
  void load(const std::string& name);
  /// The name is assigned.
  void store(const std::string& name);
  /// The name is a parameter.
  void declare(const std::string& name);
  /// Takes over what the branches of a condition did to copies of this scope.
  void merge(const std::vector<Symbols>& branches);

  const Symbols* parent;                             ///< The scope around it.
  FunctionScope* function;                           ///< Whose variables these are.
  std::uint64_t* work;                               ///< Counts copied entries, over all scopes.
  std::map<std::string, Origin, std::less<>> names;  ///< Names and first values.
  std::set<std::string, std::less<>> stores;         ///< Names assigned here.
  mutable std::map<std::string, std::uint32_t, std::less<>> slots;  ///< Places given so far.
};

/// Collects the names that a piece of code reads and assigns, inner scopes included.
struct NameVisitor {
  std::set<std::string, std::less<>> loads;   ///< Names read.
  std::set<std::string, std::less<>> stores;  ///< Names assigned.

  /// Walks an expression. Likewise below.
  void expr(const Expr& node);
  /// Walks an expression that may be null.
  void maybe(const ExprPtr& node);
  /// Walks the target of an assignment.
  void target(const Expr& node);
  /// Walks a macro.
  void code(const MacroBody& macro);
  /// Walks statements.
  void body(const Body& statements);
  /// Walks a statement.
  void statement(const Statement& node);
};

/// Enters the names of one scope into its symbols, without inner scopes.
class Analyser {
 public:
  /// Works on `symbols`.
  explicit Analyser(Symbols& symbols) : symbols_(&symbols) {}

  /// Enters an expression. Likewise below.
  void expr(const Expr& node);
  /// Enters an expression that may be null.
  void maybe(const ExprPtr& node);
  /// Enters the target of an assignment, or of a parameter.
  void target(const Expr& node, bool parameter);
  /// Enters statements.
  void body(const Body& statements);
  /// Enters a macro's parameters and statements.
  void code(const MacroBody& macro);

 private:
  void statement(const Statement& node);
  void branch(const IfStatement& node, std::size_t first);

  Symbols* symbols_;
};

}  // namespace fairlead::jinja
