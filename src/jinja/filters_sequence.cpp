#include <algorithm>
#include <array>
#include <random>

#include "jinja/args.hpp"
#include "jinja/builtins.hpp"
#include "jinja/sorting.hpp"
#include "jinja/text.hpp"
#include "jinja/unicode.hpp"

namespace fairlead::jinja {
namespace {

Value filter_length(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<0> none(runtime, "length", args, {});
  const auto size = none ? length(runtime, input) : std::nullopt;
  return size ? Value::integer(static_cast<std::int64_t>(*size)) : Value::missing();
}

Value filter_default(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<2> bound(runtime, "default", args, {"default_value", "boolean"});
  if (!bound) {
    return Value::missing();
  }
  if (input.is_undefined() || (bound.flag(1, false) && !truthy(input))) {
    return bound[0] != nullptr ? *bound[0] : Value::borrowed("");
  }
  return input;
}

Value filter_first(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<0> none(runtime, "first", args, {});
  if (!none) {
    return Value::missing();
  }
  Cursor cursor(runtime, input);
  Value item;
  if (cursor.next(item)) {
    return item;
  }
  return runtime.failed() ? Value::missing()
                          : Value::undefined_hint("No first item, sequence was empty.");
}

bool reversible(const Value& value) {
  switch (value.kind()) {
    case Kind::List:
    case Kind::Tuple:
    case Kind::String:
    case Kind::Dict:
    case Kind::DictView:
    case Kind::Range:
    case Kind::Undefined: return true;
    default: return false;
  }
}

Value filter_last(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<0> none(runtime, "last", args, {});
  if (!none) {
    return Value::missing();
  }
  if (!reversible(input)) {
    return runtime.fail(std::string("'") + type_name(input) + "' object is not reversible");
  }
  if (input.kind() == Kind::String && !input.text().empty()) {
    return get_item(runtime, input, Value::integer(-1));
  }
  Value list =
      input.kind() == Kind::List || input.kind() == Kind::Tuple ? input : to_list(runtime, input);
  if (list.is_missing()) {
    return list;
  }
  const auto& items = as<ListObject>(list).items();
  return items.empty() ? Value::undefined_hint("No last item, sequence was empty.") : items.back();
}

Value filter_list(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<0> none(runtime, "list", args, {});
  return none ? to_list(runtime, input) : Value::missing();
}

Value filter_join(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<2> bound(runtime, "join", args, {"d", "attribute"});
  if (!bound) {
    return Value::missing();
  }
  Value separator = bound[0] != nullptr ? to_str(runtime, *bound[0]) : Value::borrowed("");
  if (separator.is_missing()) {
    return separator;
  }
  const AttributeGetter getter(runtime, bound[1], false);
  std::string out;
  bool first = true;
  Cursor cursor(runtime, input);
  for (Value item; cursor.next(item);) {
    if (!first) {
      out += separator.text();
    }
    first = false;
    Value part = getter(item);
    if (part.is_missing() || !runtime.step() || !append_str(runtime, out, part)) {
      return Value::missing();
    }
    if (out.size() > runtime.text_room()) {
      return runtime.fail("the template uses too much memory");
    }
  }
  return runtime.failed() ? Value::missing() : runtime.string(out);
}

class ReversedIterator final : public IteratorObject {
 public:
  ReversedIterator(const char* type, Value items)
      : IteratorObject(type, 1),
        items_(std::move(items)),
        left_(as<ListObject>(items_).items().size()) {}
  bool next(Runtime& /*runtime*/, Value& out) override {
    if (left_ == 0) {
      return false;
    }
    out = as<ListObject>(items_).items()[--left_];
    return true;
  }

