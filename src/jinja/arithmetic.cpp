#include <cstring>
#include <limits>

#include "jinja/ops.hpp"

namespace fairlead::jinja {
namespace {

const char* symbol(Arithmetic op) {
  switch (op) {
    case Arithmetic::Add: return "+";
    case Arithmetic::Subtract: return "-";
    case Arithmetic::Multiply: return "*";
    case Arithmetic::Divide: return "/";
    case Arithmetic::FloorDivide: return "//";
    case Arithmetic::Modulo: return "%";
    case Arithmetic::Power: return "** or pow()";
  }
  return "+";
}

Value unsupported(Runtime& runtime, Arithmetic op, const Value& a, const Value& b) {
  return runtime.fail(std::string("unsupported operand type(s) for ") + symbol(op) + ": '" +
                      type_name(a) + "' and '" + type_name(b) + "'");
}

Value concatenate(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is_markup() != b.is_markup()) {
    const Value left = a.is_markup() ? a : escape(runtime, a);
    const Value right = b.is_markup() ? b : escape(runtime, b);
    return runtime.failed() ? Value::missing() : concatenate(runtime, left, right);
  }
  const std::size_t size = a.text().size() + b.text().size();
  if (!runtime.reserve(size)) {
    return Value::missing();
  }
  StringObject* object = StringObject::create(size);
  std::memcpy(object->data(), a.text().data(), a.text().size());
  std::memcpy(object->data() + a.text().size(), b.text().data(), b.text().size());
  return Value::text_of({object->data(), size}, object, a.is_markup());
}

Value concatenate_lists(Runtime& runtime, const Value& a, const Value& b) {
  const auto& left = as<ListObject>(a).items();
  const auto& right = as<ListObject>(b).items();
  if (!runtime.reserve((left.size() + right.size()) * sizeof(Value))) {
    return Value::missing();
  }
  std::vector<Value> items;
  items.reserve(left.size() + right.size());
  items.insert(items.end(), left.begin(), left.end());
  items.insert(items.end(), right.begin(), right.end());
  return runtime.sequence(a.kind(), std::move(items));
}

Value add(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is_string()) {
    return b.is_string() ? concatenate(runtime, a, b)
                         : runtime.fail(std::string("can only concatenate str (not \"") +
                                        type_name(b) + "\") to str");
  }
  if (a.kind() == Kind::List || a.kind() == Kind::Tuple) {
    return a.kind() == b.kind()
               ? concatenate_lists(runtime, a, b)
               : runtime.fail(std::string("can only concatenate ") + type_name(a) + " (not \"" +
                              type_name(b) + "\") to " + type_name(a));
  }
  return unsupported(runtime, Arithmetic::Add, a, b);
}

Value repeat(Runtime& runtime, const Value& sequence, const Value& times) {
  if (times.kind() == Kind::BigInt) {
    return runtime.fail("cannot fit 'int' into an index-sized integer");
  }
  const auto count = static_cast<std::uint64_t>(std::max<std::int64_t>(times.as_int(), 0));
  const bool string = sequence.is_string();
  const std::size_t unit =
      string ? sequence.text().size() : as<ListObject>(sequence).items().size() * sizeof(Value);
  constexpr std::uint64_t kFar = std::uint64_t{1} << 32;
  if (count > kFar || unit > kFar || !runtime.reserve(count * unit)) {
    return unit == 0 ? sequence : runtime.fail("the template uses too much memory");
  }
  if (string) {
    std::string out;
    out.reserve(count * unit);
    for (std::uint64_t i = 0; i < count && unit != 0; ++i) {
      out += sequence.text();
    }
    return runtime.string(out, sequence.is_markup());
  }
  const auto& source = as<ListObject>(sequence).items();
  std::vector<Value> items;
  items.reserve(count * source.size());
  for (std::uint64_t i = 0; i < count && unit != 0; ++i) {
    items.insert(items.end(), source.begin(), source.end());
  }
  return runtime.sequence(sequence.kind(), std::move(items));
}

bool is_sequence(const Value& value) {
  return value.is_string() || value.kind() == Kind::List || value.kind() == Kind::Tuple;
}

Value multiply(Runtime& runtime, const Value& a, const Value& b) {
  if (is_sequence(a) && is_integral(b)) {
    return repeat(runtime, a, b);
  }
  if (is_integral(a) && is_sequence(b)) {
    return repeat(runtime, b, a);
  }
  if (is_sequence(a) || is_sequence(b)) {
    return runtime.fail(std::string("can't multiply sequence by non-int of type '") +
                        type_name(is_sequence(a) ? b : a) + "'");
  }
  return unsupported(runtime, Arithmetic::Multiply, a, b);
}

}  // namespace

Value arithmetic(Runtime& runtime, Arithmetic op, const Value& a, const Value& b) {
  if (is_number(a) && is_number(b)) {
    return number_arithmetic(runtime, op, a, b);
  }
  if (op == Arithmetic::Modulo && a.is_string()) {
    return percent_format(runtime, a, b);
  }
  if (a.is_undefined() || b.is_undefined()) {
    return runtime.fail((a.is_undefined() ? a : b).undefined_message());
  }
  switch (op) {
    case Arithmetic::Add: return add(runtime, a, b);
    case Arithmetic::Multiply: return multiply(runtime, a, b);
    default: return unsupported(runtime, op, a, b);
  }
}

}  // namespace fairlead::jinja
