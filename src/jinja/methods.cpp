#include "jinja/methods.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <unordered_map>

#include "jinja/args.hpp"
#include "jinja/format_spec.hpp"
#include "jinja/loop.hpp"
#include "jinja/ops.hpp"

namespace fairlead::jinja {
namespace {

enum Type : std::uint16_t {
  kStr = 1 << 0,
  kList = 1 << 1,
  kTuple = 1 << 2,
  kDict = 1 << 3,
  kRange = 1 << 4,
  kInt = 1 << 5,
  kFloat = 1 << 6,
  kLoop = 1 << 7,
  kCycler = 1 << 8,
  kMarkup = 1 << 9,
  kDictFunction = 1 << 10,
};

struct Row {
  std::string_view name;
  Method method;
  std::uint16_t allowed;
  std::uint16_t unsafe;
};

constexpr std::array kRows = {
    Row{"append", Method::Append, 0, kList},
    Row{"as_integer_ratio", Method::AsIntegerRatio, kInt | kFloat, 0},
    Row{"bit_count", Method::BitCount, kInt, 0},
    Row{"bit_length", Method::BitLength, kInt, 0},
    Row{"capitalize", Method::Capitalize, kStr, 0},
    Row{"casefold", Method::Casefold, kStr, 0},
    Row{"center", Method::Center, kStr, 0},
    Row{"changed", Method::Changed, kLoop, 0},
    Row{"clear", Method::Clear, 0, kList | kDict},
    Row{"conjugate", Method::Conjugate, kInt | kFloat, 0},
    Row{"copy", Method::Copy, kList | kDict, 0},
    Row{"count", Method::Count, kStr | kList | kTuple | kRange, 0},
    Row{"cycle", Method::Cycle, kLoop, 0},
    Row{"encode", Method::Encode, kStr, 0},
    Row{"endswith", Method::EndsWith, kStr, 0},
    Row{"expandtabs", Method::ExpandTabs, kStr, 0},
    Row{"extend", Method::Extend, 0, kList},
    Row{"find", Method::Find, kStr, 0},
    Row{"format", Method::Format, kStr, 0},
    Row{"format_map", Method::FormatMap, kStr, 0},
    Row{"fromkeys", Method::FromKeys, kDict | kDictFunction, 0},
    Row{"get", Method::Get, kDict, 0},
    Row{"hex", Method::Hex, kFloat, 0},
    Row{"index", Method::Index, kStr | kList | kTuple | kRange, 0},
    Row{"insert", Method::Insert, 0, kList},
    Row{"isalnum", Method::IsAlnum, kStr, 0},
    Row{"isalpha", Method::IsAlpha, kStr, 0},
    Row{"isascii", Method::IsAscii, kStr, 0},
    Row{"isdecimal", Method::IsDecimal, kStr, 0},
    Row{"isdigit", Method::IsDigit, kStr, 0},
    Row{"isidentifier", Method::IsIdentifier, kStr, 0},
    Row{"is_integer", Method::IsInteger, kFloat, 0},
    Row{"islower", Method::IsLower, kStr, 0},
    Row{"isnumeric", Method::IsNumeric, kStr, 0},
    Row{"isprintable", Method::IsPrintable, kStr, 0},
    Row{"isspace", Method::IsSpace, kStr, 0},
    Row{"istitle", Method::IsTitle, kStr, 0},
    Row{"isupper", Method::IsUpper, kStr, 0},
    Row{"items", Method::Items, kDict, 0},
    Row{"join", Method::Join, kStr, 0},
    Row{"keys", Method::Keys, kDict, 0},
    Row{"ljust", Method::LJust, kStr, 0},
    Row{"lower", Method::Lower, kStr, 0},
    Row{"lstrip", Method::LStrip, kStr, 0},
    Row{"next", Method::Next, kCycler, 0},
    Row{"partition", Method::Partition, kStr, 0},
    Row{"pop", Method::Pop, 0, kList | kDict},
    Row{"popitem", Method::PopItem, 0, kDict},
    Row{"remove", Method::Remove, 0, kList},
    Row{"removeprefix", Method::RemovePrefix, kStr, 0},
    Row{"removesuffix", Method::RemoveSuffix, kStr, 0},
    Row{"replace", Method::Replace, kStr, 0},
    Row{"reset", Method::Reset, kCycler, 0},
    Row{"reverse", Method::Reverse, 0, kList},
    Row{"rfind", Method::RFind, kStr, 0},
    Row{"rindex", Method::RIndex, kStr, 0},
    Row{"rjust", Method::RJust, kStr, 0},
    Row{"rpartition", Method::RPartition, kStr, 0},
    Row{"rsplit", Method::RSplit, kStr, 0},
    Row{"rstrip", Method::RStrip, kStr, 0},
    Row{"setdefault", Method::SetDefault, 0, kDict},
    Row{"sort", Method::Sort, 0, kList},
    Row{"split", Method::Split, kStr, 0},
    Row{"splitlines", Method::SplitLines, kStr, 0},
    Row{"startswith", Method::StartsWith, kStr, 0},
    Row{"strip", Method::Strip, kStr, 0},
    Row{"striptags", Method::StripTags, kMarkup, 0},
    Row{"swapcase", Method::SwapCase, kStr, 0},
    Row{"title", Method::Title, kStr, 0},
    Row{"translate", Method::Translate, kStr, 0},
    Row{"unescape", Method::Unescape, kMarkup, 0},
    Row{"update", Method::Update, 0, kDict},
    Row{"upper", Method::Upper, kStr, 0},
    Row{"values", Method::Values, kDict, 0},
    Row{"zfill", Method::ZFill, kStr, 0},
};

const Row* row_of(Method method) {
  static const auto kByMethod = [] {
    std::array<const Row*, 256> rows{};
    for (const Row& row : kRows) {
      rows[static_cast<std::size_t>(row.method)] = &row;
    }
    return rows;
  }();
  return kByMethod[static_cast<std::size_t>(method)];
}

std::uint16_t type_of(const Value& value) {
  switch (value.kind()) {
    case Kind::String: return value.is_markup() ? kStr | kMarkup : kStr;
    case Kind::List: return kList;
    case Kind::Tuple: return kTuple;
    case Kind::Dict: return kDict;
    case Kind::Range: return kRange;
    case Kind::Bool:
    case Kind::Int:
    case Kind::BigInt: return kInt;
    case Kind::Float: return kFloat;
    case Kind::Loop: return kLoop;
    case Kind::Cycler: return kCycler;
    case Kind::Function:
      return std::string_view(as<FunctionObject>(value).name) == "dict" ? kDictFunction : 0;
    default: return 0;
  }
}

Value dict_from_keys(Runtime& runtime, const CallArgs& args) {
  const Bound<2> bound(runtime, "fromkeys", args, {"iterable", "value"}, 1);
  if (!bound) {
    return Value::missing();
  }
  DictStore store;
  Cursor cursor(runtime, *bound[0]);
  for (Value key; cursor.next(key);) {
    if (!runtime.step() || !check_hashable(runtime, key)) {
      return Value::missing();
    }
    store.set(key, bound[1] != nullptr ? *bound[1] : Value());
  }
  return runtime.failed() ? Value::missing() : runtime.dict(std::move(store));
}

Value dict_method(Runtime& runtime, const Value& self, Method method, const CallArgs& args) {
  if (method == Method::FromKeys) {
    return dict_from_keys(runtime, args);
  }
  if (method == Method::Get) {
    const Bound<2> bound(runtime, "get", args, {"key", "default"}, 1);
    if (!bound || !check_hashable(runtime, *bound[0])) {
      return Value::missing();
    }
    const Value* found = as<DictObject>(self).store().find(*bound[0]);
    if (found != nullptr) {
      return *found;
    }
    return bound[1] != nullptr ? *bound[1] : Value();
  }
  const Bound<0> none(runtime, method_name(method), args, {});
  if (!none) {
    return Value::missing();
  }
  switch (method) {
    case Method::Items: return make<ViewObject>(Kind::DictView, self, ViewKind::Items);
    case Method::Keys: return make<ViewObject>(Kind::DictView, self, ViewKind::Keys);
    case Method::Values: return make<ViewObject>(Kind::DictView, self, ViewKind::Values);
    default: return runtime.dict(as<DictObject>(self).store());
  }
}

Value sequence_index(Runtime& runtime, const Value& self, const CallArgs& args) {
  const Bound<3> bound(runtime, "index", args, {"value", "start", "stop"}, 1);
  if (!bound) {
    return Value::missing();
  }
  const auto begin = bound.integer(1, 0);
  const auto end = bound.integer(2, std::int64_t{1} << 40);
  if (!begin || !end) {
    return Value::missing();
  }
  const auto size = static_cast<std::int64_t>(length(runtime, self).value_or(0));
  const auto place = [size](std::int64_t at) {
    return at < 0 ? std::max<std::int64_t>(at + size, 0) : at;
  };
  Cursor cursor(runtime, self);
  std::int64_t at = 0;
  for (Value item; cursor.next(item); ++at) {
    if (!runtime.step()) {
      return Value::missing();
    }
    if (at >= place(*begin) && at < place(*end) && equal(item, *bound[0])) {
      return Value::integer(at);
    }
  }
  std::string message;
  append_repr(runtime, message, *bound[0]);
  return runtime.fail(message + " is not in " + type_name(self));
}

Value sequence_method(Runtime& runtime, const Value& self, Method method, const CallArgs& args) {
  if (method == Method::Index) {
    return sequence_index(runtime, self, args);
  }
  if (method == Method::Copy) {
    const Bound<0> none(runtime, "copy", args, {});
    return none ? to_list(runtime, self) : Value::missing();
  }
  const Bound<1> bound(runtime, "count", args, {"value"}, 1);
  if (!bound) {
    return Value::missing();
  }
  std::int64_t found = 0;
  Cursor cursor(runtime, self);
  for (Value item; cursor.next(item);) {
    if (!runtime.step()) {
      return Value::missing();
    }
    found += equal(item, *bound[0]) ? 1 : 0;
  }
  return runtime.failed() ? Value::missing() : Value::integer(found);
}

Value float_ratio(Runtime& runtime, double number) {
  if (!std::isfinite(number)) {
    return runtime.fail(std::string("cannot convert ") + (std::isnan(number) ? "NaN" : "Infinity") +
                        " to integer ratio");
  }
  constexpr int kDigits = 53;
  int exponent = 0;
  const double fraction = std::frexp(number, &exponent);
  auto numerator = static_cast<std::int64_t>(std::ldexp(fraction, kDigits));
  int shift = exponent - kDigits;
  for (; numerator != 0 && numerator % 2 == 0; numerator /= 2) {
    ++shift;
  }
  Value power = arithmetic(runtime, Arithmetic::Power, Value::integer(2),
                           Value::integer(numerator == 0 ? 0 : std::abs(shift)));
  if (power.is_missing()) {
    return power;
  }
  const Value whole = Value::integer(numerator);
  return shift < 0 || numerator == 0
             ? runtime.tuple({whole, power})
             : runtime.tuple(
                   {arithmetic(runtime, Arithmetic::Multiply, whole, power), Value::integer(1)});
}

std::string float_hex(double number) {
  if (!std::isfinite(number) || number == 0) {
    return number == 0 ? (std::signbit(number) ? "-0x0.0p+0" : "0x0.0p+0") : repr_float(number);
  }
  constexpr int kMantissaBits = 52;
  constexpr int kBias = 1023;
  const auto bits = std::bit_cast<std::uint64_t>(std::abs(number));
  const auto exponent = static_cast<int>(bits >> kMantissaBits);
  return fmt::format("{}0x{}.{:0>13x}p{:+d}", number < 0 ? "-" : "", exponent == 0 ? 0 : 1,
                     bits & ((std::uint64_t{1} << kMantissaBits) - 1),
                     std::max(exponent, 1) - kBias);
}

Value number_method(Runtime& runtime, const Value& self, Method method, const CallArgs& args) {
  const Bound<0> none(runtime, method_name(method), args, {});
  if (!none) {
    return Value::missing();
  }
  if (method == Method::IsInteger) {
    return Value::boolean(std::isfinite(self.as_float()) &&
                          self.as_float() == std::trunc(self.as_float()));
  }
  if (method == Method::Conjugate) {
    return positive(runtime, self);
  }
  if (method == Method::AsIntegerRatio) {
    return self.kind() == Kind::Float ? float_ratio(runtime, self.as_float())
                                      : runtime.tuple({positive(runtime, self), Value::integer(1)});
  }
  if (method == Method::Hex) {
    return runtime.string(float_hex(self.as_float()));
  }
  if (self.kind() == Kind::BigInt) {
    const std::string digits = int_digits(self, 'b');
    return Value::integer(method == Method::BitCount ? std::ranges::count(digits, '1')
                                                     : std::ssize(digits));
  }
  const std::int64_t number = self.as_int();
  const auto magnitude =
      number < 0 ? 0 - static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number);
  return Value::integer(method == Method::BitCount ? __builtin_popcountll(magnitude)
                        : magnitude == 0           ? 0
                                                   : 64 - __builtin_clzll(magnitude));
}

Value cycler_method(Runtime& runtime, const Value& self, Method method, const CallArgs& args) {
  const Bound<0> none(runtime, method_name(method), args, {});
  if (!none) {
    return Value::missing();
  }
  auto& cycler = as<CyclerObject>(self);
  if (method == Method::Reset) {
    cycler.position = 0;
    return {};
  }
  const auto& items = as<ListObject>(cycler.items).items();
  const Value current = items[cycler.position];
  cycler.position = (cycler.position + 1) % items.size();
  return current;
}

}  // namespace

