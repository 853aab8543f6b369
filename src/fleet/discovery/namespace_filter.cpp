#include "fleet/discovery/namespace_filter.hpp"

#include <algorithm>
#include <utility>

namespace fairlead::fleet {
namespace {

constexpr std::string_view kGlobal = "dynamo";
constexpr std::size_t kGenerationDigits = 8;

/// `-` and the digits that tell the generations of one deployment apart.
bool is_generation(std::string_view suffix) {
  return suffix.size() == kGenerationDigits + 1 && suffix.front() == '-' &&
         suffix.find_first_not_of("0123456789abcdef", 1) == suffix.npos;
}

}  // namespace

NamespaceFilter::NamespaceFilter(std::string name_space, std::optional<std::string> prefix,
                                 bool strict)
    : text_(prefix ? std::move(*prefix) : std::move(name_space)),
      prefix_(prefix.has_value()),
      strict_(strict) {
  if (text_ == kGlobal) {
    text_.clear();
  }
}

bool NamespaceFilter::matches(std::string_view name_space) const {
  if (text_.empty() || name_space == text_) {
    return true;
  }
  if (!prefix_ || !name_space.starts_with(text_)) {
    return false;
  }
  return !strict_ || is_generation(name_space.substr(text_.size()));
}

}  // namespace fairlead::fleet
