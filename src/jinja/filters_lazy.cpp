#include <array>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jinja/args.hpp"
#include "jinja/builtins.hpp"

namespace fairlead::jinja {
namespace {

int depth_above(const Value& source) {
  return source.kind() == Kind::Iterator ? as<IteratorObject>(source).depth() + 1 : 1;
}

// A generator over one source.
class Generator : public IteratorObject {
 public:
  explicit Generator(Value source)
      : IteratorObject("generator", depth_above(source)), source_(std::move(source)) {}

 protected:
  bool pull(Runtime& runtime, Value& out) {
    if (!runtime.step() || !runtime.check_stack()) {
      return false;
    }
    if (!cursor_) {
      cursor_.emplace(runtime, source_);
    }
    return cursor_->next(out);
  }
  const Value& source() const { return source_; }

 private:
  Value source_;
  std::optional<Cursor> cursor_;
};

// Arguments that outlive the call.
struct KeptArgs {
  explicit KeptArgs(const CallArgs& args)
      : positional(args.positional.begin(), args.positional.end()) {
    names.reserve(args.named.size());
    for (const NamedArg& argument : args.named) {
      names.emplace_back(argument.name);
      named.push_back({names.back(), argument.value});
    }
  }
  KeptArgs(const KeptArgs&) = delete;
  KeptArgs(KeptArgs&&) = default;
  CallArgs view() const { return {positional, named}; }

  std::vector<Value> positional;
  std::vector<std::string> names;
  std::vector<NamedArg> named;
};

Value unknown(Runtime& runtime, const char* what, const Value& name) {
  std::string shown;
  append_repr(runtime, shown, name);
  return runtime.fail(std::string("No ") + what + " named " + shown + ".");
}

// Like every generator of Jinja, it looks at its arguments when the first element is asked for.
class MapGenerator final : public Generator {
 public:
  MapGenerator(Value source, KeptArgs args)
      : Generator(std::move(source)), args_(std::move(args)) {}

  bool next(Runtime& runtime, Value& out) override {
    if (!truthy(source()) || (!prepared_ && !prepare(runtime))) {
      return false;
    }
    Value item;
    if (!pull(runtime, item)) {
      return false;
    }
    if (getter_) {
      out = (*getter_)(item);
    } else {
      const Builtin filter = name_.is_string() ? find_filter(name_.text()) : nullptr;
      const CallArgs all = args_.view();
      out = filter != nullptr ? filter(runtime, item, {all.positional.subspan(1), all.named})
                              : unknown(runtime, "filter", name_);
    }
    return !out.is_missing();
  }

 private:
  bool prepare(Runtime& runtime) {
    prepared_ = true;
    if (!args_.positional.empty()) {
      name_ = args_.positional[0];
      return true;
    }
    const Bound<2> bound(runtime, "map", args_.view(), {"attribute", "default"});
    if (bound && bound[0] == nullptr) {
      runtime.fail("map requires a filter argument");
    } else if (bound) {
      getter_.emplace(runtime, bound[0], false, bound[1]);
    }
    return getter_.has_value();
  }

  KeptArgs args_;
  bool prepared_ = false;
  std::optional<AttributeGetter> getter_;
  Value name_;
};

Value filter_map(Runtime& runtime, const Value& input, const CallArgs& args) {
  return runtime.iterator<MapGenerator>(input, KeptArgs(args));
}

class SelectGenerator final : public Generator {
 public:
  SelectGenerator(Value source, KeptArgs args, bool keep, bool by_attribute)
      : Generator(std::move(source)),
        args_(std::move(args)),
        keep_(keep),
        by_attribute_(by_attribute) {}

  bool next(Runtime& runtime, Value& out) override {
    if (!truthy(source()) || !prepare(runtime)) {
      return false;
    }
    for (Value item; pull(runtime, item);) {
      const Value subject = getter_ ? (*getter_)(item) : item;
      const Value verdict = subject.is_missing() ? subject : check(runtime, subject);
      if (verdict.is_missing()) {
        return false;
      }
      if (truthy(verdict) == keep_) {
        out = item;
        return true;
      }
    }
    return false;
  }

 private:
  bool prepare(Runtime& runtime) {
    if (!by_attribute_ || getter_) {
      return true;
    }
    if (args_.positional.empty()) {
      runtime.fail("Missing parameter for attribute name");
      return false;
    }
    getter_.emplace(runtime, args_.positional.data(), false);
    return true;
  }

  Value check(Runtime& runtime, const Value& subject) {
    const CallArgs all = args_.view();
    const std::size_t at = by_attribute_ ? 1 : 0;
    if (all.positional.size() <= at) {
      return Value::boolean(truthy(subject));
    }
    const Value& name = all.positional[at];
    const Builtin test = name.is_string() ? find_test(name.text()) : nullptr;
    return test != nullptr ? test(runtime, subject, {all.positional.subspan(at + 1), all.named})
                           : unknown(runtime, "test", name);
  }

  std::optional<AttributeGetter> getter_;
  KeptArgs args_;
  bool keep_;
  bool by_attribute_;
};

template <bool kKeep, bool kAttribute>
Value filter_select(Runtime& runtime, const Value& input, const CallArgs& args) {
  return runtime.iterator<SelectGenerator>(input, KeptArgs(args), kKeep, kAttribute);
}

class UniqueGenerator final : public Generator {
 public:
  UniqueGenerator(Value source, AttributeGetter getter)
      : Generator(std::move(source)), getter_(std::move(getter)) {}

  bool next(Runtime& runtime, Value& out) override {
    for (Value item; pull(runtime, item);) {
      Value key = getter_(item);
      if (key.is_missing() || !check_hashable(runtime, key)) {
        return false;
      }
      if (seen_.find(key) == nullptr) {
        seen_.set(key, Value());
        out = item;
        return runtime.reserve(sizeof(Pair));
      }
    }
    return false;
  }

