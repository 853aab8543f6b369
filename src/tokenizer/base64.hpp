#pragma once

#include <string>
#include <string_view>

namespace fairlead::tokenizer {

/// Appends the bytes of canonical base64 with padding. False, with `out` as it was, for anything
/// else.
bool append_base64_bytes(std::string& out, std::string_view text);

}  // namespace fairlead::tokenizer
