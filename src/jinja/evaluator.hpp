#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "jinja/ast.hpp"
#include "jinja/loop.hpp"
#include "jinja/macro.hpp"
#include "jinja/runtime.hpp"

namespace fairlead::jinja {

/// Variables of one call of a function (the root, a macro, a recursive loop).
class Activation {
 public:
  /// `count` unset variables inside `outer`.
  Activation(std::uint32_t count, Activation* outer)
      : parent(outer), slots_(count, Value::missing()) {}
  /// The variable at a place.
  Value& at(std::uint32_t slot) { return slots_[slot]; }
  /// Forgets all variables.
  void clear() { slots_.clear(); }

  Activation* const parent;  ///< The function around it.

 private:
  std::vector<Value> slots_;
};

/// Values of a call's arguments; a few need no allocation.
class ArgValues {
 public:
  /// Adds a positional argument.
  void push(Value value);
  /// Adds a named argument; `name` must outlive the call.
  void push(std::string_view name, Value value) { named_.push_back({name, std::move(value)}); }
  /// Keeps something alive as long as the arguments.
  void keep(Value value) { kept_ = std::move(value); }
  /// The arguments.
  CallArgs view() const;
  /// The named ones so far.
  const std::vector<NamedArg>& named() const { return named_; }

 private:
  static constexpr std::size_t kInline = 4;

  std::array<Value, kInline> inline_;
  std::size_t count_ = 0;
  std::vector<Value> many_;
  std::vector<NamedArg> named_;
  Value kept_;
};

/// One render of a program.
class Evaluator {
 public:
  /// All three outlive the evaluator.
  Evaluator(Runtime& runtime, const Program& program, const DictStore& context);
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  /// Runs the program; false on an error, which the runtime then holds.
  bool run(std::string& out);

 private:
  /// How a statement ended.
  enum class Flow : std::uint8_t { Normal, Break, Continue, Error };

  class LoopSource;
  class Capture;
  class Enter;

  // Statements (evaluator_statements.cpp).
  Flow exec(const Body& body);
  Flow exec(const Statement& statement);
  Flow exec_output(const OutputStatement& node);
  Flow exec_if(const IfStatement& node);
  Flow exec_for(const ForStatement& node);
  Flow exec_recursive(const ForStatement& node, const Value& iterable, std::int64_t depth);
  Flow run_loop(const ForStatement& node, const Value& iterable, std::int64_t depth,
                Activation* home);
  Flow exec_set(const SetStatement& node);
  Flow exec_set_block(const SetBlockStatement& node);
  Flow exec_call_block(const CallBlockStatement& node);
  Flow exec_filter_block(const FilterBlockStatement& node);
  Flow exec_with(const WithStatement& node);
  bool assign(const Expr& target, const Value& value);
  bool assign_tuple(const SequenceExpr& target, const Value& value);
  bool assign_attribute(const NameExpr& target, const Value& value);
  void load(const Loads& loads);
  bool append(std::string_view text);
  bool append_block(const Value& result);
  bool check_output();
  bool emit(const Expr& expr);
  bool emit_sum(const BinaryExpr& expr);

  // Expressions (evaluator.cpp).
  Value eval(const Expr& expr);
  Value eval_name(const NameExpr& node);
  const Value& variable(const VariableRef& ref);
  const Value* peek(const Expr& expr, Value& holder);
  Value eval_sequence(const SequenceExpr& node);
  Value eval_dict(const DictExpr& node);
  Value eval_unary(const UnaryExpr& node);
  Value eval_binary(const BinaryExpr& node);
  bool eval_operands(const BinaryExpr& node, std::vector<Value>& operands, bool& plain);
  Value add_operands(const std::vector<Value>& operands, bool plain);
  Value eval_concat(const ConcatExpr& node);
  Value eval_compare(const CompareExpr& node);
  std::optional<bool> compare(CompareOp op, const Value& left, const Value& right);
  Value eval_get_attr(const GetAttrExpr& node);
  Value eval_get_item(const GetItemExpr& node);
  Value eval_builtin(const BuiltinExpr& node);

  // Calls (evaluator_calls.cpp).
  bool eval_args(const ArgExprs& exprs, ArgValues& values);
  Value eval_call(const CallExpr& node, const Value* caller);
  Value call(const Value& callee, const CallArgs& args);
  Value call_macro(const MacroObject& macro, const CallArgs& args);
  bool run_macro(const MacroObject& macro, const CallArgs& args);
  bool bind(const MacroBody& code, const CallArgs& args);
  Activation& activate(std::uint32_t slots, Activation* parent, bool captured,
                       std::unique_ptr<Activation>& temporary);

  Runtime& runtime_;
  const Program& program_;
  const DictStore& context_;
  std::vector<Value> globals_;
  std::vector<std::unique_ptr<Activation>> kept_;
  Activation root_;
  Activation* current_ = nullptr;
  std::string* out_ = nullptr;
  const Value* captured_ = nullptr;
  int calls_ = 0;
};

}  // namespace fairlead::jinja
