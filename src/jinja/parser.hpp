#pragma once

#include <string_view>

#include "base/error.hpp"
#include "jinja/ast.hpp"

namespace fairlead::jinja {

/// Parses a template as Jinja with transformers' extensions does. Variables are not resolved yet.
Result<Program> parse_program(std::string_view source);

}  // namespace fairlead::jinja
