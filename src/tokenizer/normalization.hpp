#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>

namespace fairlead::tokenizer {

/// Unicode normalization forms.
enum class NormalizationForm : std::uint8_t { C, D, KC, KD };

/// Normalization as the reference's crate does it (Unicode 9: later characters neither compose nor
/// move). Returns false and leaves `out` alone when the text certainly is in that form already;
/// otherwise `out` becomes the normalized text, cut short once `stop` is requested. `text` must be
/// well-formed UTF-8.
bool normalize(NormalizationForm form, std::string_view text, std::string& out,
               const std::stop_token& stop = {});

/// Normalization form C.
bool normalize_nfc(std::string_view text, std::string& out);

/// Builds the tables that `normalize` otherwise builds at the first call for this form.
void prepare_normalization(NormalizationForm form);

/// Builds the tables for form C.
void prepare_nfc();

}  // namespace fairlead::tokenizer
