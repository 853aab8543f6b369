#pragma once

#include <string>
#include <string_view>

#include "jinja/methods.hpp"

namespace fairlead::jinja {

/// `center`, `ljust`, `rjust`.
Value justify(Runtime& runtime, const Value& self, Method method, const CallArgs& args);
/// `zfill`.
Value zfill(Runtime& runtime, const Value& self, const CallArgs& args);
/// `expandtabs`.
Value expand_tabs(Runtime& runtime, const Value& self, const CallArgs& args);
/// The `is...` methods.
bool has_property(std::string_view text, Method method);
/// `upper`, `lower`, `title`, `capitalize`, `casefold`, `swapcase`.
std::string change_case(std::string_view text, Method method);

}  // namespace fairlead::jinja
