#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "jinja/ops.hpp"

namespace fairlead::jinja {
namespace {

// Largest integers that templates may make, in base-10^9 digits; Python refuses to print much
// smaller ones.
constexpr std::size_t kMaxLimbs = 1200;

bool both_small(const Value& a, const Value& b) {
  return a.kind() != Kind::BigInt && b.kind() != Kind::BigInt;
}

Value zero_division(Runtime& runtime, Arithmetic op, bool floats) {
  switch (op) {
    case Arithmetic::Divide:
      return runtime.fail(floats ? "float division by zero" : "division by zero");
    case Arithmetic::FloorDivide:
      return runtime.fail(floats ? "float floor division by zero"
                                 : "integer division or modulo by zero");
    case Arithmetic::Modulo:
      return runtime.fail(floats ? "float modulo" : "integer modulo by zero");
    default: return runtime.fail("0.0 cannot be raised to a negative power");
  }
}

// Python's float floor division and modulo: the remainder takes the divisor's sign.
void float_divmod(double a, double b, double& quotient, double& remainder) {
  remainder = std::fmod(a, b);
  double difference = (a - remainder) / b;
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) {
      remainder += b;
      difference -= 1;
    }
  } else {
    remainder = std::copysign(0.0, b);
  }
  if (difference != 0) {
    quotient = std::floor(difference);
    if (difference - quotient > 0.5) {
      quotient += 1;
    }
  } else {
    quotient = std::copysign(0.0, a / b);
  }
}

Value float_power(Runtime& runtime, double a, double b) {
  if (a == 0 && b < 0) {
    return zero_division(runtime, Arithmetic::Power, true);
  }
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
    return runtime.fail("complex numbers are not supported");
  }
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
    return runtime.fail("(34, 'Numerical result out of range')");
  }
  return Value::number(result);
}

Value float_arithmetic(Runtime& runtime, Arithmetic op, double a, double b) {
  switch (op) {
    case Arithmetic::Add: return Value::number(a + b);
    case Arithmetic::Subtract: return Value::number(a - b);
    case Arithmetic::Multiply: return Value::number(a * b);
    case Arithmetic::Power: return float_power(runtime, a, b);
    default: break;
  }
  if (b == 0) {
    return zero_division(runtime, op, true);
  }
  if (op == Arithmetic::Divide) {
    return Value::number(a / b);
  }
  double quotient = 0;
  double remainder = 0;
  float_divmod(a, b, quotient, remainder);
  return Value::number(op == Arithmetic::FloorDivide ? quotient : remainder);
}

Value big_power(Runtime& runtime, const Value& a, const Value& b) {
  if (b.kind() == Kind::BigInt) {
    if (a.kind() != Kind::BigInt && (a.as_int() == 0 || a.as_int() == 1)) {
      return Value::integer(a.as_int());
    }
    return runtime.fail("exponent too large");
  }
  std::int64_t exponent = b.as_int();
  BigInt base = to_big(a);
  BigInt result(1);
  while (exponent > 0) {
    if (result.limbs() > kMaxLimbs || base.limbs() > kMaxLimbs) {
      return runtime.fail("integer too large");
    }
    if (!runtime.step(1 + (base.limbs() * base.limbs()))) {
      return Value::missing();
    }
    if ((exponent & 1) != 0) {
      result = result * base;
    }
    exponent >>= 1;
    if (exponent > 0) {
      base = base * base;
    }
  }
  return from_big(runtime, std::move(result));
}

Value big_arithmetic(Runtime& runtime, Arithmetic op, const Value& a, const Value& b) {
  const BigInt left = to_big(a);
  const BigInt right = to_big(b);
  if (!runtime.step(1 + (left.limbs() * right.limbs()))) {
    return Value::missing();
  }
  switch (op) {
    case Arithmetic::Add: return from_big(runtime, left + right);
    case Arithmetic::Subtract: return from_big(runtime, left - right);
    case Arithmetic::Multiply: return from_big(runtime, left * right);
    case Arithmetic::Power:
      if (right.negative()) {
        return float_power(runtime, left.to_double(), right.to_double());
      }
      return big_power(runtime, a, b);
    default: break;
  }
  if (right.zero()) {
    return zero_division(runtime, op, false);
  }
  if (op == Arithmetic::Divide) {
    const double quotient = left.to_double() / right.to_double();
    return std::isfinite(quotient) ? Value::number(quotient)
                                   : runtime.fail("integer division result too large for a float");
  }
  BigInt quotient;
  BigInt remainder;
  if (!runtime.step(left.limbs() * (right.limbs() + 1) * 64)) {
    return Value::missing();
  }
  BigInt::divide(left, right, quotient, remainder);
  return from_big(runtime,
                  op == Arithmetic::FloorDivide ? std::move(quotient) : std::move(remainder));
}

