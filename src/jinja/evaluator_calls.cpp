#include "jinja/capture.hpp"
#include "jinja/evaluator.hpp"

namespace fairlead::jinja {

bool Evaluator::eval_args(const ArgExprs& exprs, ArgValues& values) {
  for (const ExprPtr& expr : exprs.positional) {
    Value value = eval(*expr);
    if (value.is_missing()) {
      return false;
    }
    values.push(std::move(value));
  }
  if (exprs.star) {
    const Value more = eval(*exprs.star);
    if (more.is_missing()) {
      return false;
    }
    ListBuilder builder(runtime_);
    if (!builder.extend(more)) {
      return false;
    }
    for (Value& value : builder.take()) {
      values.push(std::move(value));
    }
  }
  for (const auto& [name, expr] : exprs.named) {
    Value value = eval(*expr);
    if (value.is_missing()) {
      return false;
    }
    values.push(name, std::move(value));
  }
  if (!exprs.double_star) {
    return true;
  }
  const Value more = eval(*exprs.double_star);
  if (more.is_missing()) {
    return false;
  }
  if (more.kind() != Kind::Dict) {
    runtime_.fail(std::string("argument after ** must be a mapping, not ") + type_name(more));
    return false;
  }
  values.keep(more);
  for (const auto& [key, value] : as<DictObject>(more).store().entries()) {
    if (!key.is_string()) {
      runtime_.fail("keywords must be strings");
      return false;
    }
    for (const NamedArg& named : values.named()) {
      if (named.name == key.text()) {
        runtime_.fail("got multiple values for keyword argument '" + std::string(key.text()) + "'");
        return false;
      }
    }
    if (!runtime_.step()) {
      return false;
    }
    values.push(key.text(), value);
  }
  return true;
}

Value Evaluator::eval_call(const CallExpr& node, const Value* caller) {
  Value callee;
  Value object;
  Method method = Method::None;
  if (node.callee->kind == ExprKind::GetAttr) {
    // A method is called in place, without an object for the bound method.
    const auto& attribute = static_cast<const GetAttrExpr&>(*node.callee);
    object = eval(*attribute.object);
    if (object.is_missing()) {
      return object;
    }
    if (attribute.method != Method::None &&
        method_access(object, attribute.method) == Access::Allowed) {
      method = attribute.method;
    } else {
      callee = get_attribute(runtime_, object, attribute.name, attribute.method);
    }
  } else {
    callee = eval(*node.callee);
  }
  ArgValues args;
  if (callee.is_missing() || !eval_args(node.args, args)) {
    return Value::missing();
  }
  if (caller != nullptr) {
    args.push("caller", *caller);
  }
  return method != Method::None ? call_method(runtime_, object, method, args.view())
                                : call(callee, args.view());
}

Value Evaluator::call(const Value& callee, const CallArgs& args) {
  switch (callee.kind()) {
    case Kind::Function: return as<FunctionObject>(callee).call(runtime_, args);
    case Kind::Method: {
      const auto& bound = as<MethodObject>(callee);
      return call_method(runtime_, bound.self, bound.method, args);
    }
    case Kind::Macro: return call_macro(as<MacroObject>(callee), args);
    case Kind::Joiner: {
      auto& joiner = as<JoinerObject>(callee);
      const bool used = joiner.used;
      joiner.used = true;
      return used ? joiner.separator : Value::borrowed("");
    }
    case Kind::Loop: {
      const auto& loop = as<LoopObject>(callee);
      if (loop.recursion == nullptr || loop.home == nullptr) {
        return runtime_.fail("The loop must have the 'recursive' marker to be called recursively.");
      }
      if (args.positional.size() != 1 || !args.named.empty()) {
        return runtime_.fail("loop() takes one iterable");
      }
      Capture capture(*this);
      const Enter enter(*this, *loop.home);
      const Flow flow = exec_recursive(*loop.recursion, args.positional[0], loop.depth0 + 1);
      return flow == Flow::Error ? Value::missing() : capture.take();
    }
    case Kind::Undefined: return runtime_.fail(callee.undefined_message());
    default:
      return runtime_.fail(std::string("'") + type_name(callee) + "' object is not callable");
  }
}

Value Evaluator::call_macro(const MacroObject& macro, const CallArgs& args) {
  Capture capture(*this);
  return run_macro(macro, args) ? capture.take() : Value::missing();
}

Activation& Evaluator::activate(std::uint32_t slots, Activation* parent, bool captured,
                                std::unique_ptr<Activation>& temporary) {
  auto activation = std::make_unique<Activation>(slots, parent);
  Activation& result = *activation;
  if (captured) {
    runtime_.reserve(sizeof(Activation) + slots * sizeof(Value));
    kept_.push_back(std::move(activation));
    live_bytes += static_cast<std::int64_t>(sizeof(Activation) + slots * sizeof(Value));
  } else {
    temporary = std::move(activation);
  }
  return result;
}

// Runs the macro into the current output.
bool Evaluator::run_macro(const MacroObject& macro, const CallArgs& args) {
  const MacroBody& code = macro.body;
  if (++calls_ > runtime_.limits().max_calls || !runtime_.check_stack()) {
    runtime_.fail("maximum recursion depth exceeded");
    return false;
  }
  std::unique_ptr<Activation> temporary;
  Activation& activation = activate(code.slots, &macro.around, code.captured, temporary);
  const Enter enter(*this, activation);
  const bool done = bind(code, args) && exec(code.body) != Flow::Error;
  --calls_;
  return done;
}

bool Evaluator::bind(const MacroBody& code, const CallArgs& args) {
  load(code.loads);
  const std::size_t positional = std::min(args.positional.size(), code.parameters.size());
  std::vector<bool> used(args.named.size(), false);
  const auto named = [&](std::string_view name) -> const Value* {
    for (std::size_t i = 0; i < args.named.size(); ++i) {
      if (args.named[i].name == name && !used[i]) {
        used[i] = true;
        return &args.named[i].value;
      }
    }
    return nullptr;
  };
  bool found_caller = false;
  for (std::size_t i = 0; i < code.parameters.size(); ++i) {
    const auto& parameter = code.parameters[i];
    const Value* value = i < positional ? &args.positional[i] : named(parameter.name);
    current_->at(parameter.slot) = value != nullptr ? *value : Value::missing();
    found_caller = found_caller || parameter.name == "caller";
  }
  if (code.takes_caller && !found_caller) {
    const Value* caller = named("caller");
    current_->at(code.caller_slot) = caller != nullptr && !caller->is_none()
                                         ? *caller
                                         : Value::undefined_hint("No caller defined");
  }
  if (code.takes_kwargs) {
    DictStore rest;
    for (std::size_t i = 0; i < args.named.size(); ++i) {
      if (!used[i]) {
        rest.set(runtime_.string(args.named[i].name), args.named[i].value);
      }
    }
    current_->at(code.kwargs_slot) = runtime_.dict(std::move(rest));
  } else {
    for (std::size_t i = 0; i < args.named.size(); ++i) {
      if (!used[i]) {
        const bool caller = args.named[i].name == "caller";
        runtime_.fail(
            "macro '" + code.name + "' " +
            (caller ? "was invoked with two values for the special caller argument. This "
                      "is most likely a bug."
                    : "takes no keyword argument '" + std::string(args.named[i].name) + "'"));
        return false;
      }
    }
  }
  if (code.takes_varargs) {
    current_->at(code.varargs_slot) = runtime_.tuple(
        {args.positional.begin() + static_cast<std::ptrdiff_t>(positional), args.positional.end()});
  } else if (args.positional.size() > code.parameters.size()) {
    runtime_.fail("macro '" + code.name + "' takes not more than " +
                  std::to_string(code.parameters.size()) + " argument(s)");
    return false;
  }
  for (const auto& parameter : code.parameters) {
    if (!current_->at(parameter.slot).is_missing()) {
      continue;
    }
    Value value =
        parameter.otherwise
            ? eval(*parameter.otherwise)
            : Value::undefined_hint("parameter '" + parameter.name + "' was not provided");
    if (value.is_missing()) {
      return false;
    }
    current_->at(parameter.slot) = std::move(value);
  }
  return !runtime_.failed();
}

std::string MacroObject::describe() const {
  return body.name.empty() ? "<Macro anonymous>" : "<Macro '" + body.name + "'>";
}

Value MacroObject::attribute(std::string_view name) const {
  if (name == "name") {
    return body.name.empty() ? Value() : Value::borrowed(body.name);
  }
  if (name == "arguments") {
    std::vector<Value> names;
    for (const auto& parameter : body.parameters) {
      names.push_back(Value::borrowed(parameter.name));
    }
    return Value::tuple(std::move(names));
  }
  if (name == "catch_kwargs") {
    return Value::boolean(body.takes_kwargs);
  }
  if (name == "catch_varargs") {
    return Value::boolean(body.takes_varargs);
  }
  return name == "caller" ? Value::boolean(body.takes_caller) : Value::missing();
}

}  // namespace fairlead::jinja