 private:
  AttributeGetter getter_;
  DictStore seen_;
};

Value filter_unique(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<2> bound(runtime, "unique", args, {"case_sensitive", "attribute"});
  if (!bound) {
    return Value::missing();
  }
  return runtime.iterator<UniqueGenerator>(
      input, AttributeGetter(runtime, bound[1], !bound.flag(0, false)));
}

class ItemsGenerator final : public Generator {
 public:
  using Generator::Generator;
  bool next(Runtime& runtime, Value& out) override {
    if (source().is_undefined()) {
      return false;
    }
    if (source().kind() != Kind::DictView) {
      runtime.fail("Can only get item pairs from a mapping.");
      return false;
    }
    return pull(runtime, out);
  }
};

Value filter_items(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<0> none(runtime, "items", args, {});
  if (!none) {
    return Value::missing();
  }
  return runtime.iterator<ItemsGenerator>(
      input.kind() == Kind::Dict ? make<ViewObject>(Kind::DictView, input, ViewKind::Items)
      : input.is_undefined()     ? input
                                 : Value());
}

class BatchGenerator final : public Generator {
 public:
  BatchGenerator(Value source, Value size, Value fill)
      : Generator(std::move(source)), size_(std::move(size)), fill_(std::move(fill)) {}

  // An element that finds the batch full opens the next one. So a size of 0 gives an empty batch
  // and then all elements, and a negative one all elements.
  bool next(Runtime& runtime, Value& out) override {
    ListBuilder builder(runtime);
    std::int64_t count = 0;
    if (opening_) {
      builder.push(std::exchange(opening_, std::nullopt).value());
      ++count;
    }
    for (Value item; pull(runtime, item); ++count) {
      if (equal(Value::integer(count), size_)) {
        opening_ = item;
        out = runtime.list(builder.take());
        return !out.is_missing();
      }
      if (!builder.push(item)) {
        return false;
      }
    }
    if (runtime.failed() || count == 0 || (!fill_.is_none() && !fill(runtime, builder, count))) {
      return false;
    }
    out = runtime.list(builder.take());
    return !out.is_missing();
  }

 private:
  bool fill(Runtime& runtime, ListBuilder& builder, std::int64_t count) {
    const auto lacks = ordered(runtime, Order::Less, Value::integer(count), size_);
    if (!lacks.value_or(false)) {
      return lacks.has_value();
    }
    if (size_.kind() == Kind::Float) {
      runtime.fail("can't multiply sequence by non-int of type 'float'");
      return false;
    }
    // A larger size than fits is more than the limits allow anyway.
    const std::int64_t size =
        size_.kind() == Kind::BigInt ? std::numeric_limits<std::int64_t>::max() : size_.as_int();
    for (; count < size; ++count) {
      if (!builder.push(fill_)) {
        return false;
      }
    }
    return true;
  }

  Value size_;
  Value fill_;
  std::optional<Value> opening_;
};

Value filter_batch(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<2> bound(runtime, "batch", args, {"linecount", "fill_with"}, 1);
  if (!bound) {
    return Value::missing();
  }
  return runtime.iterator<BatchGenerator>(input, *bound[0],
                                          bound[1] != nullptr ? *bound[1] : Value());
}

class SliceGenerator final : public Generator {
 public:
  SliceGenerator(Value source, std::int64_t slices, Value fill)
      : Generator(std::move(source)), slices_(slices), fill_(std::move(fill)) {}

  bool next(Runtime& runtime, Value& out) override {
    if (!all_) {
      ListBuilder builder(runtime);
      for (Value item; pull(runtime, item);) {
        if (!builder.push(item)) {
          return false;
        }
      }
      all_ = builder.take();
      if (!runtime.failed() && slices_ == 0) {
        runtime.fail("integer division or modulo by zero");
      }
    }
    if (runtime.failed() || number_ >= slices_) {
      return false;
    }
    const auto size = static_cast<std::int64_t>(all_->size());
    const std::int64_t each = size / slices_;
    const std::int64_t extra = size % slices_;
    const std::int64_t begin = number_ * each + std::min(number_, extra);
    const std::int64_t end = begin + each + (number_ < extra ? 1 : 0);
    std::vector<Value> part(all_->begin() + begin, all_->begin() + end);
    if (!fill_.is_none() && number_ >= extra) {
      part.push_back(fill_);
    }
    ++number_;
    out = runtime.step() ? runtime.list(std::move(part)) : Value::missing();
    return !out.is_missing();
  }

 private:
  std::int64_t slices_;
  std::int64_t number_ = 0;
  Value fill_;
  std::optional<std::vector<Value>> all_;
};

Value filter_slice(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<2> bound(runtime, "slice", args, {"slices", "fill_with"}, 1);
  const auto slices = bound ? bound.integer(0, 0) : std::nullopt;
  if (!slices) {
    return Value::missing();
  }
  return runtime.iterator<SliceGenerator>(input, *slices,
                                          bound[1] != nullptr ? *bound[1] : Value());
}

constexpr std::array kFilters = {
    BuiltinRow{"map", filter_map},
    BuiltinRow{"select", filter_select<true, false>},
    BuiltinRow{"reject", filter_select<false, false>},
    BuiltinRow{"selectattr", filter_select<true, true>},
    BuiltinRow{"rejectattr", filter_select<false, true>},
    BuiltinRow{"unique", filter_unique},
    BuiltinRow{"items", filter_items},
    BuiltinRow{"batch", filter_batch},
    BuiltinRow{"slice", filter_slice},
};

}  // namespace

std::span<const BuiltinRow> lazy_filters() { return kFilters; }

}  // namespace fairlead::jinja