 private:
  Value items_;
  std::size_t left_;
};

Value filter_reverse(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<0> none(runtime, "reverse", args, {});
  if (!none) {
    return Value::missing();
  }
  if (input.is_string()) {
    const Value unbounded;
    return slice(runtime, input, unbounded, unbounded, Value::integer(-1));
  }
  if (!reversible(input)) {
    ListBuilder builder(runtime);
    if (!builder.extend(input)) {
      return Value::missing();
    }
    std::vector<Value> items = builder.take();
    std::ranges::reverse(items);
    return runtime.list(std::move(items));
  }
  Value list =
      input.kind() == Kind::List || input.kind() == Kind::Tuple ? input : to_list(runtime, input);
  if (list.is_missing()) {
    return list;
  }
  const char* type = input.kind() == Kind::List ? "list_reverseiterator" : "reversed";
  return runtime.iterator<ReversedIterator>(type, std::move(list));
}

struct Keyed {
  std::vector<Value> keys;
  Value item;
};

// Sorts stably by the keys, as Python's `sorted`; false on an error. Keys in a list are compared
// for equality first, so that equal ones need no order.
bool sort_keyed(Runtime& runtime, std::vector<Keyed>& items, bool keys_in_list, bool reverse) {
  const auto before = [&runtime, keys_in_list](const Keyed& a, const Keyed& b) {
    if (runtime.failed() || !runtime.step()) {
      return false;
    }
    if (!keys_in_list) {
      return ordered(runtime, Order::Less, a.keys[0], b.keys[0]).value_or(false);
    }
    for (std::size_t i = 0; i < a.keys.size(); ++i) {
      if (!equal(a.keys[i], b.keys[i])) {
        return ordered(runtime, Order::Less, a.keys[i], b.keys[i]).value_or(false);
      }
    }
    return false;
  };
  if (reverse) {
    merge_sort(items, [&before](const Keyed& a, const Keyed& b) { return before(b, a); });
  } else {
    merge_sort(items, before);
  }
  return !runtime.failed();
}

std::vector<Value> items_of(std::vector<Keyed> keyed) {
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (Keyed& entry : keyed) {
    items.push_back(std::move(entry.item));
  }
  return items;
}

Value filter_sort(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<3> bound(runtime, "sort", args, {"reverse", "case_sensitive", "attribute"});
  if (!bound) {
    return Value::missing();
  }
  const bool ignore_case = !bound.flag(1, false);
  std::vector<AttributeGetter> getters;
  if (bound.given(2) && bound[2]->is_string()) {
    for (std::string_view path : text::split(bound[2]->text(), ",", -1)) {
      Value part = runtime.string(path);
      getters.emplace_back(runtime, &part, ignore_case);
    }
  } else {
    getters.emplace_back(runtime, bound[2], ignore_case);
  }
  std::vector<Keyed> keyed;
  Cursor cursor(runtime, input);
  for (Value item; cursor.next(item);) {
    Keyed entry{{}, item};
    for (const AttributeGetter& getter : getters) {
      entry.keys.push_back(getter(item));
    }
    if (runtime.failed() || !runtime.step() ||
        (keyed.size() % 256 == 0 && !runtime.reserve(keyed.size() * 128))) {
      return Value::missing();
    }
    keyed.push_back(std::move(entry));
  }
  const auto reverse = bound.integer(0, 0);
  if (runtime.failed() || !sort_keyed(runtime, keyed, true, *reverse != 0)) {
    return Value::missing();
  }
  return runtime.list(items_of(std::move(keyed)));
}

Value filter_dictsort(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<3> bound(runtime, "dictsort", args, {"case_sensitive", "by", "reverse"});
  const auto by = bound ? bound.text(1, "key") : std::nullopt;
  if (!by) {
    return Value::missing();
  }
  if (*by != "key" && *by != "value") {
    return runtime.fail("You can only sort by either \"key\" or \"value\"");
  }
  if (input.kind() != Kind::Dict) {
    return runtime.fail(input.is_undefined() ? input.undefined_message()
                                             : std::string("'") + type_name(input) +
                                                   "' object has no attribute 'items'");
  }
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : as<DictObject>(input).store().entries()) {
    const Value& subject = *by == "key" ? key : value;
    Value sort_key = bound.flag(0, false) ? subject : fold_case(runtime, subject);
    Value pair = runtime.tuple({key, value});
    if (runtime.failed()) {
      return Value::missing();
    }
    keyed.push_back({{std::move(sort_key)}, std::move(pair)});
  }
  const auto reverse = bound.integer(2, 0);
  return reverse && sort_keyed(runtime, keyed, false, *reverse != 0)
             ? runtime.list(items_of(std::move(keyed)))
             : Value::missing();
}

Value filter_groupby(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<3> bound(runtime, "groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  if (!bound) {
    return Value::missing();
  }
  const bool ignore_case = !bound.flag(2, false);
  const AttributeGetter getter(runtime, bound[0], ignore_case, bound[1]);
  const AttributeGetter shown(runtime, bound[0], false, bound[1]);
  std::vector<Keyed> keyed;
  Cursor cursor(runtime, input);
  for (Value item; cursor.next(item);) {
    Value key = getter(item);
    if (runtime.failed() || !runtime.step()) {
      return Value::missing();
    }
    keyed.push_back({{std::move(key)}, item});
  }
  if (runtime.failed() || !sort_keyed(runtime, keyed, false, false)) {
    return Value::missing();
  }
  std::vector<Value> groups;
  for (std::size_t begin = 0; begin < keyed.size();) {
    std::vector<Value> members;
    std::size_t end = begin;
    while (end < keyed.size() && equal(keyed[end].keys[0], keyed[begin].keys[0])) {
      members.push_back(keyed[end++].item);
    }
    const Value name = ignore_case ? shown(members[0]) : keyed[begin].keys[0];
    Value group = runtime.tuple({name, runtime.list(std::move(members))});
    if (runtime.failed()) {
      return Value::missing();
    }
    as<ListObject>(group).group = true;
    groups.push_back(std::move(group));
    begin = std::max(end, begin + 1);
  }
  return runtime.list(std::move(groups));
}

Value extreme(Runtime& runtime, const Value& input, const CallArgs& args, Order order) {
  const Bound<2> bound(runtime, order == Order::Less ? "min" : "max", args,
                       {"case_sensitive", "attribute"});
  if (!bound) {
    return Value::missing();
  }
  const AttributeGetter getter(runtime, bound[1], !bound.flag(0, false));
  Value best = Value::missing();
  Value best_key = Value::missing();
  Cursor cursor(runtime, input);
  for (Value item; cursor.next(item);) {
    Value key = getter(item);
    if (key.is_missing() || !runtime.step()) {
      return Value::missing();
    }
    if (best.is_missing() || ordered(runtime, order, key, best_key).value_or(false)) {
      best = item;
      best_key = std::move(key);
    }
  }
  if (runtime.failed()) {
    return Value::missing();
  }
  return best.is_missing() ? Value::undefined_hint("No aggregated item, sequence was empty.")
                           : best;
}

Value filter_min(Runtime& runtime, const Value& input, const CallArgs& args) {
  return extreme(runtime, input, args, Order::Less);
}

Value filter_max(Runtime& runtime, const Value& input, const CallArgs& args) {
  return extreme(runtime, input, args, Order::Greater);
}

Value filter_sum(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<2> bound(runtime, "sum", args, {"attribute", "start"});
  if (!bound) {
    return Value::missing();
  }
  Value total = bound[1] != nullptr ? *bound[1] : Value::integer(0);
  if (total.is_string()) {
    return runtime.fail("sum() can't sum strings [use ''.join(seq) instead]");
  }
  const AttributeGetter getter(runtime, bound[0], false);
  Cursor cursor(runtime, input);
  for (Value item; cursor.next(item);) {
    Value part = getter(item);
    if (part.is_missing() || !runtime.step()) {
      return Value::missing();
    }
    total = arithmetic(runtime, Arithmetic::Add, total, part);
    if (total.is_missing()) {
      return total;
    }
  }
  return runtime.failed() ? Value::missing() : total;
}

Value filter_random(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<0> none(runtime, "random", args, {});
  const auto size = none ? length(runtime, input) : std::nullopt;
  if (!size) {
    return Value::missing();
  }
  if (*size == 0) {
    return Value::undefined_hint("No random item, sequence was empty.");
  }
  std::random_device device;
  return get_item(runtime, input, Value::integer(static_cast<std::int64_t>(device() % *size)));
}

Value filter_attr(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<1> bound(runtime, "attr", args, {"name"}, 1);
  const auto name = bound ? bound.text(0, {}) : std::nullopt;
  if (!name) {
    return Value::missing();
  }
  if (input.is_undefined()) {
    return runtime.fail(input.undefined_message());
  }
  Value found = find_attribute(runtime, input, *name, find_method(*name));
  if (!found.is_missing() || runtime.failed()) {
    return found;
  }
  return Value::undefined_hint(std::string("'") + type_name(input) + " object' has no attribute '" +
                               std::string(*name) + "'");
}

constexpr std::array kFilters = {
    BuiltinRow{"length", filter_length},     BuiltinRow{"count", filter_length},
    BuiltinRow{"default", filter_default},   BuiltinRow{"d", filter_default},
    BuiltinRow{"first", filter_first},       BuiltinRow{"last", filter_last},
    BuiltinRow{"list", filter_list},         BuiltinRow{"join", filter_join},
    BuiltinRow{"reverse", filter_reverse},   BuiltinRow{"sort", filter_sort},
    BuiltinRow{"dictsort", filter_dictsort}, BuiltinRow{"groupby", filter_groupby},
    BuiltinRow{"min", filter_min},           BuiltinRow{"max", filter_max},
    BuiltinRow{"sum", filter_sum},           BuiltinRow{"random", filter_random},
    BuiltinRow{"attr", filter_attr},
};

}  // namespace

