#pragma once

#include <string>
#include <string_view>

namespace fairlead::tokenizer {

/// Normalization form C as the reference's crate does it (Unicode 9: later characters neither
/// compose nor move). Returns false and leaves `out` alone when the text certainly is NFC already;
/// otherwise `out` becomes the normalized text. `text` must be well-formed UTF-8.
bool normalize_nfc(std::string_view text, std::string& out);

/// Builds the tables that `normalize_nfc` otherwise builds at its first call.
void prepare_nfc();

}  // namespace fairlead::tokenizer
