#include "jinja/evaluator.hpp"

#include <cstring>

namespace fairlead::jinja {

void ArgValues::push(Value value) {
  if (count_ < kInline) {
    inline_[count_++] = std::move(value);
    return;
  }
  if (many_.empty()) {
    many_.assign(inline_.begin(), inline_.end());
  }
  many_.push_back(std::move(value));
  ++count_;
}

CallArgs ArgValues::view() const {
  return {many_.empty() ? std::span<const Value>(inline_.data(), count_)
                        : std::span<const Value>(many_),
          named_};
}

Evaluator::Evaluator(Runtime& runtime, const Program& program, const DictStore& context)
    : runtime_(runtime),
      program_(program),
      context_(context),
      globals_(program.globals.size(), Value::missing()),
      root_(program.slots, nullptr) {}

Evaluator::~Evaluator() {
  // Macros point at activations, so values go before those.
  root_.clear();
  for (const auto& activation : kept_) {
    activation->clear();
  }
}

// Context variables are looked up once; undefined stands for those that are not there.
const Value& Evaluator::variable(const VariableRef& ref) {
  if (ref.up == VariableRef::kGlobal) {
    Value& value = globals_[ref.slot];
    if (value.is_missing()) {
      const std::string& name = program_.globals[ref.slot];
      const Value* found = context_.find(name);
      value = found != nullptr ? *found : find_global(name);
      if (value.is_missing()) {
        value = Value::undefined_name(name, nullptr);
      }
    }
    return value;
  }
  Activation* activation = current_;
  for (std::uint32_t up = ref.up; up > 0; --up) {
    activation = activation->parent;
  }
  return activation->at(ref.slot);
}

Value Evaluator::eval_name(const NameExpr& node) {
  const Value& value = variable(node.ref);
  return value.is_missing() ? Value::undefined_name(node.name, nullptr) : value;
}

// The value of `expr` without a copy where it is a variable; null on an error.
const Value* Evaluator::peek(const Expr& expr, Value& holder) {
  if (expr.kind == ExprKind::Name) {
    const Value& value = variable(static_cast<const NameExpr&>(expr).ref);
    if (!value.is_missing()) {
      return &value;
    }
  } else if (expr.kind == ExprKind::Const) {
    return &static_cast<const ConstExpr&>(expr).value;
  }
  holder = eval(expr);
  return holder.is_missing() ? nullptr : &holder;
}

Value Evaluator::eval(const Expr& expr) {
  if (!runtime_.step()) {
    return Value::missing();
  }
  switch (expr.kind) {
    case ExprKind::Const: return static_cast<const ConstExpr&>(expr).value;
    case ExprKind::Name: return eval_name(static_cast<const NameExpr&>(expr));
    case ExprKind::Tuple:
    case ExprKind::List: return eval_sequence(static_cast<const SequenceExpr&>(expr));
    case ExprKind::Dict: return eval_dict(static_cast<const DictExpr&>(expr));
    case ExprKind::Not:
    case ExprKind::Negate:
    case ExprKind::Positive: return eval_unary(static_cast<const UnaryExpr&>(expr));
    case ExprKind::Binary: return eval_binary(static_cast<const BinaryExpr&>(expr));
    case ExprKind::And:
    case ExprKind::Or: {
      const auto& node = static_cast<const BinaryExpr&>(expr);
      Value left = eval(*node.left);
      if (left.is_missing() || truthy(left) == (expr.kind == ExprKind::Or)) {
        return left;
      }
      return eval(*node.right);
    }
    case ExprKind::Concat: return eval_concat(static_cast<const ConcatExpr&>(expr));
    case ExprKind::Compare: return eval_compare(static_cast<const CompareExpr&>(expr));
    case ExprKind::Conditional: {
      const auto& node = static_cast<const ConditionalExpr&>(expr);
      Value holder;
      const Value* test = peek(*node.test, holder);
      if (test == nullptr) {
        return Value::missing();
      }
      if (truthy(*test)) {
        return eval(*node.yes);
      }
      if (node.no) {
        return eval(*node.no);
      }
      return Value::undefined_hint("the inline if-expression on line " + std::to_string(node.line) +
                                   " evaluated to false and no else section was defined.");
    }
    case ExprKind::GetAttr: return eval_get_attr(static_cast<const GetAttrExpr&>(expr));
    case ExprKind::GetItem: return eval_get_item(static_cast<const GetItemExpr&>(expr));
    case ExprKind::Slice: return runtime_.fail("a slice has no value of its own");
    case ExprKind::Filter:
    case ExprKind::Test: return eval_builtin(static_cast<const BuiltinExpr&>(expr));
    case ExprKind::Call: return eval_call(static_cast<const CallExpr&>(expr), nullptr);
  }
  return Value::missing();
}

Value Evaluator::eval_sequence(const SequenceExpr& node) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const ExprPtr& item : node.items) {
    items.push_back(eval(*item));
    if (items.back().is_missing()) {
      return Value::missing();
    }
  }
  return runtime_.sequence(node.kind == ExprKind::List ? Kind::List : Kind::Tuple,
                           std::move(items));
}

