#pragma once

#include "base/error.hpp"
#include "jinja/ast.hpp"

namespace fairlead::jinja {

/// Gives every variable its place by Jinja's scoping rules, and reports what Jinja's compiler
/// refuses: unknown filters and tests outside conditions, assignments to `loop`, jumps outside
/// loops.
Result<> resolve_program(Program& program);

}  // namespace fairlead::jinja
