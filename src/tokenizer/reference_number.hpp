#pragma once

#include <optional>
#include <string_view>

namespace fairlead::tokenizer {

/// The number a JSON text stands for as the reference reads it, which is up to one unit in the last
/// place off the closest float; nothing when it is too large. `text` starts with a valid number.
std::optional<double> reference_number(std::string_view text);

}  // namespace fairlead::tokenizer
