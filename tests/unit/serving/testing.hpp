#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.hpp"

namespace fairlead::serving::testing {

/// A byte-level tokenizer without merges whose ids are the bytes in GPT-2's order of printable
/// stand-ins, plus `<eos>` (256) and `<stop>` (257, not special).
std::shared_ptr<const tokenizer::Tokenizer> byte_tokenizer();

/// The ids of a text under that tokenizer.
std::vector<std::uint32_t> ids_of(std::string_view text);

}  // namespace fairlead::serving::testing
