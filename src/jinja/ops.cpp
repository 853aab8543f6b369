#include "jinja/ops.hpp"

#include <xxhash.h>

#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>

#include "jinja/text.hpp"

namespace fairlead::jinja {
namespace {

constexpr std::array<const char*, 28> kTypeNames = {"None",
                                                    "Undefined",
                                                    "bool",
                                                    "int",
                                                    "float",
                                                    "str",
                                                    "Markup",
                                                    "list",
                                                    "tuple",
                                                    "dict",
                                                    "dict_items",
                                                    "dict_keys",
                                                    "dict_values",
                                                    "range",
                                                    "generator",
                                                    "TemplateNamespace",
                                                    "function",
                                                    "Macro",
                                                    "LoopContext",
                                                    "Cycler",
                                                    "Joiner",
                                                    "NoneType",
                                                    "builtin_function_or_method",
                                                    "list_reverseiterator",
                                                    "reversed",
                                                    "range_iterator",
                                                    "dict_reversekeyiterator",
                                                    "str_iterator"};

const char* view_type(ViewKind part) {
  switch (part) {
    case ViewKind::Items: return "dict_items";
    case ViewKind::Keys: return "dict_keys";
    case ViewKind::Values: return "dict_values";
  }
  return "dict_items";
}

// Chosen per process, so that nobody can prepare colliding keys.
std::uint64_t hash_seed() {
  static const std::uint64_t seed = [] {
    std::random_device device;
    return (static_cast<std::uint64_t>(device()) << 32) | device();
  }();
  return seed;
}

std::uint64_t hash_bytes(std::string_view bytes) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), hash_seed());
}

bool count_work(std::size_t bytes) {
  return current_runtime == nullptr || current_runtime->charge(bytes);
}

bool equal_at(const Value& a, const Value& b, int depth);

bool equal_lists(const Value& a, const Value& b, int depth) {
  const auto& left = as<ListObject>(a).items();
  const auto& right = as<ListObject>(b).items();
  if (&left == &right) {
    return true;
  }
  if (left.size() != right.size()) {
    return false;
  }
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (!identical(left[i], right[i]) && !equal_at(left[i], right[i], depth + 1)) {
      return false;
    }
  }
  return true;
}

bool equal_dicts(const Value& a, const Value& b, int depth) {
  const DictStore& left = as<DictObject>(a).store();
  const DictStore& right = as<DictObject>(b).store();
  if (&left == &right) {
    return true;
  }
  if (left.entries().size() != right.entries().size()) {
    return false;
  }
  for (const Pair& entry : left.entries()) {
    const Value* other = right.find(entry.first);
    if (other == nullptr ||
        !(identical(entry.second, *other) || equal_at(entry.second, *other, depth + 1))) {
      return false;
    }
  }
  return true;
}

bool equal_ranges(const RangeObject& a, const RangeObject& b) {
  return a.length == b.length &&
         (a.length == 0 || (a.start == b.start && (a.length == 1 || a.step == b.step)));
}

bool equal_at(const Value& a, const Value& b, int depth) {
  // Shared parts make some comparisons exponential, so they count as work.
  if (depth > 2 * kMaxNesting || !count_work(a.is_string() ? a.text().size() : 0)) {
    return false;
  }
  if (is_number(a) && is_number(b)) {
    return compare_numbers(a, b) == std::partial_ordering::equivalent;
  }
  if (a.kind() != b.kind()) {
    return false;
  }
  switch (a.kind()) {
    case Kind::Missing:
    case Kind::None:
    case Kind::Undefined: return true;
    case Kind::String: return a.text() == b.text();
    case Kind::List:
    case Kind::Tuple: return equal_lists(a, b, depth);
    case Kind::Dict: return equal_dicts(a, b, depth);
    case Kind::Range: return equal_ranges(as<RangeObject>(a), as<RangeObject>(b));
    default: return a.object() == b.object();
  }
}

std::optional<bool> ordered_lists(Runtime& runtime, Order order, const Value& a, const Value& b) {
  const auto& left = as<ListObject>(a).items();
  const auto& right = as<ListObject>(b).items();
  for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    if (!equal(left[i], right[i])) {
      return ordered(runtime, order, left[i], right[i]);
    }
  }
  const auto by_size = left.size() <=> right.size();
  switch (order) {
    case Order::Less: return by_size < 0;
    case Order::LessEqual: return by_size <= 0;
    case Order::Greater: return by_size > 0;
    case Order::GreaterEqual: return by_size >= 0;
  }
  return false;
}

bool holds(Order order, std::partial_ordering result) {
  switch (order) {
    case Order::Less: return result < 0;
    case Order::LessEqual: return result <= 0;
    case Order::Greater: return result > 0;
    case Order::GreaterEqual: return result >= 0;
  }
  return false;
}

