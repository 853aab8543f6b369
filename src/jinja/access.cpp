#include <algorithm>
#include <limits>

#include "jinja/loop.hpp"
#include "jinja/macro.hpp"
#include "jinja/ops.hpp"
#include "jinja/text.hpp"

namespace fairlead::jinja {
namespace {

bool is_dunder(std::string_view name) {
  return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
}

Value unsafe(const Value& value, std::string_view name) {
  return Value::undefined_hint("access to attribute '" + std::string(name) + "' of '" +
                               type_name(value) + "' object is unsafe.");
}

Value number_attribute(const Value& value, std::string_view name) {
  const bool integral = is_integral(value);
  if (name == "real" || (integral && name == "numerator")) {
    return value.kind() == Kind::Bool ? Value::integer(value.as_int()) : value;
  }
  if (name == "imag") {
    return integral ? Value::integer(0) : Value::number(0);
  }
  return integral && name == "denominator" ? Value::integer(1) : Value::missing();
}

Value range_attribute(const RangeObject& range, std::string_view name) {
  if (name == "start") {
    return Value::integer(range.start);
  }
  if (name == "stop") {
    return Value::integer(range.stop);
  }
  return name == "step" ? Value::integer(range.step) : Value::missing();
}

Value group_attribute(const ListObject& tuple, std::string_view name) {
  if (tuple.group && name == "grouper") {
    return tuple.items()[0];
  }
  return tuple.group && name == "list" ? tuple.items()[1] : Value::missing();
}

Value cycler_attribute(const CyclerObject& cycler, std::string_view name) {
  if (name == "current") {
    return as<ListObject>(cycler.items).items()[cycler.position];
  }
  if (name == "pos") {
    return Value::integer(static_cast<std::int64_t>(cycler.position));
  }
  return name == "items" ? cycler.items : Value::missing();
}

Value joiner_attribute(const JoinerObject& joiner, std::string_view name) {
  if (name == "sep") {
    return joiner.separator;
  }
  return name == "used" ? Value::boolean(joiner.used) : Value::missing();
}

Value no_element(Runtime& runtime, const Value& value, const Value& key) {
  std::string message = value.is_none() ? "None" : std::string(type_name(value)) + " object";
  if (key.is_string()) {
    return Value::undefined_hint("'" + message + "' has no attribute '" + std::string(key.text()) +
                                 "'");
  }
  message += " has no element ";
  if (!append_repr(runtime, message, key)) {
    return Value::missing();
  }
  return Value::undefined_hint(std::move(message));
}

// Python's index: counted from the end when negative; nothing when outside.
std::optional<std::size_t> element_index(const Value& key, std::size_t size) {
  if (key.kind() != Kind::Int && key.kind() != Kind::Bool) {
    return std::nullopt;
  }
  std::int64_t index = key.as_int();
  if (index < 0) {
    index += static_cast<std::int64_t>(size);
  }
  if (index < 0 || static_cast<std::size_t>(index) >= size) {
    return std::nullopt;
  }
  return static_cast<std::size_t>(index);
}

Value string_element(Runtime& runtime, const Value& value, const Value& key) {
  const std::string_view whole = value.text();
  if (!runtime.charge(whole.size())) {
    return Value::missing();
  }
  const bool ascii = text::is_ascii(whole);
  const auto index = element_index(key, ascii ? whole.size() : text::length(whole));
  if (!index) {
    return no_element(runtime, value, key);
  }
  const std::size_t begin = ascii ? *index : text::offset(whole, *index);
  const std::size_t size = text::offset(whole.substr(begin), 1);
  return Runtime::part(value, whole.substr(begin, size), value.is_markup());
}

struct Bounds {
  std::int64_t start = 0;
  std::int64_t stop = 0;
  std::int64_t step = 1;
};

// `slice.indices(size)`.
bool resolve_bound(Runtime& runtime, const Value& bound, std::int64_t& out) {
  if (bound.kind() == Kind::BigInt) {
    out = as<BigObject>(bound).value.negative() ? std::numeric_limits<std::int64_t>::min() / 2
                                                : std::numeric_limits<std::int64_t>::max() / 2;
    return true;
  }
  if (bound.kind() == Kind::Int || bound.kind() == Kind::Bool) {
    constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max() / 2;
    out = std::clamp(bound.as_int(), -kFar, kFar);
    return true;
  }
  runtime.fail("slice indices must be integers or None or have an __index__ method");
  return false;
}

bool resolve(Runtime& runtime, const Value& start, const Value& stop, const Value& step,
             std::int64_t size, Bounds& out) {
  if (!step.is_none() && !resolve_bound(runtime, step, out.step)) {
    return false;
  }
  if (out.step == 0) {
    runtime.fail("slice step cannot be zero");
    return false;
  }
  const bool forward = out.step > 0;
  const std::int64_t low = forward ? 0 : -1;
  const std::int64_t high = forward ? size : size - 1;
  const auto place = [&](const Value& bound, std::int64_t otherwise, std::int64_t& value) {
    if (bound.is_none()) {
      value = otherwise;
      return true;
    }
    if (!resolve_bound(runtime, bound, value)) {
      return false;
    }
    value = std::clamp(value < 0 ? value + size : value, low, high);
    return true;
  };
  return place(start, forward ? low : high, out.start) &&
         place(stop, forward ? high : low, out.stop);
}

Value string_slice(Runtime& runtime, const Value& value, const Value& start, const Value& stop,
                   const Value& step) {
  const std::string_view whole = value.text();
  if (!runtime.charge(whole.size())) {
    return Value::missing();
  }
  const std::size_t size = text::length(whole);
  Bounds bounds;
  if (!resolve(runtime, start, stop, step, static_cast<std::int64_t>(size), bounds)) {
    return Value::missing();
  }
  if (bounds.step == 1) {
    if (bounds.start >= bounds.stop) {
      return Runtime::part(value, whole.substr(0, 0), value.is_markup());
    }
    const std::size_t begin = text::offset(whole, static_cast<std::size_t>(bounds.start));
    const std::size_t end =
        begin +
        text::offset(whole.substr(begin), static_cast<std::size_t>(bounds.stop - bounds.start));
    return Runtime::part(value, whole.substr(begin, end - begin), value.is_markup());
  }
  std::vector<std::string_view> points;
  if (!runtime.reserve(size * sizeof(std::string_view))) {
    return Value::missing();
  }
  for (std::size_t pos = 0; pos < whole.size();) {
    const std::size_t width = text::offset(whole.substr(pos), 1);
    points.push_back(whole.substr(pos, width));
    pos += width;
  }
  std::string out;
  for (std::int64_t i = bounds.start; bounds.step > 0 ? i < bounds.stop : i > bounds.stop;
       i += bounds.step) {
    out += points[static_cast<std::size_t>(i)];
  }
  return runtime.string(out, value.is_markup());
}

Value list_slice(Runtime& runtime, const Value& value, const Value& start, const Value& stop,
                 const Value& step) {
  const auto& items = as<ListObject>(value).items();
  Bounds bounds;
  if (!resolve(runtime, start, stop, step, static_cast<std::int64_t>(items.size()), bounds)) {
    return Value::missing();
  }
  ListBuilder builder(runtime);
  for (std::int64_t i = bounds.start; bounds.step > 0 ? i < bounds.stop : i > bounds.stop;
       i += bounds.step) {
    if (!builder.push(items[static_cast<std::size_t>(i)])) {
      return Value::missing();
    }
  }
  return runtime.sequence(value.kind(), builder.take());
}

Value range_slice(Runtime& runtime, const Value& value, const Value& start, const Value& stop,
                  const Value& step) {
  const auto& range = as<RangeObject>(value);
  Bounds bounds;
  if (!resolve(runtime, start, stop, step, range.length, bounds)) {
    return Value::missing();
  }
  return make<RangeObject>(
      Kind::Range, range.start + bounds.start * range.step, range.start + bounds.stop * range.step,
      std::clamp<std::int64_t>(bounds.step, -1'000'000, 1'000'000) * range.step);
}

}  // namespace

Value find_attribute(Runtime& runtime, const Value& value, std::string_view name, Method method) {
  if (method != Method::None) {
    switch (method_access(value, method)) {
      case Access::Allowed: return make<MethodObject>(Kind::Method, value, method);
      case Access::Unsafe: return unsafe(value, name);
      case Access::Absent: break;
    }
  }
  switch (value.kind()) {
    case Kind::Bool:
    case Kind::Int:
    case Kind::BigInt:
    case Kind::Float: return number_attribute(value, name);
    case Kind::Range: return range_attribute(as<RangeObject>(value), name);
    case Kind::Tuple: return group_attribute(as<ListObject>(value), name);
    case Kind::Namespace: {
      const Value* found = as<NamespaceObject>(value).attributes.find(name);
      return found != nullptr ? *found : Value::missing();
    }
    case Kind::Loop: return as<LoopObject>(value).attribute(runtime, name);
    case Kind::Macro: return as<MacroObject>(value).attribute(name);
    case Kind::Cycler: return cycler_attribute(as<CyclerObject>(value), name);
    case Kind::Joiner: return joiner_attribute(as<JoinerObject>(value), name);
    default: return Value::missing();
  }
}

Value get_attribute(Runtime& runtime, const Value& value, std::string_view name) {
  return get_attribute(runtime, value, name, find_method(name));
}

Value get_attribute(Runtime& runtime, const Value& value, std::string_view name, Method method) {
  if (value.is_undefined()) {
    return runtime.fail(value.undefined_message());
  }
  if (value.kind() == Kind::Dict) {
    if (method != Method::None) {
      Value found = find_attribute(runtime, value, name, method);
      if (!found.is_missing()) {
        return found;
      }
    }
    if (const Value* item = as<DictObject>(value).store().find(name)) {
      return *item;
    }
  } else {
    Value found = find_attribute(runtime, value, name, method);
    if (!found.is_missing() || runtime.failed()) {
      return found;
    }
  }
  return is_dunder(name) ? unsafe(value, name)
                         : Value::undefined_name(name, owner_type_name(value));
}

Value get_item(Runtime& runtime, const Value& value, const Value& key) {
  switch (value.kind()) {
    case Kind::Undefined: return runtime.fail(value.undefined_message());
    case Kind::Dict:
      if (hashable(key)) {
        if (key.is_string() && !runtime.charge(key.text().size())) {
          return Value::missing();
        }
        if (const Value* item = as<DictObject>(value).store().find(key)) {
          return *item;
        }
      }
      break;
    case Kind::List:
    case Kind::Tuple: {
      const auto& items = as<ListObject>(value).items();
      if (const auto index = element_index(key, items.size())) {
        return items[*index];
      }
      break;
    }
    case Kind::String:
      if (!key.is_string()) {
        return string_element(runtime, value, key);
      }
      break;
    case Kind::Range: {
      const auto& range = as<RangeObject>(value);
      if (const auto index = element_index(key, static_cast<std::size_t>(range.length))) {
        return Value::integer(range.start + static_cast<std::int64_t>(*index) * range.step);
      }
      break;
    }
    default: break;
  }
  if (key.is_string()) {
    Value found = find_attribute(runtime, value, key.text(), find_method(key.text()));
    if (!found.is_missing() || runtime.failed()) {
      return found;
    }
  }
  return no_element(runtime, value, key);
}

Value slice(Runtime& runtime, const Value& value, const Value& start, const Value& stop,
            const Value& step) {
  switch (value.kind()) {
    case Kind::Undefined: return runtime.fail(value.undefined_message());
    case Kind::String: return string_slice(runtime, value, start, stop, step);
    case Kind::List:
    case Kind::Tuple: return list_slice(runtime, value, start, stop, step);
    case Kind::Range: return range_slice(runtime, value, start, stop, step);
    case Kind::Dict: return runtime.fail("unhashable type: 'slice'");
    default:
      return runtime.fail(std::string("'") + type_name(value) + "' object is not subscriptable");
  }
}

}  // namespace fairlead::jinja
