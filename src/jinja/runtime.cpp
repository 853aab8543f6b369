#include "jinja/runtime.hpp"

#include <algorithm>
#include <cstring>

#include "base/utf8.hpp"
#include "jinja/ops.hpp"
#include "jinja/text.hpp"

namespace fairlead::jinja {
namespace {

// Steps between two looks at whether the result is still wanted.
constexpr std::uint64_t kStopSteps = 1U << 14;

}  // namespace

Runtime::Runtime(const Limits& limits, std::optional<std::string> now, std::stop_token stop)
    : previous_(current_runtime),
      limits_(limits),
      now_(std::move(now)),
      stop_(std::move(stop)),
      next_look_(std::min(kStopSteps, limits.max_steps)),
      base_bytes_(live_bytes),
      stack_base_(static_cast<const char*>(__builtin_frame_address(0))) {
  current_runtime = this;
}

Runtime::~Runtime() {
  for (Value& value : namespaces_) {
    as<NamespaceObject>(value).attributes.clear();
  }
  current_runtime = previous_;
}

Value Runtime::fail(std::string message) {
  if (!failed_) {
    failed_ = true;
    error_ = std::move(message);
  }
  return Value::missing();
}

bool Runtime::look() {
  if (steps_ > limits_.max_steps) {
    fail("the template takes too long to render");
    return false;
  }
  if (stop_.stop_requested()) {
    next_look_ = 0;  // nothing goes on from here
    fail("nobody waits for the text any more");
    return false;
  }
  next_look_ = std::min(steps_ + kStopSteps, limits_.max_steps);
  return true;
}

bool Runtime::check_stack() {
  const auto* here = static_cast<const char*>(__builtin_frame_address(0));
  const auto used = static_cast<std::size_t>(stack_base_ > here ? stack_base_ - here : 0);
  if (used > limits_.max_stack_bytes) {
    fail("maximum recursion depth exceeded");
    return false;
  }
  return true;
}

std::size_t Runtime::text_room() const {
  const std::int64_t used = live_bytes - base_bytes_;
  const auto limit = static_cast<std::int64_t>(limits_.max_live_bytes);
  return static_cast<std::size_t>(std::clamp<std::int64_t>(limit - used, 0, limit));
}

bool Runtime::reserve(std::size_t bytes) {
  if (bytes > text_room()) {
    fail("the template uses too much memory");
    return false;
  }
  return charge(bytes);
}

Value Runtime::string(std::string_view text, bool markup) {
  if (!reserve(text.size())) {
    return Value::missing();
  }
  StringObject* object = StringObject::create(text.size());
  std::memcpy(object->data(), text.data(), text.size());
  return Value::text_of({object->data(), text.size()}, object, markup);
}

Value Runtime::part(const Value& source, std::string_view text, bool markup) {
  Object* owner = source.object();
  if (owner != nullptr && owner->references >= 0) {
    ++owner->references;
  }
  return Value::text_of(text, owner, markup);
}

Value Runtime::sequence(Kind kind, std::vector<Value> items) {
  if (!reserve(items.size() * sizeof(Value))) {
    return Value::missing();
  }
  Value value = make<ListObject>(kind, std::move(items));
  return as<ListObject>(value).depth() > kMaxNesting ? fail("values are nested too deeply") : value;
}

Value Runtime::dict(DictStore store) {
  if (!reserve(store.entries().size() * sizeof(Pair))) {
    return Value::missing();
  }
  Value value = make<DictObject>(Kind::Dict, std::move(store));
  return as<DictObject>(value).depth() > kMaxNesting ? fail("values are nested too deeply") : value;
}

Value Runtime::make_namespace() {
  if (!reserve(sizeof(NamespaceObject) + namespaces_.size() / 1024)) {
    return Value::missing();
  }
  Value value = make<NamespaceObject>(Kind::Namespace);
  namespaces_.push_back(value);
  return value;
}

Cursor::Cursor(Runtime& runtime, const Value& iterable) : runtime_(runtime), source_(iterable) {
  switch (iterable.kind()) {
    case Kind::List:
    case Kind::Tuple: {
      const auto& items = as<ListObject>(iterable).items();
      items_ = items.data();
      size_ = items.size();
      return;
    }
    case Kind::Dict: {
      const auto& entries = as<DictObject>(iterable).store().entries();
      pairs_ = entries.data();
      size_ = entries.size();
      return;
    }
    case Kind::DictView: {
      const auto& entries = as<DictObject>(as<ViewObject>(iterable).dict).store().entries();
      pairs_ = entries.data();
      size_ = entries.size();
      return;
    }
    case Kind::String: size_ = text::length(iterable.text()); return;
    case Kind::Range: size_ = static_cast<std::size_t>(as<RangeObject>(iterable).length); return;
    case Kind::Undefined: size_ = 0; return;
    case Kind::Iterator: return;
    default:
      runtime.fail(std::string("'") + type_name(iterable) + "' object is not iterable");
      size_ = 0;
  }
}

bool Cursor::next(Value& out) {
  if (items_ != nullptr) {
    if (position_ >= *size_) {
      return false;
    }
    out = items_[position_++];
    return true;
  }
  if (runtime_.failed()) {
    return false;
  }
  if (pairs_ != nullptr) {
    if (position_ >= *size_) {
      return false;
    }
    const Pair& pair = pairs_[position_++];
    const bool view = source_.kind() == Kind::DictView;
    switch (view ? as<ViewObject>(source_).part : ViewKind::Keys) {
      case ViewKind::Keys: out = pair.first; break;
      case ViewKind::Values: out = pair.second; break;
      case ViewKind::Items: out = runtime_.tuple({pair.first, pair.second}); break;
    }
    return !runtime_.failed();
  }
  switch (source_.kind()) {
    case Kind::String: {
      const std::string_view whole = source_.text();
      if (position_ >= whole.size()) {
        return false;
      }
      const std::size_t start = position_;
      utf8::decode(whole, position_);
      out = Runtime::part(source_, whole.substr(start, position_ - start), false);
      return true;
    }
    case Kind::Range: {
      const auto& range = as<RangeObject>(source_);
      const auto index = static_cast<std::int64_t>(position_);
      if (index >= range.length) {
        return false;
      }
      out = Value::integer(range.start + index * range.step);
      ++position_;
      return true;
    }
    case Kind::Iterator: return as<IteratorObject>(source_).next(runtime_, out);
    default: return false;
  }
}

bool ListBuilder::push(Value value) {
  constexpr std::size_t kCheckEvery = 256;
  if (items_.size() % kCheckEvery == 0 &&
      !runtime_.reserve((items_.capacity() + kCheckEvery) * sizeof(Value))) {
    return false;
  }
  if (value.is_missing() || !runtime_.step()) {
    return false;
  }
  items_.push_back(std::move(value));
  return true;
}

bool ListBuilder::extend(const Value& iterable) {
  Cursor cursor(runtime_, iterable);
  for (Value element; cursor.next(element);) {
    if (!push(element)) {
      return false;
    }
  }
  return !runtime_.failed();
}

Value to_list(Runtime& runtime, const Value& iterable) {
  ListBuilder builder(runtime);
  return builder.extend(iterable) ? runtime.list(builder.take()) : Value::missing();
}

}  // namespace fairlead::jinja
