#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace fairlead::tokenizer {

/// JSON text inside a larger buffer, since parsing in place needs spare room behind it.
struct JsonText {
  std::string_view json;     ///< The text; empty when there is none.
  std::size_t capacity = 0;  ///< Bytes from its start that may be read.

  /// Whether there is text.
  bool present() const { return !json.empty(); }
};

/// Calls `visit(key, text)` for every member of the object in `text` and stops at its first
/// failure. Messages begin with the name of the file.
Result<> each_member(const JsonText& text,
                     const std::function<Result<>(const std::string&, const JsonText&)>& visit,
                     std::string_view file = "tokenizer.json");

}  // namespace fairlead::tokenizer
