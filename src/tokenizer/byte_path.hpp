#pragma once

#include <memory>

#include "base/error.hpp"
#include "tokenizer/text_path.hpp"
#include "tokenizer/tokenizer_json.hpp"

namespace fairlead::tokenizer {

/// Whether a file is that of a byte-level BPE, whose words need never be spelled out: what most
/// models have.
bool is_byte_level_bpe(const TokenizerFile& file);

/// The path of such a file.
Result<std::unique_ptr<const TextPath>> make_byte_path(const TokenizerFile& file);

}  // namespace fairlead::tokenizer
