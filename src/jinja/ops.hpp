#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "jinja/methods.hpp"
#include "jinja/runtime.hpp"
#include "jinja/value.hpp"

namespace fairlead::jinja {

/// Python's name of the value's type.
const char* type_name(const Value& value);
/// How Jinja names the type in "... has no attribute": `None` for None.
const char* owner_type_name(const Value& value);
/// Place of a name returned by `owner_type_name` in the list of them.
std::uint8_t type_index(const char* name);
/// The inverse of `type_index`.
const char* indexed_type(std::uint32_t index);

/// Python's truth value.
bool truthy(const Value& value);
/// Python's `==`. Containers nested beyond the limit count as different.
bool equal(const Value& a, const Value& b);
/// `a is b`.
bool identical(const Value& a, const Value& b);
/// Equality of dict keys (as `equal`).
bool key_equal(const Value& a, const Value& b);
/// True when the value may be a dict key.
bool hashable(const Value& value);
/// Hash of a hashable value; equal values hash equally.
std::uint64_t hash_value(const Value& value);
/// Reports an unhashable key; false then.
bool check_hashable(Runtime& runtime, const Value& value);

/// Comparison operators.
enum class Order : std::uint8_t { Less, LessEqual, Greater, GreaterEqual };
/// Python's ordering; an error when the types have none.
std::optional<bool> ordered(Runtime& runtime, Order order, const Value& a, const Value& b);
/// `item in container`.
std::optional<bool> contains(Runtime& runtime, const Value& container, const Value& item);
/// `len(value)`.
std::optional<std::size_t> length(Runtime& runtime, const Value& value);

/// Appends `str(value)`; false on an error.
bool append_str(Runtime& runtime, std::string& out, const Value& value);
/// Appends `repr(value)`; false on an error.
bool append_repr(Runtime& runtime, std::string& out, const Value& value);
/// `str(value)` as a value; a plain text is returned as it is, `Markup` becomes plain.
Value to_str(Runtime& runtime, const Value& value);
/// MarkupSafe's `soft_str`: texts as they are, others through `str`.
Value soft_str(Runtime& runtime, const Value& value);
/// MarkupSafe's `escape`.
Value escape(Runtime& runtime, const Value& value);
/// Appends `repr` of a text.
void append_repr(std::string& out, std::string_view text);
/// `repr` of a float.
std::string repr_float(double value);

/// Arithmetic operators.
enum class Arithmetic : std::uint8_t {
  Add,
  Subtract,
  Multiply,
  Divide,
  FloorDivide,
  Modulo,
  Power
};
/// `a op b`.
Value arithmetic(Runtime& runtime, Arithmetic op, const Value& a, const Value& b);
/// The operator on two numbers (bool, int, float); both must be numbers.
Value number_arithmetic(Runtime& runtime, Arithmetic op, const Value& a, const Value& b);
/// `-a`.
Value negate(Runtime& runtime, const Value& a);
/// `+a`.
Value positive(Runtime& runtime, const Value& a);
/// True for bool, int and float.
bool is_number(const Value& value);
/// True for bool and int of any size.
bool is_integral(const Value& value);
/// A number as a float (infinite when too large).
double to_double(const Value& number);
/// An integral value of any size.
BigInt to_big(const Value& integral);
/// The smallest representation of an integer; an error when it is absurdly large.
Value from_big(Runtime& runtime, BigInt value);
/// Three-way comparison of two numbers, exact between int and float.
std::partial_ordering compare_numbers(const Value& a, const Value& b);
/// A float's integral part as an int; an error for infinities and NaN.
Value int_of_float(Runtime& runtime, double value);

/// Sandboxed `getattr(value, name)`, then the item. `name` must outlive the result.
Value get_attribute(Runtime& runtime, const Value& value, std::string_view name);
/// The same with the method of that name looked up before.
Value get_attribute(Runtime& runtime, const Value& value, std::string_view name, Method method);
/// The attribute alone, without falling back to the item; the unset marker when there is none.
Value find_attribute(Runtime& runtime, const Value& value, std::string_view name, Method method);
/// Sandboxed `value[key]`, then the attribute.
Value get_item(Runtime& runtime, const Value& value, const Value& key);
/// `value[start:stop:step]`; None where nothing was written.
Value slice(Runtime& runtime, const Value& value, const Value& start, const Value& stop,
            const Value& step);

/// `format % arguments` (printf-style).
Value percent_format(Runtime& runtime, const Value& format, const Value& arguments);

}  // namespace fairlead::jinja
