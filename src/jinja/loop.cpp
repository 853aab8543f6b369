#include "jinja/loop.hpp"

#include <algorithm>

#include "jinja/ops.hpp"

namespace fairlead::jinja {

bool LoopObject::next(Value& out) {
  if (!after_.is_missing()) {
    out = std::move(after_);
    after_ = Value::missing();
  } else if (!ahead_.empty()) {
    out = std::move(ahead_.back());
    ahead_.pop_back();
  } else if (source_ == nullptr || !source_->pull(out)) {
    return false;
  }
  ++index0;
  before_ = std::move(current_);
  current_ = out;
  return true;
}

const Value* LoopObject::peek() {
  if (after_.is_missing()) {
    if (!ahead_.empty()) {
      after_ = std::move(ahead_.back());
      ahead_.pop_back();
    } else if (Value item; source_ != nullptr && source_->pull(item)) {
      after_ = std::move(item);
    }
  }
  return after_.is_missing() ? nullptr : &after_;
}

std::optional<std::int64_t> LoopObject::length(Runtime& runtime) {
  if (length_) {
    return length_;
  }
  if (const auto size = source_ != nullptr ? source_->size() : std::nullopt) {
    length_ = static_cast<std::int64_t>(*size);
    return length_;
  }
  ListBuilder builder(runtime);
  for (Value item; source_ != nullptr && source_->pull(item);) {
    if (!builder.push(item)) {
      return std::nullopt;
    }
  }
  if (runtime.failed()) {
    return std::nullopt;
  }
  ahead_ = builder.take();
  length_ = static_cast<std::int64_t>(ahead_.size()) + index0 + 1 + (after_.is_missing() ? 0 : 1);
  std::ranges::reverse(ahead_);
  return length_;
}

Value LoopObject::attribute(Runtime& runtime, std::string_view name) {
  if (name == "index") {
    return Value::integer(index0 + 1);
  }
  if (name == "index0") {
    return Value::integer(index0);
  }
  if (name == "first") {
    return Value::boolean(index0 == 0);
  }
  if (name == "last") {
    return Value::boolean(peek() == nullptr);
  }
  if (name == "previtem") {
    return index0 == 0 ? Value::undefined_hint("there is no previous item") : before_;
  }
  if (name == "nextitem") {
    const Value* item = peek();
    return item != nullptr ? *item : Value::undefined_hint("there is no next item");
  }
  if (name == "depth") {
    return Value::integer(depth0 + 1);
  }
  if (name == "depth0") {
    return Value::integer(depth0);
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    const auto total = length(runtime);
    if (!total) {
      return Value::missing();
    }
    if (name == "length") {
      return Value::integer(*total);
    }
    return Value::integer(name == "revindex" ? *total - index0 : *total - index0 - 1);
  }
  return Value::missing();
}

Value LoopObject::cycle(Runtime& runtime, const CallArgs& args) const {
  if (args.positional.empty()) {
    return runtime.fail("no items for cycling given");
  }
  return args.positional[static_cast<std::size_t>(std::max<std::int64_t>(index0, 0)) %
                         args.positional.size()];
}

Value LoopObject::changed(Runtime& runtime, const CallArgs& args) {
  Value now = runtime.tuple({args.positional.begin(), args.positional.end()});
  if (now.is_missing()) {
    return now;
  }
  const bool same = !last_changed_.is_missing() && equal(last_changed_, now);
  last_changed_ = std::move(now);
  return Value::boolean(!same);
}

void LoopObject::close() {
  source_ = nullptr;
  ahead_.clear();
}

}  // namespace fairlead::jinja
