#include "jinja/capture.hpp"
#include "jinja/evaluator.hpp"

namespace fairlead::jinja {

bool Evaluator::run(std::string& out) {
  out_ = &out;
  current_ = &root_;
  load(program_.loads);
  return exec(program_.body) != Flow::Error && !runtime_.failed();
}

Evaluator::Flow Evaluator::exec(const Body& body) {
  for (const auto& statement : body) {
    const Flow flow = exec(*statement);
    if (flow != Flow::Normal) {
      return flow;
    }
  }
  return Flow::Normal;
}

Evaluator::Flow Evaluator::exec(const Statement& statement) {
  if (!runtime_.step()) {
    return Flow::Error;
  }
  switch (statement.kind) {
    case StatementKind::Output: return exec_output(static_cast<const OutputStatement&>(statement));
    case StatementKind::If: return exec_if(static_cast<const IfStatement&>(statement));
    case StatementKind::For: return exec_for(static_cast<const ForStatement&>(statement));
    case StatementKind::Set: return exec_set(static_cast<const SetStatement&>(statement));
    case StatementKind::SetBlock:
      return exec_set_block(static_cast<const SetBlockStatement&>(statement));
    case StatementKind::Macro: {
      const auto& node = static_cast<const MacroStatement&>(statement);
      Activation* activation = current_;
      for (std::uint32_t up = node.ref.up; up > 0; --up) {
        activation = activation->parent;
      }
      activation->at(node.ref.slot) = make<MacroObject>(Kind::Macro, node.code, *current_);
      return Flow::Normal;
    }
    case StatementKind::CallBlock:
      return exec_call_block(static_cast<const CallBlockStatement&>(statement));
    case StatementKind::FilterBlock:
      return exec_filter_block(static_cast<const FilterBlockStatement&>(statement));
    case StatementKind::With: return exec_with(static_cast<const WithStatement&>(statement));
    case StatementKind::Scope:
      load(static_cast<const ScopeStatement&>(statement).loads);
      return exec(static_cast<const ScopeStatement&>(statement).body);
    case StatementKind::Break: return Flow::Break;
    case StatementKind::Continue: return Flow::Continue;
    case StatementKind::Unavailable:
      runtime_.fail(static_cast<const UnavailableStatement&>(statement).message);
      return Flow::Error;
  }
  return Flow::Normal;
}

void Evaluator::load(const Loads& loads) {
  for (const Load& entry : loads) {
    if (entry.from == Load::From::Unset) {
      current_->at(entry.slot) = Value::missing();
      continue;
    }
    const Value& source = variable(entry.source);
    // A context variable that is not there stays unset, so that it reads as undefined by name.
    const bool absent = entry.source.up == VariableRef::kGlobal && source.is_undefined() &&
                        context_.find(program_.globals[entry.source.slot]) == nullptr;
    current_->at(entry.slot) = absent ? Value::missing() : source;
  }
}

bool Evaluator::check_output() {
  const std::size_t size = out_->size();
  if (size > runtime_.limits().max_output_bytes || size > runtime_.text_room()) {
    runtime_.fail("the rendered text is too large");
    return false;
  }
  return true;
}

bool Evaluator::append(std::string_view text) {
  out_->append(text);
  return runtime_.charge(text.size()) && check_output();
}

Evaluator::Flow Evaluator::exec_output(const OutputStatement& node) {
  for (const OutputPart& part : node.parts) {
    if (!(part.expr ? emit(*part.expr) : append(part.text))) {
      return Flow::Error;
    }
  }
  return Flow::Normal;
}

// Appends `str(expr)` to the output, without building intermediate texts where possible.
bool Evaluator::emit(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::Concat:
      for (const ExprPtr& part : static_cast<const ConcatExpr&>(expr).parts) {
        if (!emit(*part)) {
          return false;
        }
      }
      return true;
    case ExprKind::Binary:
      if (static_cast<const BinaryExpr&>(expr).op == Arithmetic::Add) {
        return emit_sum(static_cast<const BinaryExpr&>(expr));
      }
      break;
    case ExprKind::Conditional: {
      const auto& node = static_cast<const ConditionalExpr&>(expr);
      Value holder;
      const Value* test = peek(*node.test, holder);
      if (test == nullptr) {
        return false;
      }
      if (truthy(*test)) {
        return emit(*node.yes);
      }
      return !node.no || emit(*node.no);
    }
    default: break;
  }
  Value holder;
  const Value* value = peek(expr, holder);
  return value != nullptr && append_str(runtime_, *out_, *value) && check_output();
}