const char* symbol(Order order) {
  switch (order) {
    case Order::Less: return "<";
    case Order::LessEqual: return "<=";
    case Order::Greater: return ">";
    case Order::GreaterEqual: return ">=";
  }
  return "<";
}

std::optional<bool> range_contains(const RangeObject& range, const Value& item) {
  if (item.kind() == Kind::Float || item.kind() == Kind::BigInt) {
    for (std::int64_t i = 0; i < range.length; ++i) {
      if (equal(Value::integer(range.start + i * range.step), item)) {
        return true;
      }
    }
    return false;
  }
  if (!is_integral(item)) {
    return false;
  }
  const std::int64_t value = item.as_int();
  const bool inside = range.step > 0 ? value >= range.start && value < range.stop
                                     : value <= range.start && value > range.stop;
  return inside && (value - range.start) % range.step == 0;
}

}  // namespace

const char* type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::Missing:
    case Kind::Undefined: return "Undefined";
    case Kind::None: return "NoneType";
    case Kind::Bool: return "bool";
    case Kind::Int:
    case Kind::BigInt: return "int";
    case Kind::Float: return "float";
    case Kind::String: return value.is_markup() ? "Markup" : "str";
    case Kind::List: return "list";
    case Kind::Tuple: return "tuple";
    case Kind::Dict: return "dict";
    case Kind::DictView: return view_type(as<ViewObject>(value).part);
    case Kind::Range: return "range";
    case Kind::Iterator: return as<IteratorObject>(value).type_name();
    case Kind::Namespace: return "TemplateNamespace";
    case Kind::Function: return "function";
    case Kind::Method: return "builtin_function_or_method";
    case Kind::Macro: return "Macro";
    case Kind::Loop: return "LoopContext";
    case Kind::Cycler: return "Cycler";
    case Kind::Joiner: return "Joiner";
  }
  return "object";
}

const char* owner_type_name(const Value& value) {
  return value.is_none() ? "None" : type_name(value);
}

std::uint8_t type_index(const char* name) {
  for (std::size_t i = 0; i < kTypeNames.size(); ++i) {
    if (kTypeNames[i] == name || std::strcmp(kTypeNames[i], name) == 0) {
      return static_cast<std::uint8_t>(i);
    }
  }
  return 0;
}

const char* indexed_type(std::uint32_t index) {
  return index < kTypeNames.size() ? kTypeNames[index] : "object";
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::Missing:
    case Kind::Undefined:
    case Kind::None: return false;
    case Kind::Bool:
    case Kind::Int: return value.as_int() != 0;
    case Kind::Float: return value.as_float() != 0;
    case Kind::String: return !value.text().empty();
    case Kind::List:
    case Kind::Tuple: {
      const auto& list = as<ListObject>(value);
      return list.source() != nullptr ? !list.source()->empty() : !list.items().empty();
    }
    case Kind::Dict: {
      const auto& dict = as<DictObject>(value);
      return dict.source() != nullptr ? !dict.source()->empty() : !dict.store().entries().empty();
    }
    case Kind::DictView: return truthy(as<ViewObject>(value).dict);
    case Kind::Range: return as<RangeObject>(value).length != 0;
    default: return true;
  }
}

bool equal(const Value& a, const Value& b) { return equal_at(a, b, 0); }

bool identical(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) {
    return false;
  }
  switch (a.kind()) {
    case Kind::Missing:
    case Kind::None: return true;
    case Kind::Bool: return a.as_bool() == b.as_bool();
    case Kind::Int: return a.as_int() == b.as_int() && a.as_int() >= -5 && a.as_int() <= 256;
    case Kind::Float: return false;
    case Kind::String:
      return a.text().data() == b.text().data() && a.text().size() == b.text().size();
    case Kind::Undefined: return a.object() != nullptr && a.object() == b.object();
    default: return a.object() == b.object();
  }
}

bool key_equal(const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) {
    return a.text() == b.text();
  }
  return equal(a, b);
}

bool hashable(const Value& value) {
  switch (value.kind()) {
    case Kind::List:
    case Kind::Dict: return false;
    case Kind::DictView: return as<ViewObject>(value).part == ViewKind::Values;
    case Kind::Tuple:
      for (const Value& item : as<ListObject>(value).items()) {
        if (!count_work(0) || !hashable(item)) {
          return false;
        }
      }
      return true;
    default: return true;
  }
}