std::span<const BuiltinRow> sequence_filters() { return kFilters; }

Value fold_case(Runtime& runtime, const Value& value) {
  if (!value.is_string()) {
    return value;
  }
  return runtime.charge_slow(value.text().size()) ? runtime.string(unicode::lower(value.text()))
                                                  : Value::missing();
}

AttributeGetter::AttributeGetter(Runtime& runtime, const Value* attribute, bool ignore_case,
                                 const Value* otherwise)
    : runtime_(runtime), ignore_case_(ignore_case) {
  if (otherwise != nullptr) {
    otherwise_ = *otherwise;
  }
  if (attribute == nullptr || attribute->is_none()) {
    return;
  }
  if (!attribute->is_string()) {
    parts_.push_back(*attribute);
    return;
  }
  for (std::string_view part : text::split(attribute->text(), ".", -1)) {
    const bool digits = !part.empty() && part.size() < 18 &&
                        std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    parts_.push_back(digits ? Value::integer(std::stoll(std::string(part)))
                            : Runtime::part(*attribute, part, false));
  }
}

Value AttributeGetter::operator()(const Value& item) const {
  Value current = item;
  for (const Value& part : parts_) {
    current = get_item(runtime_, current, part);
    if (current.is_missing()) {
      return current;
    }
    if (current.is_undefined() && !otherwise_.is_none()) {
      current = otherwise_;
    }
  }
  return ignore_case_ ? fold_case(runtime_, current) : current;
}

}  // namespace fairlead::jinja
