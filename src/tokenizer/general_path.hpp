#pragma once

#include <memory>

#include "base/error.hpp"
#include "tokenizer/text_path.hpp"
#include "tokenizer/tokenizer_json.hpp"

namespace fairlead::tokenizer {

/// The path of any file: words are strings, as the reference handles them.
Result<std::unique_ptr<const TextPath>> make_general_path(const TokenizerFile& file);

}  // namespace fairlead::tokenizer