std::uint64_t hash_value(const Value& value) {
  switch (value.kind()) {
    case Kind::String: return hash_bytes(value.text());
    case Kind::Bool:
    case Kind::Int: {
      const std::int64_t number = value.as_int();
      return hash_bytes({reinterpret_cast<const char*>(&number), sizeof number});
    }
    case Kind::BigInt: {
      // As the float it may equal.
      const double number = as<BigObject>(value).value.to_double();
      return hash_bytes({reinterpret_cast<const char*>(&number), sizeof number});
    }
    case Kind::Float: {
      const double number = value.as_float();
      constexpr double kLimit = 9223372036854775808.0;
      if (number == std::trunc(number) && number >= -kLimit && number < kLimit) {
        return hash_value(Value::integer(static_cast<std::int64_t>(number)));
      }
      return hash_bytes({reinterpret_cast<const char*>(&number), sizeof number});
    }
    case Kind::Tuple: {
      std::uint64_t hash = hash_seed();
      for (const Value& item : as<ListObject>(value).items()) {
        if (!count_work(0)) {
          break;
        }
        hash = (hash ^ hash_value(item)) * 0x9E3779B97F4A7C15U;
      }
      return hash;
    }
    case Kind::Missing:
    case Kind::None:
    case Kind::Undefined: return static_cast<std::uint64_t>(value.kind());
    default: return reinterpret_cast<std::uintptr_t>(value.object()) >> 4;
  }
}

bool check_hashable(Runtime& runtime, const Value& value) {
  if (hashable(value)) {
    return !value.is_string() || runtime.charge(value.text().size());
  }
  // Of a tuple, the element inside is at fault.
  if (value.kind() == Kind::Tuple) {
    for (const Value& item : as<ListObject>(value).items()) {
      if (!check_hashable(runtime, item)) {
        return false;
      }
    }
  }
  runtime.fail(std::string("unhashable type: '") + type_name(value) + "'");
  return false;
}

std::optional<bool> ordered(Runtime& runtime, Order order, const Value& a, const Value& b) {
  if (is_number(a) && is_number(b)) {
    return holds(order, compare_numbers(a, b));
  }
  if (a.is_string() && b.is_string()) {
    // The bytes of UTF-8 sort as the code points do.
    if (!runtime.charge(std::min(a.text().size(), b.text().size()))) {
      return std::nullopt;
    }
    return holds(order, a.text() <=> b.text());
  }
  if (a.kind() == b.kind() && (a.kind() == Kind::List || a.kind() == Kind::Tuple)) {
    return ordered_lists(runtime, order, a, b);
  }
  if (a.is_undefined() || b.is_undefined()) {
    runtime.fail((a.is_undefined() ? a : b).undefined_message());
    return std::nullopt;
  }
  runtime.fail(std::string("'") + symbol(order) + "' not supported between instances of '" +
               type_name(a) + "' and '" + type_name(b) + "'");
  return std::nullopt;
}

std::optional<bool> contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::String:
      if (!item.is_string()) {
        if (item.is_undefined()) {
          runtime.fail("'in <string>' requires string as left operand, not Undefined");
        } else {
          runtime.fail(std::string("'in <string>' requires string as left operand, not ") +
                       type_name(item));
        }
        return std::nullopt;
      }
      if (!runtime.charge_slow(container.text().size())) {
        return std::nullopt;
      }
      return text::find(container.text(), item.text()) != std::string_view::npos;
    case Kind::Dict:
      if (!check_hashable(runtime, item)) {
        return std::nullopt;
      }
      return as<DictObject>(container).store().find(item) != nullptr;
    case Kind::Range: return range_contains(as<RangeObject>(container), item);
    case Kind::DictView:
      if (as<ViewObject>(container).part == ViewKind::Keys) {
        return contains(runtime, as<ViewObject>(container).dict, item);
      }
      break;
    case Kind::List:
    case Kind::Tuple:
    case Kind::Iterator:
    case Kind::Undefined:
    case Kind::Loop: break;
    default:
      runtime.fail(std::string("argument of type '") + type_name(container) + "' is not iterable");
      return std::nullopt;
  }
  Cursor cursor(runtime, container);
  for (Value element; cursor.next(element);) {
    if (!runtime.step()) {
      return std::nullopt;
    }
    if (identical(element, item) || equal(element, item)) {
      return true;
    }
  }
  if (runtime.failed()) {
    return std::nullopt;
  }
  return false;
}

std::optional<std::size_t> length(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined: return 0;
    case Kind::String:
      if (!runtime.charge(value.text().size())) {
        return std::nullopt;
      }
      return text::length(value.text());
    case Kind::List:
    case Kind::Tuple: {
      const auto& list = as<ListObject>(value);
      return list.source() != nullptr ? list.source()->size() : list.items().size();
    }
    case Kind::Dict: {
      const auto& dict = as<DictObject>(value);
      return dict.source() != nullptr ? dict.source()->size() : dict.store().entries().size();
    }
    case Kind::DictView: return length(runtime, as<ViewObject>(value).dict);
    case Kind::Range: return static_cast<std::size_t>(as<RangeObject>(value).length);
    default:
      runtime.fail(std::string("object of type '") + type_name(value) + "' has no len()");
      return std::nullopt;
  }
}

}  // namespace fairlead::jinja
