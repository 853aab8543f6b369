#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fairlead::fleet {

/// Which deployments' cards a frontend serves, by their namespace.
class NamespaceFilter {
 public:
  /// Everything.
  NamespaceFilter() = default;
  /// One namespace or, when there is a prefix, those that begin with it. Empty and `dynamo`, the
  /// global namespace, stand for everything. `strict` narrows a prefix to itself and to itself
  /// with `-` and 8 hexadecimal digits behind it: the generations of one deployment.
  NamespaceFilter(std::string name_space, std::optional<std::string> prefix, bool strict);

  /// True when cards of this namespace are served.
  bool matches(std::string_view name_space) const;

 private:
  std::string text_;
  bool prefix_ = false;
  bool strict_ = false;
};

}  // namespace fairlead::fleet
