#include <array>
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
  explicit KeptArgs(const CallArgs& args, std::size_t skip)
      : positional(args.positional.begin() +
                       static_cast<std::ptrdiff_t>(std::min(skip, args.positional.size())),
                   args.positional.end()) {
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

class MapGenerator final : public Generator {
 public:
  MapGenerator(Value source, AttributeGetter getter)
      : Generator(std::move(source)), getter_(std::move(getter)) {}
  MapGenerator(Value source, Value name, KeptArgs args)
      : Generator(std::move(source)), name_(std::move(name)), args_(std::move(args)) {}

  bool next(Runtime& runtime, Value& out) override {
    Value item;
    if (!truthy(source()) || !pull(runtime, item)) {
      return false;
    }
    if (getter_) {
      out = (*getter_)(item);
    } else {
      const Builtin filter = name_.is_string() ? find_filter(name_.text()) : nullptr;
      out = filter != nullptr ? filter(runtime, item, args_->view())
                              : unknown(runtime, "filter", name_);
    }
    return !out.is_missing();
  }

 private:
  std::optional<AttributeGetter> getter_;
  Value name_;
  std::optional<KeptArgs> args_;
};

Value filter_map(Runtime& runtime, const Value& input, const CallArgs& args) {
  if (!args.positional.empty()) {
    return runtime.iterator<MapGenerator>(input, args.positional[0], KeptArgs(args, 1));
  }
  const Bound<2> bound(runtime, "map", args, {"attribute", "default"});
  if (!bound) {
    return Value::missing();
  }
  if (bound[0] == nullptr) {
    return runtime.fail("map requires a filter argument");
  }
  return runtime.iterator<MapGenerator>(input, AttributeGetter(runtime, bound[0], false, bound[1]));
}

class SelectGenerator final : public Generator {
 public:
  SelectGenerator(Value source, std::optional<AttributeGetter> getter, std::optional<Value> test,
                  KeptArgs args, bool keep)
      : Generator(std::move(source)),
        getter_(std::move(getter)),
        test_(std::move(test)),
        args_(std::move(args)),
        keep_(keep) {}

  bool next(Runtime& runtime, Value& out) override {
    if (!truthy(source())) {
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
  Value check(Runtime& runtime, const Value& subject) {
    if (!test_) {
      return Value::boolean(truthy(subject));
    }
    const Builtin test = test_->is_string() ? find_test(test_->text()) : nullptr;
    return test != nullptr ? test(runtime, subject, args_.view())
                           : unknown(runtime, "test", *test_);
  }

  std::optional<AttributeGetter> getter_;
  std::optional<Value> test_;
  KeptArgs args_;
  bool keep_;
};

template <bool kKeep, bool kAttribute>
Value filter_select(Runtime& runtime, const Value& input, const CallArgs& args) {
  std::optional<AttributeGetter> getter;
  const std::size_t skip = kAttribute ? 1 : 0;
  if (kAttribute) {
    if (args.positional.empty()) {
      return runtime.fail("Missing parameter for attribute name");
    }
    getter.emplace(runtime, &args.positional[0], false);
  }
  std::optional<Value> test;
  if (args.positional.size() > skip) {
    test = args.positional[skip];
  }
  return runtime.iterator<SelectGenerator>(input, std::move(getter), std::move(test),
                                           KeptArgs(args, skip + 1), kKeep);
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
  BatchGenerator(Value source, std::int64_t size, Value fill)
      : Generator(std::move(source)), size_(size), fill_(std::move(fill)) {}

  bool next(Runtime& runtime, Value& out) override {
    if (size_ <= 0) {
      // Python compares lengths, so that a batch of none never ends up full.
      size_ = std::int64_t{1} << 40;
    }
    ListBuilder builder(runtime);
    std::int64_t count = 0;
    for (Value item; count < size_ && pull(runtime, item); ++count) {
      if (!builder.push(item)) {
        return false;
      }
    }
    if (runtime.failed() || count == 0) {
      return false;
    }
    for (; !fill_.is_none() && count < size_; ++count) {
      if (!builder.push(fill_)) {
        return false;
      }
    }
    out = runtime.list(builder.take());
    return !out.is_missing();
  }

 private:
  std::int64_t size_;
  Value fill_;
};

Value filter_batch(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<2> bound(runtime, "batch", args, {"linecount", "fill_with"}, 1);
  const auto size = bound ? bound.integer(0, 0) : std::nullopt;
  if (!size) {
    return Value::missing();
  }
  return runtime.iterator<BatchGenerator>(input, *size, bound[1] != nullptr ? *bound[1] : Value());
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
  return runtime.iterator<SliceGenerator>(input, std::max<std::int64_t>(*slices, 0),
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