bool Evaluator::emit_sum(const BinaryExpr& expr) {
  std::vector<Value> operands;
  bool plain = false;
  if (!eval_operands(expr, operands, plain)) {
    return false;
  }
  if (plain) {
    for (const Value& operand : operands) {
      if (!append(operand.text())) {
        return false;
      }
    }
    return true;
  }
  const Value total = add_operands(operands, plain);
  return !total.is_missing() && append_str(runtime_, *out_, total) && check_output();
}

Evaluator::Flow Evaluator::exec_if(const IfStatement& node) {
  for (const auto& [test_expr, body] : node.branches) {
    Value holder;
    const Value* test = peek(*test_expr, holder);
    if (test == nullptr) {
      return Flow::Error;
    }
    if (truthy(*test)) {
      return exec(body);
    }
  }
  return exec(node.otherwise);
}

// Items of a for statement, filtered by its condition.
class Evaluator::LoopSource final : public ItemSource {
 public:
  LoopSource(Evaluator& evaluator, const ForStatement& node, const Value& iterable)
      : evaluator_(evaluator),
        node_(node),
        activation_(*evaluator.current_),
        cursor_(evaluator.runtime_, iterable) {}

  bool pull(Value& out) override {
    while (evaluator_.runtime_.step() && cursor_.next(out)) {
      if (!node_.test) {
        return true;
      }
      const Enter enter(evaluator_, activation_);
      Value holder;
      const Value* test = evaluator_.assign(*node_.test_target, out)
                              ? evaluator_.peek(*node_.test, holder)
                              : nullptr;
      if (test == nullptr) {
        return false;
      }
      if (truthy(*test)) {
        return true;
      }
    }
    return false;
  }

  std::optional<std::size_t> size() const override {
    return node_.test ? std::nullopt : cursor_.size();
  }

 private:
  Evaluator& evaluator_;
  const ForStatement& node_;
  Activation& activation_;
  Cursor cursor_;
};

Evaluator::Flow Evaluator::exec_for(const ForStatement& node) {
  const Value iterable = eval(*node.iterable);
  if (iterable.is_missing()) {
    return Flow::Error;
  }
  return node.recursive ? exec_recursive(node, iterable, 0) : run_loop(node, iterable, 0, nullptr);
}

Evaluator::Flow Evaluator::exec_recursive(const ForStatement& node, const Value& iterable,
                                          std::int64_t depth) {
  if (++calls_ > runtime_.limits().max_calls || !runtime_.check_stack()) {
    runtime_.fail("maximum recursion depth exceeded");
    return Flow::Error;
  }
  Activation* home = current_;
  std::unique_ptr<Activation> temporary;
  Activation& activation = activate(node.slots, home, node.captured, temporary);
  const Enter enter(*this, activation);
  const Flow flow = run_loop(node, iterable, depth, home);
  --calls_;
  return flow;
}

Evaluator::Flow Evaluator::run_loop(const ForStatement& node, const Value& iterable,
                                    std::int64_t depth, Activation* home) {
  LoopSource source(*this, node, iterable);
  Value loop;
  LoopObject* state = nullptr;
  if (node.uses_loop) {
    loop = make<LoopObject>(Kind::Loop, source, depth);
    state = &as<LoopObject>(loop);
    state->recursion = node.recursive ? &node : nullptr;
    state->home = home;
  }
  bool any = false;  // Did some turn reach its end?
  Flow flow = Flow::Normal;
  for (Value item; state != nullptr ? state->next(item) : source.pull(item);) {
    load(node.loads);
    if (state != nullptr) {
      current_->at(node.loop_slot) = loop;
    }
    if (!assign(*node.target, item)) {
      flow = Flow::Error;
      break;
    }
    flow = exec(node.body);
    // In Jinja an item counts only when its turn was not cut short by a jump.
    any = any || flow == Flow::Normal;
    if (flow == Flow::Break || flow == Flow::Error) {
      break;
    }
  }
  if (state != nullptr) {
    state->close();
  }
  if (flow == Flow::Error || runtime_.failed()) {
    return Flow::Error;
  }
  if (!any && !node.otherwise.empty()) {
    load(node.else_loads);
    return exec(node.otherwise);
  }
  return Flow::Normal;
}