Method find_method(std::string_view name) {
  static const auto kByName = [] {
    std::unordered_map<std::string_view, Method> map;
    for (const Row& row : kRows) {
      map.emplace(row.name, row.method);
    }
    return map;
  }();
  const auto found = kByName.find(name);
  return found == kByName.end() ? Method::None : found->second;
}

std::string_view method_name(Method method) {
  const Row* row = row_of(method);
  return row != nullptr ? row->name : std::string_view();
}

Access method_access(const Value& self, Method method) {
  const Row* row = row_of(method);
  if (row == nullptr) {
    return Access::Absent;
  }
  const std::uint16_t type = type_of(self);
  if ((row->allowed & type) != 0) {
    return Access::Allowed;
  }
  return (row->unsafe & type) != 0 ? Access::Unsafe : Access::Absent;
}

Value call_method(Runtime& runtime, const Value& self, Method method, const CallArgs& args) {
  if (!runtime.step()) {
    return Value::missing();
  }
  switch (self.kind()) {
    case Kind::String: return call_string_method(runtime, self, method, args);
    case Kind::Dict:
    case Kind::Function: return dict_method(runtime, self, method, args);
    case Kind::Loop:
      return method == Method::Cycle ? as<LoopObject>(self).cycle(runtime, args)
                                     : as<LoopObject>(self).changed(runtime, args);
    case Kind::Cycler: return cycler_method(runtime, self, method, args);
    case Kind::List:
    case Kind::Tuple:
    case Kind::Range: return sequence_method(runtime, self, method, args);
    default: return number_method(runtime, self, method, args);
  }
}

}  // namespace fairlead::jinja
