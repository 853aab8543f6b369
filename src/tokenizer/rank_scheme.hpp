#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "tokenizer/added_tokens.hpp"
#include "tokenizer/scanners.hpp"

namespace fairlead::tokenizer {

/// What a rank file does not say itself.
struct RankScheme {
  Scanner scanner = Scanner::None;       ///< How text is cut into words; not `None`.
  std::vector<AddedToken> added_tokens;  ///< With their ids.
  /// As many ids behind the ranks are added tokens `<|reserved_token_ID|>`.
  TokenId reserved = 0;
};

/// The scheme of a rank file: by its name, as OpenAI and Qwen publish theirs
/// (`cl100k_base.tiktoken` …), else by `model_type` in the `config.json` beside it or by
/// `tokenizer_class` and `auto_map` in the `tokenizer_config.json` there. Fails when none of them
/// is known.
Result<RankScheme> find_rank_scheme(const std::filesystem::path& file);

/// The scheme of a published file by its name without `.tiktoken`, or of `kimi`; a failure names
/// the known ones.
Result<RankScheme> named_rank_scheme(std::string_view name);

}  // namespace fairlead::tokenizer
