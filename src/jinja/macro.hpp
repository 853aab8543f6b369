#pragma once

#include <string>
#include <string_view>

#include "jinja/runtime.hpp"

namespace fairlead::jinja {

class Activation;
struct MacroBody;

/// A macro, or the `caller` of a call block, with the variables around it.
class MacroObject final : public Object {
 public:
  /// Both outlive every use of the macro.
  MacroObject(const MacroBody& code, Activation& home) : body(code), around(home) {}

  /// `repr`.
  std::string describe() const;
  /// A named attribute; the unset marker when there is none.
  Value attribute(std::string_view name) const;

  const MacroBody& body;  ///< What to run.
  Activation& around;     ///< Where its free variables live.
};

}  // namespace fairlead::jinja
