#pragma once

#include <string_view>

#include "jinja/runtime.hpp"

namespace fairlead::jinja {

/// A filter or test: what stands on its left, and its arguments. Tests answer with a boolean.
using Builtin = Value (*)(Runtime& runtime, const Value& input, const CallArgs& args);

/// The filter of that name, or null.
Builtin find_filter(std::string_view name);
/// The test of that name, or null.
Builtin find_test(std::string_view name);
/// The global function of that name, or the unset marker.
Value find_global(std::string_view name);

/// A name and what it stands for.
struct BuiltinRow {
  std::string_view name;  ///< As templates write it.
  Builtin function;       ///< What it does.
};

/// Filters on texts.
std::span<const BuiltinRow> text_filters();
/// Filters on numbers.
std::span<const BuiltinRow> number_filters();
/// Filters that walk a sequence at once.
std::span<const BuiltinRow> sequence_filters();
/// Filters that yield elements lazily.
std::span<const BuiltinRow> lazy_filters();

/// `json.dumps` with transformers' defaults.
Value filter_tojson(Runtime& runtime, const Value& input, const CallArgs& args);
/// Parses like Python's `int(text, base)`; nothing when it is none.
std::optional<BigInt> parse_int(std::string_view text, int base);
/// Parses like Python's `float(text)`; nothing when it is none.
std::optional<double> parse_float(std::string_view text);
/// `datetime.strftime(format)` of the runtime's time.
Value strftime_now(Runtime& runtime, const CallArgs& args);

/// Looks up a dotted attribute path, as many filters take it.
class AttributeGetter {
 public:
  /// `attribute`: a text with dots, an integer, or None for the element itself. `otherwise`
  /// replaces undefined steps unless it is null or None.
  AttributeGetter(Runtime& runtime, const Value* attribute, bool ignore_case,
                  const Value* otherwise = nullptr);
  /// The value of the path in `item`.
  Value operator()(const Value& item) const;

 private:
  Runtime& runtime_;
  std::vector<Value> parts_;
  bool ignore_case_;
  Value otherwise_;
};

/// Texts in lower case, everything else as it is.
Value fold_case(Runtime& runtime, const Value& value);

}  // namespace fairlead::jinja
