#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "jinja/ops.hpp"

namespace fairlead::jinja {

/// Parameters of a built-in function, bound to the arguments of one call.
template <std::size_t N>
class Bound {
 public:
  /// Binds `args` to `names`, of which the first `required` must be given. An error is left in
  /// `runtime`.
  Bound(Runtime& runtime, std::string_view function, const CallArgs& args,
        const std::array<std::string_view, N>& names, std::size_t required = 0)
      : runtime_(runtime) {
    if (args.positional.size() > N) {
      fail(function, " takes at most " + std::to_string(N) + " argument(s)");
      return;
    }
    for (std::size_t i = 0; i < args.positional.size(); ++i) {
      values_[i] = &args.positional[i];
    }
    for (const NamedArg& named : args.named) {
      std::size_t at = 0;
      while (at < N && names[at] != named.name) {
        ++at;
      }
      if (at == N) {
        fail(function, " got an unexpected keyword argument '" + std::string(named.name) + "'");
        return;
      }
      if (values_[at] != nullptr) {
        fail(function, " got multiple values for argument '" + std::string(named.name) + "'");
        return;
      }
      values_[at] = &named.value;
    }
    for (std::size_t i = 0; i < required; ++i) {
      if (values_[i] == nullptr) {
        fail(function, " missing required argument '" + std::string(names[i]) + "'");
        return;
      }
    }
  }

  /// False after an error.
  explicit operator bool() const { return ok_; }
  /// The argument, or null when it was not given.
  const Value* operator[](std::size_t index) const { return values_[index]; }
  /// True when the argument was given and is not None.
  bool given(std::size_t index) const {
    return values_[index] != nullptr && !values_[index]->is_none();
  }
  /// Truth of an argument.
  bool flag(std::size_t index, bool otherwise) const {
    return values_[index] == nullptr ? otherwise : truthy(*values_[index]);
  }
  /// A whole number; nothing after an error.
  std::optional<std::int64_t> integer(std::size_t index, std::int64_t otherwise) const {
    const Value* value = values_[index];
    if (value == nullptr) {
      return otherwise;
    }
    if (value->kind() == Kind::Int || value->kind() == Kind::Bool) {
      return value->as_int();
    }
    if (value->is_undefined()) {
      runtime_.fail(value->undefined_message());
    } else {
      runtime_.fail(std::string("'") + type_name(*value) +
                    "' object cannot be interpreted as an integer");
    }
    return std::nullopt;
  }
  /// A text; nothing after an error.
  std::optional<std::string_view> text(std::size_t index, std::string_view otherwise) const {
    const Value* value = values_[index];
    if (value == nullptr) {
      return otherwise;
    }
    if (value->is_string()) {
      return value->text();
    }
    if (value->is_undefined()) {
      runtime_.fail("expected str, got Undefined");
    } else {
      runtime_.fail(std::string("must be str, not ") + type_name(*value));
    }
    return std::nullopt;
  }

 private:
  void fail(std::string_view function, std::string message) {
    ok_ = false;
    runtime_.fail(std::string(function) + "()" + std::move(message));
  }

  Runtime& runtime_;
  std::array<const Value*, N> values_{};
  bool ok_ = true;
};

}  // namespace fairlead::jinja
