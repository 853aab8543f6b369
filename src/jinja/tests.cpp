#include <array>
#include <cmath>
#include <unordered_map>

#include "jinja/args.hpp"
#include "jinja/builtins.hpp"

namespace fairlead::jinja {
namespace {

// Tests without arguments that cannot fail.
template <bool (*kHolds)(const Value&)>
Value simple(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<0> none(runtime, "test", args, {});
  return none ? Value::boolean(kHolds(input)) : Value::missing();
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_boolean(const Value& value) { return value.kind() == Kind::Bool; }
bool is_false(const Value& value) { return value.kind() == Kind::Bool && !value.as_bool(); }
bool is_true(const Value& value) { return value.kind() == Kind::Bool && value.as_bool(); }
bool is_integer(const Value& value) {
  return value.kind() == Kind::Int || value.kind() == Kind::BigInt;
}
bool is_float(const Value& value) { return value.kind() == Kind::Float; }
bool is_string(const Value& value) { return value.is_string(); }
bool is_mapping(const Value& value) { return value.kind() == Kind::Dict; }
bool is_sequence(const Value& value) {
  switch (value.kind()) {
    case Kind::String:
    case Kind::List:
    case Kind::Tuple:
    case Kind::Dict:
    case Kind::Range:
    case Kind::Undefined: return true;
    default: return false;
  }
}
bool is_iterable(const Value& value) {
  return is_sequence(value) || value.kind() == Kind::DictView || value.kind() == Kind::Iterator ||
         value.kind() == Kind::Loop;
}
bool is_callable(const Value& value) {
  switch (value.kind()) {
    case Kind::Function:
    case Kind::Method:
    case Kind::Macro:
    case Kind::Loop:
    case Kind::Joiner:
    case Kind::Undefined: return true;
    default: return false;
  }
}
bool is_escaped(const Value& value) { return value.is_markup(); }

// Whether the input is a key of a table of built-ins.
template <Builtin (*kFind)(std::string_view)>
Value test_named(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<0> none(runtime, "test", args, {});
  if (!none || !check_hashable(runtime, input)) {
    return Value::missing();
  }
  return Value::boolean(input.is_string() && kFind(input.text()) != nullptr);
}

Value modulo_equals(Runtime& runtime, const Value& input, const Value& divisor, int expected) {
  const Value rest = arithmetic(runtime, Arithmetic::Modulo, input, divisor);
  return rest.is_missing() ? rest : Value::boolean(equal(rest, Value::integer(expected)));
}

Value test_odd(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<0> none(runtime, "odd", args, {});
  return none ? modulo_equals(runtime, input, Value::integer(2), 1) : Value::missing();
}

Value test_even(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<0> none(runtime, "even", args, {});
  return none ? modulo_equals(runtime, input, Value::integer(2), 0) : Value::missing();
}

Value test_divisibleby(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<1> bound(runtime, "divisibleby", args, {"num"}, 1);
  return bound ? modulo_equals(runtime, input, *bound[0], 0) : Value::missing();
}

template <Method kMethod>
Value test_case(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Value text = to_str(runtime, input);
  return text.is_missing() ? text : call_string_method(runtime, text, kMethod, args);
}

Value test_sameas(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<1> bound(runtime, "sameas", args, {"other"}, 1);
  return bound ? Value::boolean(identical(input, *bound[0])) : Value::missing();
}

Value test_in(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<1> bound(runtime, "in", args, {"seq"}, 1);
  const auto inside = bound ? contains(runtime, *bound[0], input) : std::nullopt;
  return inside ? Value::boolean(*inside) : Value::missing();
}

template <bool kEqual>
Value test_equal(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<1> bound(runtime, "eq", args, {"other"}, 1);
  if (!bound) {
    return Value::missing();
  }
  const bool same = equal(input, *bound[0]);
  return runtime.failed() ? Value::missing() : Value::boolean(same == kEqual);
}

template <Order kOrder>
Value test_order(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<1> bound(runtime, "compare", args, {"other"}, 1);
  const auto holds = bound ? ordered(runtime, kOrder, input, *bound[0]) : std::nullopt;
  return holds ? Value::boolean(*holds) : Value::missing();
}

constexpr std::array kTests = {
    BuiltinRow{"defined", simple<is_defined>},
    BuiltinRow{"undefined", simple<is_undefined>},
    BuiltinRow{"none", simple<is_none>},
    BuiltinRow{"boolean", simple<is_boolean>},
    BuiltinRow{"false", simple<is_false>},
    BuiltinRow{"true", simple<is_true>},
    BuiltinRow{"integer", simple<is_integer>},
    BuiltinRow{"float", simple<is_float>},
    BuiltinRow{"string", simple<is_string>},
    BuiltinRow{"mapping", simple<is_mapping>},
    BuiltinRow{"number", simple<is_number>},
    BuiltinRow{"sequence", simple<is_sequence>},
    BuiltinRow{"iterable", simple<is_iterable>},
    BuiltinRow{"callable", simple<is_callable>},
    BuiltinRow{"escaped", simple<is_escaped>},
    BuiltinRow{"filter", test_named<find_filter>},
    BuiltinRow{"test", test_named<find_test>},
    BuiltinRow{"odd", test_odd},
    BuiltinRow{"even", test_even},
    BuiltinRow{"divisibleby", test_divisibleby},
    BuiltinRow{"lower", test_case<Method::IsLower>},
    BuiltinRow{"upper", test_case<Method::IsUpper>},
    BuiltinRow{"sameas", test_sameas},
    BuiltinRow{"in", test_in},
    BuiltinRow{"==", test_equal<true>},
    BuiltinRow{"eq", test_equal<true>},
    BuiltinRow{"equalto", test_equal<true>},
    BuiltinRow{"!=", test_equal<false>},
    BuiltinRow{"ne", test_equal<false>},
    BuiltinRow{">", test_order<Order::Greater>},
    BuiltinRow{"gt", test_order<Order::Greater>},
    BuiltinRow{"greaterthan", test_order<Order::Greater>},
    BuiltinRow{">=", test_order<Order::GreaterEqual>},
    BuiltinRow{"ge", test_order<Order::GreaterEqual>},
    BuiltinRow{"<", test_order<Order::Less>},
    BuiltinRow{"lt", test_order<Order::Less>},
    BuiltinRow{"lessthan", test_order<Order::Less>},
    BuiltinRow{"<=", test_order<Order::LessEqual>},
    BuiltinRow{"le", test_order<Order::LessEqual>},
};

}  // namespace

Builtin find_test(std::string_view name) {
  static const auto kByName = [] {
    std::unordered_map<std::string_view, Builtin> map;
    for (const BuiltinRow& row : kTests) {
      map.emplace(row.name, row.function);
    }
    return map;
  }();
  const auto found = kByName.find(name);
  return found == kByName.end() ? nullptr : found->second;
}

Builtin find_filter(std::string_view name) {
  static const auto kByName = [] {
    std::unordered_map<std::string_view, Builtin> map;
    for (const auto rows : {text_filters(), number_filters(), sequence_filters(), lazy_filters()}) {
      for (const BuiltinRow& row : rows) {
        map.emplace(row.name, row.function);
      }
    }
    return map;
  }();
  const auto found = kByName.find(name);
  return found == kByName.end() ? nullptr : found->second;
}

}  // namespace fairlead::jinja
