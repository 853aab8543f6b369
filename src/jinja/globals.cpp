#include <algorithm>
#include <array>

#include "jinja/args.hpp"
#include "jinja/builtins.hpp"

namespace fairlead::jinja {
namespace {

Value global_range(Runtime& runtime, const CallArgs& args) {
  const Bound<3> bound(runtime, "range", args, {"", "", ""}, 1);
  if (!bound) {
    return Value::missing();
  }
  auto first = bound.integer(0, 0);
  auto second = bound.integer(1, 0);
  const auto step = bound.integer(2, 1);
  if (!first || !second || !step) {
    return Value::missing();
  }
  if (bound[1] == nullptr) {
    second = first;
    first = 0;
  }
  if (*step == 0) {
    return runtime.fail("range() arg 3 must not be zero");
  }
  constexpr std::int64_t kFar = std::int64_t{1} << 60;
  constexpr std::int64_t kMaxRange = 100'000;
  Value range = make<RangeObject>(Kind::Range, std::clamp(*first, -kFar, kFar),
                                  std::clamp(*second, -kFar, kFar), std::clamp(*step, -kFar, kFar));
  if (as<RangeObject>(range).length > kMaxRange) {
    return runtime.fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  }
  return range;
}

// Fills `store` as `dict(...)` would; false on an error.
bool fill(Runtime& runtime, const CallArgs& args, DictStore& store) {
  if (args.positional.size() > 1) {
    runtime.fail("dict expected at most 1 argument, got " + std::to_string(args.positional.size()));
    return false;
  }
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    if (source.kind() == Kind::Dict) {
      store = as<DictObject>(source).store();
    } else if (source.is_undefined()) {
      runtime.fail(source.undefined_message());
      return false;
    } else {
      Cursor cursor(runtime, source);
      for (Value pair; cursor.next(pair);) {
        const Value list = to_list(runtime, pair);
        if (list.is_missing()) {
          return false;
        }
        const auto& items = as<ListObject>(list).items();
        if (items.size() != 2) {
          runtime.fail("dictionary update sequence element has length " +
                       std::to_string(items.size()) + "; 2 is required");
          return false;
        }
        if (!runtime.step() || !check_hashable(runtime, items[0])) {
          return false;
        }
        store.set(items[0], items[1]);
      }
    }
  }
  for (const NamedArg& named : args.named) {
    store.set(runtime.string(named.name), named.value);
  }
  return !runtime.failed() && runtime.reserve(store.entries().size() * sizeof(Pair));
}

Value global_dict(Runtime& runtime, const CallArgs& args) {
  DictStore store;
  return fill(runtime, args, store) ? runtime.dict(std::move(store)) : Value::missing();
}

Value global_namespace(Runtime& runtime, const CallArgs& args) {
  DictStore store;
  if (!fill(runtime, args, store)) {
    return Value::missing();
  }
  for (const Pair& entry : store.entries()) {
    if (entry.first.is_string() && entry.first.text().starts_with('_')) {
      std::string shown;
      append_repr(shown, entry.first.text());
      return runtime.fail(
          "Chat templates cannot store underscore-prefixed attributes on a namespace, but got " +
          shown + ". Please rename the attribute.");
    }
  }
  Value result = runtime.make_namespace();
  if (!result.is_missing()) {
    as<NamespaceObject>(result).attributes = std::move(store);
  }
  return result;
}

Value global_cycler(Runtime& runtime, const CallArgs& args) {
  if (args.positional.empty() || !args.named.empty()) {
    return runtime.fail("at least one item has to be provided");
  }
  Value items = runtime.tuple({args.positional.begin(), args.positional.end()});
  return items.is_missing() ? items : make<CyclerObject>(Kind::Cycler, std::move(items));
}

Value global_joiner(Runtime& runtime, const CallArgs& args) {
  const Bound<1> bound(runtime, "joiner", args, {"sep"});
  if (!bound) {
    return Value::missing();
  }
  return make<JoinerObject>(Kind::Joiner, bound[0] != nullptr ? *bound[0] : Value::borrowed(", "));
}

Value global_raise(Runtime& runtime, const CallArgs& args) {
  const Bound<1> bound(runtime, "raise_exception", args, {"message"}, 1);
  std::string message;
  if (bound && append_str(runtime, message, *bound[0])) {
    runtime.fail(std::move(message));
  }
  return Value::missing();
}

struct GlobalRow {
  const char* name;
  Function function;
};

constexpr std::array kGlobals = {
    GlobalRow{"range", global_range},         GlobalRow{"dict", global_dict},
    GlobalRow{"namespace", global_namespace}, GlobalRow{"cycler", global_cycler},
    GlobalRow{"joiner", global_joiner},       GlobalRow{"raise_exception", global_raise},
    GlobalRow{"strftime_now", strftime_now},
};

}  // namespace

Value find_global(std::string_view name) {
  for (const GlobalRow& row : kGlobals) {
    if (name == row.name) {
      return make<FunctionObject>(Kind::Function, row.name, row.function);
    }
  }
  return Value::missing();
}

}  // namespace fairlead::jinja