Value int_divide(std::int64_t a, std::int64_t b) {
  // Python rounds the exact quotient once; wide floats do that for all but the largest operands.
  return Value::number(
      static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
}

Value small_arithmetic(Runtime& runtime, Arithmetic op, const Value& left, const Value& right) {
  const std::int64_t a = left.as_int();
  const std::int64_t b = right.as_int();
  std::int64_t result = 0;
  switch (op) {
    case Arithmetic::Add:
      return __builtin_add_overflow(a, b, &result) ? big_arithmetic(runtime, op, left, right)
                                                   : Value::integer(result);
    case Arithmetic::Subtract:
      return __builtin_sub_overflow(a, b, &result) ? big_arithmetic(runtime, op, left, right)
                                                   : Value::integer(result);
    case Arithmetic::Multiply:
      return __builtin_mul_overflow(a, b, &result) ? big_arithmetic(runtime, op, left, right)
                                                   : Value::integer(result);
    case Arithmetic::Power:
      if (b < 0) {
        return float_power(runtime, static_cast<double>(a), static_cast<double>(b));
      }
      return big_power(runtime, left, right);
    default: break;
  }
  if (b == 0) {
    return zero_division(runtime, op, false);
  }
  if (op == Arithmetic::Divide) {
    return int_divide(a, b);
  }
  if (b == -1) {
    return op == Arithmetic::Modulo ? Value::integer(0) : negate(runtime, Value::integer(a));
  }
  const std::int64_t remainder = a % b;
  const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);
  if (op == Arithmetic::Modulo) {
    return Value::integer(adjust ? remainder + b : remainder);
  }
  return Value::integer(a / b - (adjust ? 1 : 0));
}

std::partial_ordering compare_big_float(const BigInt& a, double b) {
  if (std::isnan(b)) {
    return std::partial_ordering::unordered;
  }
  if (std::isinf(b)) {
    return b > 0 ? std::partial_ordering::less : std::partial_ordering::greater;
  }
  const auto whole = a <=> BigInt::from_double(b);
  if (whole != std::strong_ordering::equal) {
    return whole;
  }
  return 0.0 <=> (b - std::trunc(b));
}

}  // namespace

bool is_number(const Value& value) {
  return value.kind() == Kind::Int || value.kind() == Kind::Float || value.kind() == Kind::Bool ||
         value.kind() == Kind::BigInt;
}

bool is_integral(const Value& value) {
  return value.kind() == Kind::Int || value.kind() == Kind::Bool || value.kind() == Kind::BigInt;
}

double to_double(const Value& number) {
  switch (number.kind()) {
    case Kind::Float: return number.as_float();
    case Kind::BigInt: return as<BigObject>(number).value.to_double();
    default: return static_cast<double>(number.as_int());
  }
}

BigInt to_big(const Value& integral) {
  return integral.kind() == Kind::BigInt ? as<BigObject>(integral).value
                                         : BigInt(integral.as_int());
}

Value from_big(Runtime& runtime, BigInt value) {
  if (const auto small = value.small()) {
    return Value::integer(*small);
  }
  if (value.limbs() > 2 * kMaxLimbs || !runtime.reserve(value.limbs() * sizeof(std::uint32_t))) {
    return runtime.fail("integer too large");
  }
  return make<BigObject>(Kind::BigInt, std::move(value));
}