bool Evaluator::assign(const Expr& target, const Value& value) {
  if (target.kind != ExprKind::Name) {
    return assign_tuple(static_cast<const SequenceExpr&>(target), value);
  }
  const auto& name = static_cast<const NameExpr&>(target);
  if (!name.attribute.empty()) {
    return assign_attribute(name, value);
  }
  current_->at(name.ref.slot) = value;
  return true;
}

bool Evaluator::assign_attribute(const NameExpr& target, const Value& value) {
  const Value& object = variable(target.ref);
  if (object.kind() != Kind::Namespace) {
    runtime_.fail("cannot assign attribute on non-namespace object");
    return false;
  }
  if (target.attribute.starts_with('_')) {
    runtime_.fail(
        "Chat templates cannot store underscore-prefixed attributes on a namespace, but got '" +
        target.attribute + "'. Please rename the attribute.");
    return false;
  }
  as<NamespaceObject>(object).attributes.set(Value::borrowed(target.attribute), value);
  return true;
}

bool Evaluator::assign_tuple(const SequenceExpr& target, const Value& value) {
  switch (value.kind()) {
    case Kind::None:
    case Kind::Bool:
    case Kind::Int:
    case Kind::BigInt:
    case Kind::Float:
    case Kind::Namespace:
    case Kind::Macro:
    case Kind::Function:
    case Kind::Method:
      runtime_.fail(std::string("cannot unpack non-iterable ") + type_name(value) + " object");
      return false;
    default: break;
  }
  const std::size_t expected = target.items.size();
  std::vector<Value> items;
  Cursor cursor(runtime_, value);
  for (Value item; items.size() <= expected && cursor.next(item);) {
    items.push_back(item);
  }
  if (runtime_.failed()) {
    return false;
  }
  if (items.size() > expected) {
    runtime_.fail("too many values to unpack (expected " + std::to_string(expected) + ")");
    return false;
  }
  if (items.size() < expected) {
    runtime_.fail("not enough values to unpack (expected " + std::to_string(expected) + ", got " +
                  std::to_string(items.size()) + ")");
    return false;
  }
  for (std::size_t i = 0; i < expected; ++i) {
    if (!assign(*target.items[i], items[i])) {
      return false;
    }
  }
  return true;
}

Evaluator::Flow Evaluator::exec_set(const SetStatement& node) {
  const Value value = eval(*node.value);
  return !value.is_missing() && assign(*node.target, value) ? Flow::Normal : Flow::Error;
}

Evaluator::Flow Evaluator::exec_set_block(const SetBlockStatement& node) {
  Value value;
  {
    Capture capture(*this);
    load(node.loads);
    const Flow flow = exec(node.body);
    if (flow != Flow::Normal) {
      return flow;
    }
    value = capture.take();
  }
  if (node.filter && !value.is_missing()) {
    const Value text = value;
    const Value* outer = captured_;
    captured_ = &text;
    value = eval(*node.filter);
    captured_ = outer;
  }
  return !value.is_missing() && assign(*node.target, value) ? Flow::Normal : Flow::Error;
}

Evaluator::Flow Evaluator::exec_call_block(const CallBlockStatement& node) {
  const Value caller = make<MacroObject>(Kind::Macro, node.code, *current_);
  return append_block(eval_call(static_cast<const CallExpr&>(*node.call), &caller)) ? Flow::Normal
                                                                                    : Flow::Error;
}

Evaluator::Flow Evaluator::exec_filter_block(const FilterBlockStatement& node) {
  Value text;
  {
    Capture capture(*this);
    load(node.loads);
    const Flow flow = exec(node.body);
    if (flow != Flow::Normal) {
      return flow;
    }
    text = capture.take();
  }
  if (text.is_missing()) {
    return Flow::Error;
  }
  const Value* outer = captured_;
  captured_ = &text;
  const Value result = eval(*node.filter);
  captured_ = outer;
  return append_block(result) ? Flow::Normal : Flow::Error;
}

// Jinja joins what blocks give, which must be texts.
bool Evaluator::append_block(const Value& result) {
  if (result.is_missing()) {
    return false;
  }
  if (!result.is_string()) {
    runtime_.fail(std::string("expected str instance, ") + type_name(result) + " found");
    return false;
  }
  return append(result.text());
}

Evaluator::Flow Evaluator::exec_with(const WithStatement& node) {
  load(node.loads);
  for (const auto& [target, expr] : node.assignments) {
    const Value value = eval(*expr);
    if (value.is_missing() || !assign(*target, value)) {
      return Flow::Error;
    }
  }
  return exec(node.body);
}

}  // namespace fairlead::jinja
