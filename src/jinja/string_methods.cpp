#include <algorithm>

#include "base/utf8.hpp"
#include "jinja/args.hpp"
#include "jinja/methods.hpp"
#include "jinja/ops.hpp"
#include "jinja/string_layout.hpp"
#include "jinja/text.hpp"

namespace fairlead::jinja {
namespace {

constexpr std::int64_t kNoBound = std::int64_t{1} << 40;

Value part(const Value& self, std::string_view text) {
  return Runtime::part(self, text, self.is_markup());
}

Value strip(Runtime& runtime, const Value& self, Method method, const CallArgs& args) {
  const Bound<1> bound(runtime, method_name(method), args, {"chars"});
  if (!bound) {
    return Value::missing();
  }
  const text::Side side = method == Method::Strip    ? text::Side::Both
                          : method == Method::LStrip ? text::Side::Left
                                                     : text::Side::Right;
  if (!bound.given(0)) {
    return part(self, text::strip(self.text(), side));
  }
  const auto characters = bound.text(0, {});
  if (!characters || !runtime.charge(characters->size()) ||
      !runtime.charge_slow(self.text().size())) {
    return Value::missing();
  }
  return part(self, text::strip(self.text(), side, characters));
}

Value parts_to_list(Runtime& runtime, const Value& self,
                    const std::vector<std::string_view>& parts) {
  if (!runtime.reserve(parts.size() * sizeof(Value))) {
    return Value::missing();
  }
  std::vector<Value> items;
  items.reserve(parts.size());
  for (std::string_view piece : parts) {
    items.push_back(part(self, piece));
  }
  return runtime.list(std::move(items));
}

// Searching from the right is quadratic in the worst case.
bool charge_reverse_search(Runtime& runtime, std::string_view whole, std::string_view piece) {
  constexpr std::size_t kPerStep = 1024;
  return runtime.charge_slow(whole.size()) &&
         (piece.size() <= 16 ||
          runtime.step(whole.size() / 64 * (piece.size() / 16) / (kPerStep / 64)));
}

Value split(Runtime& runtime, const Value& self, Method method, const CallArgs& args) {
  const Bound<2> bound(runtime, method_name(method), args, {"sep", "maxsplit"});
  const auto limit = bound ? bound.integer(1, -1) : std::nullopt;
  // Worst case: one part per byte.
  if (!limit || !runtime.charge_slow(self.text().size())) {
    return Value::missing();
  }
  const bool right = method == Method::RSplit;
  if (!bound.given(0)) {
    const auto pieces = std::ranges::count_if(
        self.text(), [](char c) { return c <= ' '; });  // Bytes of other scripts are negative.
    if (!runtime.reserve(static_cast<std::size_t>(pieces + 1) * sizeof(std::string_view))) {
      return Value::missing();
    }
    return parts_to_list(
        runtime, self,
        right ? text::rsplit_space(self.text(), *limit) : text::split_space(self.text(), *limit));
  }
  const auto separator = bound.text(0, {});
  if (!separator) {
    return Value::missing();
  }
  if (separator->empty()) {
    return runtime.fail("empty separator");
  }
  const std::size_t pieces = text::count(self.text(), *separator) + 1;
  if (!runtime.reserve(pieces * sizeof(std::string_view)) ||
      (right && !charge_reverse_search(runtime, self.text(), *separator))) {
    return Value::missing();
  }
  return parts_to_list(runtime, self,
                       right ? text::rsplit(self.text(), *separator, *limit)
                             : text::split(self.text(), *separator, *limit));
}

Value partition(Runtime& runtime, const Value& self, Method method, const CallArgs& args) {
  const Bound<1> bound(runtime, method_name(method), args, {"sep"}, 1);
  const auto separator = bound ? bound.text(0, {}) : std::nullopt;
  if (!separator) {
    return Value::missing();
  }
  if (separator->empty()) {
    return runtime.fail("empty separator");
  }
  const std::string_view whole = self.text();
  const bool right = method == Method::RPartition;
  if (!charge_reverse_search(runtime, whole, *separator)) {
    return Value::missing();
  }
  const std::size_t at = right ? whole.rfind(*separator) : text::find(whole, *separator);
  if (at == std::string_view::npos) {
    const Value empty = part(self, whole.substr(0, 0));
    return right ? runtime.tuple({empty, empty, self}) : runtime.tuple({self, empty, empty});
  }
  return runtime.tuple({part(self, whole.substr(0, at)),
                        part(self, whole.substr(at, separator->size())),
                        part(self, whole.substr(at + separator->size()))});
}

// The part of the text between two optional code point positions, as bytes.
struct Window {
  std::size_t begin;
  std::size_t end;
  bool valid;
};

template <std::size_t N>
std::optional<Window> window(Runtime& runtime, const Value& self, const Bound<N>& bound) {
  const std::string_view whole = self.text();
  if (!bound.given(1) && !bound.given(2)) {
    return Window{0, whole.size(), true};
  }
  const auto start = bound.given(1) ? bound.integer(1, 0) : std::optional<std::int64_t>(0);
  const auto stop = bound.given(2) ? bound.integer(2, 0) : std::optional<std::int64_t>(kNoBound);
  if (!start || !stop || !runtime.charge(whole.size())) {
    return std::nullopt;
  }
  const auto size = static_cast<std::int64_t>(text::length(whole));
  const auto place = [size](std::int64_t at) {
    return at < 0 ? std::max<std::int64_t>(at + size, 0) : at;
  };
  const std::int64_t first = place(*start);
  const std::int64_t last = std::min(place(*stop), size);
  if (first > last) {
    return Window{0, 0, false};
  }
  return Window{text::offset(whole, static_cast<std::size_t>(first)),
                text::offset(whole, static_cast<std::size_t>(last)), true};
}

Value find(Runtime& runtime, const Value& self, Method method, const CallArgs& args) {
  const Bound<3> bound(runtime, method_name(method), args, {"sub", "start", "end"}, 1);
  const auto piece = bound ? bound.text(0, {}) : std::nullopt;
  if (!piece || !charge_reverse_search(runtime, self.text(), *piece)) {
    return Value::missing();
  }
  const auto range = window(runtime, self, bound);
  if (!range) {
    return Value::missing();
  }
  const bool right = method == Method::RFind || method == Method::RIndex;
  const std::string_view inside = self.text().substr(range->begin, range->end - range->begin);
  const std::size_t at = !range->valid ? std::string_view::npos
                         : right       ? inside.rfind(*piece)
                                       : text::find(inside, *piece);
  if (at != std::string_view::npos) {
    return Value::integer(
        static_cast<std::int64_t>(text::length(self.text().substr(0, range->begin + at))));
  }
  const bool index = method == Method::Index || method == Method::RIndex;
  return index ? runtime.fail("substring not found") : Value::integer(-1);
}

Value count(Runtime& runtime, const Value& self, const CallArgs& args) {
  const Bound<3> bound(runtime, "count", args, {"sub", "start", "end"}, 1);
  const auto piece = bound ? bound.text(0, {}) : std::nullopt;
  if (!piece || !runtime.charge_slow(self.text().size())) {
    return Value::missing();
  }
  const auto range = window(runtime, self, bound);
  if (!range) {
    return Value::missing();
  }
  return Value::integer(
      !range->valid ? 0
                    : static_cast<std::int64_t>(text::count(
                          self.text().substr(range->begin, range->end - range->begin), *piece)));
}

Value starts_or_ends(Runtime& runtime, const Value& self, Method method, const CallArgs& args) {
  const Bound<3> bound(runtime, method_name(method), args, {"prefix", "start", "end"}, 1);
  if (!bound) {
    return Value::missing();
  }
  const auto range = window(runtime, self, bound);
  if (!range) {
    return Value::missing();
  }
  const std::string_view inside = self.text().substr(range->begin, range->end - range->begin);
  const auto matches = [&](std::string_view affix) {
    return range->valid &&
           (method == Method::StartsWith ? inside.starts_with(affix) : inside.ends_with(affix));
  };
  if (bound[0]->is_string()) {
    return runtime.charge(bound[0]->text().size()) ? Value::boolean(matches(bound[0]->text()))
                                                   : Value::missing();
  }
  const std::string expected =
      std::string(method_name(method)) + " first arg must be str or a tuple of str, not ";
  if (bound[0]->kind() != Kind::Tuple) {
    return runtime.fail(expected + type_name(*bound[0]));
  }
  for (const Value& affix : as<ListObject>(*bound[0]).items()) {
    if (!affix.is_string()) {
      return runtime.fail("tuple for " + std::string(method_name(method)) +
                          " must only contain str, not " + type_name(affix));
    }
    if (!runtime.charge(affix.text().size())) {
      return Value::missing();
    }
    if (!runtime.step()) {
      return Value::missing();
    }
    if (matches(affix.text())) {
      return Value::boolean(true);
    }
  }
  return Value::boolean(false);
}

Value replace(Runtime& runtime, const Value& self, const CallArgs& args) {
  const Bound<3> bound(runtime, "replace", args, {"old", "new", "count"}, 2);
  const auto from = bound ? bound.text(0, {}) : std::nullopt;
  const auto to = bound ? bound.text(1, {}) : std::nullopt;
  const auto limit = bound ? bound.integer(2, -1) : std::nullopt;
  if (!from || !to || !limit || !runtime.charge_slow(self.text().size())) {
    return Value::missing();
  }
  Value escaped = self.is_markup() ? escape(runtime, *bound[1]) : *bound[1];
  if (escaped.is_missing()) {
    return escaped;
  }
  if (*limit != 0 && !from->empty() && text::find(self.text(), *from) == std::string_view::npos) {
    return self;
  }
  const auto result =
      text::replace(self.text(), *from, escaped.text(), *limit, runtime.text_room());
  return result ? runtime.string(*result, self.is_markup())
                : runtime.fail("the template uses too much memory");
}

Value join(Runtime& runtime, const Value& self, const CallArgs& args) {
  const Bound<1> bound(runtime, "join", args, {"iterable"}, 1);
  if (!bound) {
    return Value::missing();
  }
  std::string out;
  Cursor cursor(runtime, *bound[0]);
  std::size_t index = 0;
  for (Value item; cursor.next(item); ++index) {
    if (self.is_markup()) {
      item = escape(runtime, item);
      if (item.is_missing()) {
        return item;
      }
    }
    if (!item.is_string()) {
      return runtime.fail("sequence item " + std::to_string(index) + ": expected str instance, " +
                          type_name(item) + " found");
    }
    if (!runtime.charge(item.text().size()) || out.size() > runtime.text_room()) {
      return runtime.fail("the template uses too much memory");
    }
    out += index == 0 ? std::string_view() : self.text();
    out += item.text();
  }
  return runtime.failed() ? Value::missing() : runtime.string(out, self.is_markup());
}

Value remove_affix(Runtime& runtime, const Value& self, Method method, const CallArgs& args) {
  const Bound<1> bound(runtime, method_name(method), args, {"affix"}, 1);
  const auto affix = bound ? bound.text(0, {}) : std::nullopt;
  if (!affix) {
    return Value::missing();
  }
  std::string_view rest = self.text();
  if (method == Method::RemovePrefix && rest.starts_with(*affix)) {
    rest.remove_prefix(affix->size());
  } else if (method == Method::RemoveSuffix && rest.ends_with(*affix)) {
    rest.remove_suffix(affix->size());
  }
  return part(self, rest);
}

Value translate(Runtime& runtime, const Value& self, const CallArgs& args) {
  const Bound<1> bound(runtime, "translate", args, {"table"}, 1);
  if (!bound) {
    return Value::missing();
  }
  if (bound[0]->kind() != Kind::Dict) {
    return runtime.fail(std::string("'") + type_name(*bound[0]) + "' object is not subscriptable");
  }
  const DictStore& table = as<DictObject>(*bound[0]).store();
  std::string out;
  for (std::size_t pos = 0; pos < self.text().size();) {
    const std::size_t start = pos;
    const char32_t c = utf8::decode(self.text(), pos);
    const Value* to = table.find(Value::integer(static_cast<std::int64_t>(c)));
    if (!runtime.step() || out.size() > runtime.text_room()) {
      return runtime.fail("the template uses too much memory");
    }
    if (to == nullptr) {
      out += self.text().substr(start, pos - start);
    } else if (to->is_string()) {
      out += to->text();
    } else if (to->kind() == Kind::Int && to->as_int() >= 0 && to->as_int() < 0x110000) {
      utf8::append(out, static_cast<char32_t>(to->as_int()));
    } else if (!to->is_none()) {
      return runtime.fail("character mapping must return integer, None or str");
    }
  }
  return runtime.string(out, self.is_markup());
}

}  // namespace

Value call_string_method(Runtime& runtime, const Value& self, Method method, const CallArgs& args) {
  switch (method) {
    case Method::Strip:
    case Method::LStrip:
    case Method::RStrip: return strip(runtime, self, method, args);
    case Method::Split:
    case Method::RSplit: return split(runtime, self, method, args);
    case Method::StartsWith:
    case Method::EndsWith: return starts_or_ends(runtime, self, method, args);
    case Method::Replace: return replace(runtime, self, args);
    case Method::Join: return join(runtime, self, args);
    case Method::Format: return string_format(runtime, self, args, false);
    case Method::FormatMap: {
      if (args.positional.size() != 1 || !args.named.empty()) {
        return runtime.fail("format_map() takes exactly one argument");
      }
      return string_format(runtime, self, args, true);
    }
    case Method::Find:
    case Method::RFind:
    case Method::Index:
    case Method::RIndex: return find(runtime, self, method, args);
    case Method::Count: return count(runtime, self, args);
    case Method::Partition:
    case Method::RPartition: return partition(runtime, self, method, args);
    case Method::Center:
    case Method::LJust:
    case Method::RJust: return justify(runtime, self, method, args);
    case Method::ZFill: return zfill(runtime, self, args);
    case Method::ExpandTabs: return expand_tabs(runtime, self, args);
    case Method::RemovePrefix:
    case Method::RemoveSuffix: return remove_affix(runtime, self, method, args);
    case Method::Translate: return translate(runtime, self, args);
    case Method::SplitLines: {
      const Bound<1> bound(runtime, "splitlines", args, {"keepends"});
      const auto breaks = std::ranges::count_if(
          self.text(), [](char c) { return c < ' '; });  // Bytes of other scripts are negative.
      const auto keep = bound ? bound.integer(0, 0) : std::nullopt;
      if (!keep ||
          !runtime.reserve(static_cast<std::size_t>(breaks + 1) * sizeof(std::string_view))) {
        return Value::missing();
      }
      return parts_to_list(runtime, self, text::split_lines(self.text(), *keep != 0));
    }
    case Method::Encode:
    case Method::StripTags:
    case Method::Unescape:
      return runtime.fail("str." + std::string(method_name(method)) +
                          "() is not supported in templates");
    default: break;
  }
  const Bound<0> none(runtime, method_name(method), args, {});
  if (!none || !runtime.charge_slow(self.text().size())) {
    return Value::missing();
  }
  switch (method) {
    case Method::Upper:
    case Method::Lower:
    case Method::Title:
    case Method::Capitalize:
    case Method::Casefold:
    case Method::SwapCase:
      return runtime.string(change_case(self.text(), method), self.is_markup());
    default: return Value::boolean(has_property(self.text(), method));
  }
}

}  // namespace fairlead::jinja
