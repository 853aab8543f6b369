#pragma once

#include <cstddef>
#include <string_view>

namespace fairlead::tokenizer {

/// End of the extended grapheme cluster (UAX 29) that begins at `pos`, before the end of `text`,
/// which must be well-formed UTF-8. The tables are those of the reference's crate.
std::size_t grapheme_end(std::string_view text, std::size_t pos);

}  // namespace fairlead::tokenizer
