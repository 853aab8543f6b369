#pragma once

#include <cstdint>
#include <string_view>

#include "jinja/runtime.hpp"

namespace fairlead::jinja {

/// Methods of Python's built-in types that templates may name.
enum class Method : std::uint8_t {
  None,
  Append,
  AsIntegerRatio,
  BitCount,
  BitLength,
  Capitalize,
  Casefold,
  Center,
  Changed,
  Clear,
  Conjugate,
  Copy,
  Count,
  Cycle,
  Encode,
  EndsWith,
  ExpandTabs,
  Extend,
  Find,
  Format,
  FormatMap,
  FromKeys,
  Get,
  Hex,
  Index,
  Insert,
  IsAlnum,
  IsAlpha,
  IsAscii,
  IsDecimal,
  IsDigit,
  IsIdentifier,
  IsInteger,
  IsLower,
  IsNumeric,
  IsPrintable,
  IsSpace,
  IsTitle,
  IsUpper,
  Items,
  Join,
  Keys,
  LJust,
  LStrip,
  Lower,
  Next,
  Partition,
  Pop,
  PopItem,
  Remove,
  RemovePrefix,
  RemoveSuffix,
  Replace,
  Reset,
  Reverse,
  RFind,
  RIndex,
  RJust,
  RPartition,
  RSplit,
  RStrip,
  SetDefault,
  Sort,
  Split,
  SplitLines,
  StartsWith,
  Strip,
  StripTags,
  SwapCase,
  Title,
  Translate,
  Unescape,
  Update,
  Upper,
  Values,
  ZFill,
};

/// The method of that name of any type, or `None`.
Method find_method(std::string_view name);
/// Its name.
std::string_view method_name(Method method);

/// What a type makes of a method.
enum class Access : std::uint8_t { Absent, Allowed, Unsafe };
/// Whether `self` has `method`, and whether the sandbox lets templates call it.
Access method_access(const Value& self, Method method);

/// Calls an allowed method.
Value call_method(Runtime& runtime, const Value& self, Method method, const CallArgs& args);
/// Calls a method of a text.
Value call_string_method(Runtime& runtime, const Value& self, Method method, const CallArgs& args);
/// `str.format` as the sandbox provides it; with `mapping`, `str.format_map`.
Value string_format(Runtime& runtime, const Value& self, const CallArgs& args, bool mapping);
/// `format(value, spec)`.
Value format_value(Runtime& runtime, const Value& value, std::string_view spec);

/// A method taken from its object without being called.
class MethodObject final : public Object {
 public:
  /// `what` is allowed for `object`.
  MethodObject(Value object, Method what) : self(std::move(object)), method(what) {}
  const Value self;     ///< The object.
  const Method method;  ///< Allowed for it.
};

}  // namespace fairlead::jinja
