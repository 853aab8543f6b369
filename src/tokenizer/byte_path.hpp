#pragma once

#include <memory>

#include "base/error.hpp"
#include "tokenizer/scanners.hpp"
#include "tokenizer/text_path.hpp"
#include "tokenizer/tokenizer_json.hpp"
#include "tokenizer/vocabulary.hpp"

namespace fairlead::tokenizer {

/// Whether a file is that of a byte-level BPE, whose words need never be spelled out: what most
/// models have.
bool is_byte_level_bpe(const TokenizerFile& file);

/// The path of such a file.
Result<std::unique_ptr<const TextPath>> make_byte_path(const TokenizerFile& file);

/// The path of a model that is merged by rank, the ids being the ranks (`merges_by_id`), and whose
/// added tokens stand for themselves. Takes a finished vocabulary; fails when it lacks a byte.
Result<std::unique_ptr<const TextPath>> make_rank_path(Vocabulary vocabulary, Scanner scanner);

}  // namespace fairlead::tokenizer
