#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jinja/builtins.hpp"
#include "jinja/methods.hpp"
#include "jinja/ops.hpp"
#include "jinja/value.hpp"

namespace fairlead::jinja {

/// Kind of an expression.
enum class ExprKind : std::uint8_t {
  Const,
  Name,
  Tuple,
  List,
  Dict,
  Not,
  Negate,
  Positive,
  Binary,
  And,
  Or,
  Concat,
  Compare,
  Conditional,
  GetAttr,
  GetItem,
  Slice,
  Filter,
  Test,
  Call,
};

/// Where a variable lives.
struct VariableRef {
  static constexpr std::uint32_t kGlobal = 0xFFFFFFFF;  ///< `up` of a context variable.
  std::uint32_t up = 0;                                 ///< Functions to go outwards, or `kGlobal`.
  std::uint32_t slot = 0;                               ///< Place there.
};

/// An expression.
struct Expr {
  Expr(ExprKind what, std::uint32_t where) : kind(what), line(where) {}
  Expr(const Expr&) = delete;
  Expr& operator=(const Expr&) = delete;
  virtual ~Expr() = default;

  const ExprKind kind;       ///< Its class.
  std::uint16_t depth = 1;   ///< Nesting, itself included.
  const std::uint32_t line;  ///< Where it begins.
};

/// An owned expression.
using ExprPtr = std::unique_ptr<Expr>;

/// A value known when the template is read.
struct ConstExpr final : Expr {
  ConstExpr(Value constant, std::uint32_t where)
      : Expr(ExprKind::Const, where), value(std::move(constant)) {}
  Value value;  ///< Frozen.
};

/// A variable, read or (as a target) written.
struct NameExpr final : Expr {
  NameExpr(std::string what, std::uint32_t where)
      : Expr(ExprKind::Name, where), name(std::move(what)) {}
  std::string name;       ///< As written.
  std::string attribute;  ///< Of a target `name.attribute`; else empty.
  VariableRef ref;        ///< Set by the resolver.
};

/// Tuple and list displays; a tuple of names is also a target.
struct SequenceExpr final : Expr {
  SequenceExpr(ExprKind what, std::vector<ExprPtr> elements, std::uint32_t where)
      : Expr(what, where), items(std::move(elements)) {}
  std::vector<ExprPtr> items;  ///< Elements.
};

/// A dict display.
struct DictExpr final : Expr {
  DictExpr(std::vector<std::pair<ExprPtr, ExprPtr>> entries, std::uint32_t where)
      : Expr(ExprKind::Dict, where), items(std::move(entries)) {}
  std::vector<std::pair<ExprPtr, ExprPtr>> items;  ///< Keys and values.
};

/// `not`, `-`, `+`.
struct UnaryExpr final : Expr {
  UnaryExpr(ExprKind what, ExprPtr inner, std::uint32_t where)
      : Expr(what, where), operand(std::move(inner)) {}
  ExprPtr operand;  ///< What it applies to.
};

/// Arithmetic, `and`, `or`.
struct BinaryExpr final : Expr {
  BinaryExpr(ExprKind what, Arithmetic operation, ExprPtr a, ExprPtr b, std::uint32_t where)
      : Expr(what, where), op(operation), left(std::move(a)), right(std::move(b)) {}
  const Arithmetic op;  ///< Of arithmetic only.
  ExprPtr left;         ///< First operand.
  ExprPtr right;        ///< Second operand.
};

/// `a ~ b ~ c`.
struct ConcatExpr final : Expr {
  ConcatExpr(std::vector<ExprPtr> operands, std::uint32_t where)
      : Expr(ExprKind::Concat, where), parts(std::move(operands)) {}
  std::vector<ExprPtr> parts;  ///< Operands.
};

/// Comparison operators.
enum class CompareOp : std::uint8_t { Eq, Ne, Lt, LtEq, Gt, GtEq, In, NotIn };

/// A chain of comparisons.
struct CompareExpr final : Expr {
  CompareExpr(ExprPtr a, std::uint32_t where)
      : Expr(ExprKind::Compare, where), first(std::move(a)) {}
  ExprPtr first;                                     ///< Leftmost operand.
  std::vector<std::pair<CompareOp, ExprPtr>> links;  ///< Operators and what follows them.
};

/// `yes if test else no`.
struct ConditionalExpr final : Expr {
  ConditionalExpr(ExprPtr condition, ExprPtr a, ExprPtr b, std::uint32_t where)
      : Expr(ExprKind::Conditional, where),
        test(std::move(condition)),
        yes(std::move(a)),
        no(std::move(b)) {}
  ExprPtr test;  ///< Condition.
  ExprPtr yes;   ///< When it holds.
  ExprPtr no;    ///< Otherwise; null: undefined.
};

/// `object.name`.
struct GetAttrExpr final : Expr {
  GetAttrExpr(ExprPtr of, std::string attribute, std::uint32_t where)
      : Expr(ExprKind::GetAttr, where),
        object(std::move(of)),
        name(std::move(attribute)),
        method(find_method(name)) {}
  ExprPtr object;       ///< Where to look.
  std::string name;     ///< What for.
  const Method method;  ///< The method of that name.
};

/// `object[key]`.
struct GetItemExpr final : Expr {
  GetItemExpr(ExprPtr of, ExprPtr what, std::uint32_t where)
      : Expr(ExprKind::GetItem, where), object(std::move(of)), key(std::move(what)) {}
  ExprPtr object;  ///< Where to look.
  ExprPtr key;     ///< What for; a slice bypasses the attribute rules.
};

/// `start:stop:step` inside brackets.
struct SliceExpr final : Expr {
  SliceExpr(ExprPtr a, ExprPtr b, ExprPtr c, std::uint32_t where)
      : Expr(ExprKind::Slice, where), start(std::move(a)), stop(std::move(b)), step(std::move(c)) {}
  ExprPtr start;  ///< May be null, as the others.
  ExprPtr stop;   ///< Bound.
  ExprPtr step;   ///< Difference.
};

/// Arguments as written.
struct ArgExprs {
  std::vector<ExprPtr> positional;                     ///< In order.
  std::vector<std::pair<std::string, ExprPtr>> named;  ///< In order.
  ExprPtr star;                                        ///< After `*`; may be null.
  ExprPtr double_star;                                 ///< After `**`; may be null.
};

/// `input | name(args)` or `input is name(args)`.
struct BuiltinExpr final : Expr {
  BuiltinExpr(ExprKind what, ExprPtr left, std::string builtin, ArgExprs arguments,
              std::uint32_t where)
      : Expr(what, where),
        input(std::move(left)),
        name(std::move(builtin)),
        args(std::move(arguments)),
        function(what == ExprKind::Filter ? find_filter(name) : find_test(name)) {}
  ExprPtr input;           ///< Null: the text that a filter block captured.
  std::string name;        ///< Of the filter or test.
  ArgExprs args;           ///< Its arguments.
  const Builtin function;  ///< Null when there is none of that name.
};

/// `callee(args)`.
struct CallExpr final : Expr {
  CallExpr(ExprPtr what, ArgExprs arguments, std::uint32_t where)
      : Expr(ExprKind::Call, where), callee(std::move(what)), args(std::move(arguments)) {}
  ExprPtr callee;  ///< What is called.
  ArgExprs args;   ///< Its arguments.
};

/// Kind of a statement.
enum class StatementKind : std::uint8_t {
  Output,
  If,
  For,
  Set,
  SetBlock,
  Macro,
  CallBlock,
  FilterBlock,
  With,
  Scope,
  Break,
  Continue,
  Unavailable,
};

/// A statement.
struct Statement {
  Statement(StatementKind what, std::uint32_t where) : kind(what), line(where) {}
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  virtual ~Statement() = default;