Value Evaluator::eval_dict(const DictExpr& node) {
  DictStore store;
  store.reserve(node.items.size());
  for (const auto& [key_expr, value_expr] : node.items) {
    Value key = eval(*key_expr);
    Value value = eval(*value_expr);
    if (runtime_.failed() || !check_hashable(runtime_, key)) {
      return Value::missing();
    }
    store.set(std::move(key), std::move(value));
  }
  return runtime_.dict(std::move(store));
}

Value Evaluator::eval_unary(const UnaryExpr& node) {
  Value holder;
  const Value* operand = peek(*node.operand, holder);
  if (operand == nullptr) {
    return Value::missing();
  }
  switch (node.kind) {
    case ExprKind::Not: return Value::boolean(!truthy(*operand));
    case ExprKind::Negate: return negate(runtime_, *operand);
    default: return positive(runtime_, *operand);
  }
}

// The operands of `a + b + c` from left to right; `plain` when all are ordinary texts.
bool Evaluator::eval_operands(const BinaryExpr& node, std::vector<Value>& operands, bool& plain) {
  std::array<const Expr*, 256> chain{};
  std::size_t count = 0;
  const Expr* left = &node;
  while (left->kind == ExprKind::Binary &&
         static_cast<const BinaryExpr*>(left)->op == Arithmetic::Add && count + 1 < chain.size()) {
    chain[count++] = static_cast<const BinaryExpr*>(left)->right.get();
    left = static_cast<const BinaryExpr*>(left)->left.get();
  }
  chain[count++] = left;
  operands.reserve(count);
  plain = true;
  while (count > 0) {
    operands.push_back(eval(*chain[--count]));
    if (operands.back().is_missing()) {
      return false;
    }
    plain = plain && operands.back().is_string() && !operands.back().is_markup();
  }
  return true;
}

Value Evaluator::add_operands(const std::vector<Value>& operands, bool plain) {
  if (plain) {
    std::size_t size = 0;
    for (const Value& operand : operands) {
      size += operand.text().size();
    }
    if (!runtime_.reserve(size)) {
      return Value::missing();
    }
    StringObject* object = StringObject::create(size);
    char* to = object->data();
    for (const Value& operand : operands) {
      std::memcpy(to, operand.text().data(), operand.text().size());
      to += operand.text().size();
    }
    return Value::text_of({object->data(), size}, object, false);
  }
  Value total = operands[0];
  for (std::size_t i = 1; i < operands.size() && !total.is_missing(); ++i) {
    total = arithmetic(runtime_, Arithmetic::Add, total, operands[i]);
  }
  return total;
}

Value Evaluator::eval_binary(const BinaryExpr& node) {
  if (node.op == Arithmetic::Add && node.left->kind == ExprKind::Binary) {
    std::vector<Value> operands;
    bool plain = false;
    return eval_operands(node, operands, plain) ? add_operands(operands, plain) : Value::missing();
  }
  Value left = eval(*node.left);
  if (left.is_missing()) {
    return left;
  }
  Value holder;
  const Value* right = peek(*node.right, holder);
  return right == nullptr ? Value::missing() : arithmetic(runtime_, node.op, left, *right);
}