std::partial_ordering compare_numbers(const Value& a, const Value& b) {
  const bool float_a = a.kind() == Kind::Float;
  const bool float_b = b.kind() == Kind::Float;
  if (float_a && float_b) {
    return a.as_float() <=> b.as_float();
  }
  constexpr double kExact = 9007199254740992.0;
  if (float_a || float_b) {
    if (both_small(a, b) && std::abs(to_double(a)) < kExact && std::abs(to_double(b)) < kExact) {
      return to_double(a) <=> to_double(b);
    }
    if (float_b) {
      return compare_big_float(to_big(a), b.as_float());
    }
    const auto reversed = compare_big_float(to_big(b), a.as_float());
    return 0 <=> reversed;
  }
  if (both_small(a, b)) {
    return a.as_int() <=> b.as_int();
  }
  return to_big(a) <=> to_big(b);
}

Value number_arithmetic(Runtime& runtime, Arithmetic op, const Value& a, const Value& b) {
  if (a.kind() == Kind::Float || b.kind() == Kind::Float) {
    const double left = to_double(a);
    const double right = to_double(b);
    if ((std::isinf(left) && a.kind() == Kind::BigInt) ||
        (std::isinf(right) && b.kind() == Kind::BigInt)) {
      return runtime.fail("int too large to convert to float");
    }
    return float_arithmetic(runtime, op, left, right);
  }
  return both_small(a, b) ? small_arithmetic(runtime, op, a, b) : big_arithmetic(runtime, op, a, b);
}

Value negate(Runtime& runtime, const Value& a) {
  switch (a.kind()) {
    case Kind::Float: return Value::number(-a.as_float());
    case Kind::BigInt: return from_big(runtime, -as<BigObject>(a).value);
    case Kind::Bool:
    case Kind::Int:
      return a.as_int() == std::numeric_limits<std::int64_t>::min()
                 ? from_big(runtime, -BigInt(a.as_int()))
                 : Value::integer(-a.as_int());
    case Kind::Undefined: return runtime.fail(a.undefined_message());
    default:
      return runtime.fail(std::string("bad operand type for unary -: '") + type_name(a) + "'");
  }
}

Value positive(Runtime& runtime, const Value& a) {
  switch (a.kind()) {
    case Kind::Float:
    case Kind::BigInt: return a;
    case Kind::Bool:
    case Kind::Int: return Value::integer(a.as_int());
    case Kind::Undefined: return runtime.fail(a.undefined_message());
    default:
      return runtime.fail(std::string("bad operand type for unary +: '") + type_name(a) + "'");
  }
}

Value int_of_float(Runtime& runtime, double value) {
  if (std::isnan(value)) {
    return runtime.fail("cannot convert float NaN to integer");
  }
  if (std::isinf(value)) {
    return runtime.fail("cannot convert float infinity to integer");
  }
  return from_big(runtime, BigInt::from_double(value));
}

std::string repr_float(double value) {
  if (std::isnan(value)) {
    return "nan";
  }
  if (std::isinf(value)) {
    return value < 0 ? "-inf" : "inf";
  }
  std::array<char, 32> buffer{};
  const auto printed = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                     std::chars_format::scientific);
  const std::string_view shortest(buffer.data(),
                                  static_cast<std::size_t>(printed.ptr - buffer.data()));
  const std::size_t mark = shortest.find('e');
  int exponent = 0;
  const char* digits_of_exponent = shortest.data() + mark + (shortest[mark + 1] == '+' ? 2 : 1);
  std::from_chars(digits_of_exponent, shortest.data() + shortest.size(), exponent);
  // Python switches to the exponent form outside 1e-4 ... 1e16.
  if (exponent < -4 || exponent >= 16) {
    return std::string(shortest);
  }
  std::string digits;
  for (char c : shortest.substr(0, mark)) {
    if (c >= '0' && c <= '9') {
      digits += c;
    }
  }
  std::string out = std::signbit(value) ? "-" : "";
  const std::size_t point = exponent < 0 ? 0 : static_cast<std::size_t>(exponent) + 1;
  if (exponent < 0) {
    out += "0.";
    out.append(static_cast<std::size_t>(-1 - exponent), '0');
    out += digits;
  } else if (digits.size() <= point) {
    out += digits + std::string(point - digits.size(), '0') + ".0";
  } else {
    out += digits.substr(0, point) + "." + digits.substr(point);
  }
  return out;
}

}  // namespace fairlead::jinja