  const StatementKind kind;  ///< Its class.
  const std::uint32_t line;  ///< Where it begins.
};

/// Statements in order.
using Body = std::vector<std::unique_ptr<Statement>>;

/// What to do when a scope is entered: give a variable its first value.
struct Load {
  /// Where a first value comes from.
  enum class From : std::uint8_t {
    Unset,     ///< Nowhere: the variable is undefined.
    Variable,  ///< Another variable.
  };
  From from = From::Unset;  ///< Unset, or a copy of another variable.
  std::uint32_t slot = 0;   ///< The variable.
  VariableRef source;       ///< What is copied.
};

/// Variables of a scope.
using Loads = std::vector<Load>;

/// A piece of output: literal text, or an expression.
struct OutputPart {
  std::string text;  ///< Used when there is no expression.
  ExprPtr expr;      ///< May be null.
};

/// Text and `{{ ... }}`.
struct OutputStatement final : Statement {
  explicit OutputStatement(std::uint32_t where) : Statement(StatementKind::Output, where) {}
  std::vector<OutputPart> parts;  ///< In order.
};

/// `if`.
struct IfStatement final : Statement {
  explicit IfStatement(std::uint32_t where) : Statement(StatementKind::If, where) {}
  std::vector<std::pair<ExprPtr, Body>> branches;  ///< `if` and the `elif`s.
  Body otherwise;                                  ///< `else`.
};

/// `for`.
struct ForStatement final : Statement {
  explicit ForStatement(std::uint32_t where) : Statement(StatementKind::For, where) {}
  ExprPtr target;               ///< Names to assign.
  ExprPtr test_target;          ///< The same names in the scope of `test`.
  ExprPtr iterable;             ///< What to walk.
  ExprPtr test;                 ///< Filter; may be null.
  bool recursive = false;       ///< May be called as `loop(...)`.
  bool uses_loop = false;       ///< The body reads `loop`.
  std::uint32_t loop_slot = 0;  ///< Where `loop` lives.
  std::uint32_t slots = 0;      ///< Variables of the function that a recursive body is.
  bool captured = false;        ///< Something inside keeps those variables.
  Body body;                    ///< Run per item.
  Body otherwise;               ///< Run when there was none.
  Loads loads;                  ///< On entering the body.
  Loads else_loads;             ///< On entering the else part.
};

/// `set target = value`.
struct SetStatement final : Statement {
  explicit SetStatement(std::uint32_t where) : Statement(StatementKind::Set, where) {}
  ExprPtr target;  ///< Names, attributes of namespaces, or a tuple of them.
  ExprPtr value;   ///< What they get.
};

/// `set target` ... `endset`.
struct SetBlockStatement final : Statement {
  explicit SetBlockStatement(std::uint32_t where) : Statement(StatementKind::SetBlock, where) {}
  ExprPtr target;  ///< A name or attribute.
  ExprPtr filter;  ///< Applied to the text; may be null.
  Body body;       ///< What is captured.
  Loads loads;     ///< On entering it.
};

/// Code of a macro or call block.
struct MacroBody {
  /// A parameter as written.
  struct Parameter {
    std::string name;        ///< As written.
    std::uint32_t slot = 0;  ///< Where it lives.
    ExprPtr otherwise;       ///< Default; may be null.
  };
  std::string name;                   ///< Empty for a call block.
  std::vector<Parameter> parameters;  ///< In order.
  bool takes_caller = false;          ///< Reads `caller` without declaring it.
  bool takes_kwargs = false;          ///< Reads `kwargs` without declaring it.
  bool takes_varargs = false;         ///< Reads `varargs` without declaring it.
  std::uint32_t caller_slot = 0;      ///< Where they live.
  std::uint32_t kwargs_slot = 0;      ///< Likewise.
  std::uint32_t varargs_slot = 0;     ///< Likewise.
  std::uint32_t slots = 0;            ///< Number of variables.
  bool captured = false;              ///< Something inside keeps the variables.
  Loads loads;                        ///< On entering it.
  Body body;                          ///< What it runs.
};

/// `macro`.
struct MacroStatement final : Statement {
  explicit MacroStatement(std::uint32_t where) : Statement(StatementKind::Macro, where) {}
  MacroBody code;   ///< What it runs.
  VariableRef ref;  ///< The variable that holds it.
};

/// `call`.
struct CallBlockStatement final : Statement {
  explicit CallBlockStatement(std::uint32_t where) : Statement(StatementKind::CallBlock, where) {}
  MacroBody code;  ///< What `caller()` runs.
  ExprPtr call;    ///< The call that is made.
};

/// `filter`.
struct FilterBlockStatement final : Statement {
  explicit FilterBlockStatement(std::uint32_t where)
      : Statement(StatementKind::FilterBlock, where) {}
  ExprPtr filter;  ///< Applied to the text.
  Body body;       ///< What is captured.
  Loads loads;     ///< On entering it.
};

/// `with`.
struct WithStatement final : Statement {
  explicit WithStatement(std::uint32_t where) : Statement(StatementKind::With, where) {}
  std::vector<std::pair<ExprPtr, ExprPtr>> assignments;  ///< Targets and values.
  Body body;                                             ///< Where they hold.
  Loads loads;                                           ///< On entering it.
};

/// `generation`, `autoescape`, `block`: a scope of its own.
struct ScopeStatement final : Statement {
  explicit ScopeStatement(std::uint32_t where) : Statement(StatementKind::Scope, where) {}
  Body body;             ///< What runs in it.
  Loads loads;           ///< On entering it.
  bool isolated = true;  ///< Jumps may not leave it.
};

/// `break`, `continue`.
struct JumpStatement final : Statement {
  using Statement::Statement;
};

/// A statement that has no meaning in chat templates and fails when it is reached.
struct UnavailableStatement final : Statement {
  UnavailableStatement(std::string text, std::uint32_t where)
      : Statement(StatementKind::Unavailable, where), message(std::move(text)) {}
  std::string message;  ///< What the failure says.
};

/// A parsed template.
struct Program {
  Program() = default;
  Program(Program&&) = default;
  Program& operator=(Program&&) = default;
  ~Program();

  Body body;                                       ///< What runs.
  Loads loads;                                     ///< On entering it.
  std::uint32_t slots = 0;                         ///< Variables of the root.
  std::vector<std::string> globals;                ///< Names looked up in the context.
  std::vector<std::unique_ptr<Object>> constants;  ///< Objects that constants share, not counted.
};

}  // namespace fairlead::jinja