Value Evaluator::eval_concat(const ConcatExpr& node) {
  std::string text;
  for (const ExprPtr& part : node.parts) {
    Value holder;
    const Value* value = peek(*part, holder);
    if (value == nullptr || !append_str(runtime_, text, *value)) {
      return Value::missing();
    }
    if (text.size() > runtime_.text_room()) {
      return runtime_.fail("the template uses too much memory");
    }
  }
  return runtime_.string(text);
}

std::optional<bool> Evaluator::compare(CompareOp op, const Value& left, const Value& right) {
  switch (op) {
    case CompareOp::Eq:
    case CompareOp::Ne: {
      const bool same = equal(left, right);
      if (runtime_.failed()) {
        return std::nullopt;
      }
      return same == (op == CompareOp::Eq);
    }
    case CompareOp::Lt: return ordered(runtime_, Order::Less, left, right);
    case CompareOp::LtEq: return ordered(runtime_, Order::LessEqual, left, right);
    case CompareOp::Gt: return ordered(runtime_, Order::Greater, left, right);
    case CompareOp::GtEq: return ordered(runtime_, Order::GreaterEqual, left, right);
    case CompareOp::In: return contains(runtime_, right, left);
    case CompareOp::NotIn: {
      const auto inside = contains(runtime_, right, left);
      if (!inside) {
        return std::nullopt;
      }
      return !*inside;
    }
  }
  return std::nullopt;
}

Value Evaluator::eval_compare(const CompareExpr& node) {
  Value left = eval(*node.first);
  if (left.is_missing()) {
    return left;
  }
  for (const auto& [op, operand] : node.links) {
    Value right = eval(*operand);
    if (right.is_missing()) {
      return right;
    }
    const auto holds = compare(op, left, right);
    if (!holds) {
      return Value::missing();
    }
    if (!*holds) {
      return Value::boolean(false);
    }
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Evaluator::eval_get_attr(const GetAttrExpr& node) {
  Value holder;
  const Value* object = peek(*node.object, holder);
  return object == nullptr ? Value::missing()
                           : get_attribute(runtime_, *object, node.name, node.method);
}

Value Evaluator::eval_get_item(const GetItemExpr& node) {
  Value holder;
  const Value* object = peek(*node.object, holder);
  if (object == nullptr) {
    return Value::missing();
  }
  if (node.key->kind != ExprKind::Slice) {
    // The object is kept: evaluating the key may assign the variable it came from.
    const Value kept = *object;
    Value key_holder;
    const Value* key = peek(*node.key, key_holder);
    return key == nullptr ? Value::missing() : get_item(runtime_, kept, *key);
  }
  const auto& bounds = static_cast<const SliceExpr&>(*node.key);
  const Value kept = *object;
  std::array<Value, 3> values;
  const std::array<const Expr*, 3> exprs = {bounds.start.get(), bounds.stop.get(),
                                            bounds.step.get()};
  for (std::size_t i = 0; i < exprs.size(); ++i) {
    if (exprs[i] != nullptr) {
      values[i] = eval(*exprs[i]);
      if (values[i].is_missing()) {
        return Value::missing();
      }
    }
  }
  return slice(runtime_, kept, values[0], values[1], values[2]);
}

Value Evaluator::eval_builtin(const BuiltinExpr& node) {
  Value input = node.input ? eval(*node.input) : *captured_;
  if (input.is_missing()) {
    return input;
  }
  if (node.function == nullptr) {
    return runtime_.fail(std::string("No ") + (node.kind == ExprKind::Filter ? "filter" : "test") +
                         " named '" + node.name + "' found.");
  }
  if (node.args.positional.empty() && node.args.named.empty() && !node.args.star &&
      !node.args.double_star) {
    return node.function(runtime_, input, {});
  }
  ArgValues args;
  return eval_args(node.args, args) ? node.function(runtime_, input, args.view())
                                    : Value::missing();
}

}  // namespace fairlead::jinja
