#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "tokenizer/tokenizer_config.hpp"
#include "tokenizer/tokenizer_source.hpp"

namespace fairlead::tokenizer {

/// The files that hold a tokenizer.
enum class TokenizerFileKind : std::uint8_t {
  TokenizerJson,  ///< Of the reference library.
  Tekken,         ///< JSON of Mistral.
  SentencePiece,  ///< A protobuf, `tokenizer.model`.
  Ranks,          ///< Lines of base64 and a number, of tiktoken.
};

/// A whole file, at most 1 GiB.
Result<std::string> read_file(const std::filesystem::path& path);

/// The file that holds a folder's tokenizer: the first there is of `tokenizer.json`, `tekken.json`,
/// `tokenizer.model` and `tiktoken.model`, else the only one that is named `*.tiktoken` or
/// `tokenizer.model.v*`.
Result<std::filesystem::path> find_tokenizer_file(const std::filesystem::path& folder);

/// Of what kind a file is. `tokenizer.json` and `tekken.json` are what they are called; otherwise
/// the contents decide: a JSON object with `config` and `vocab` is Mistral's, any other the
/// reference's; a first line of base64 and a number begins a rank file; the rest can only be
/// SentencePiece's.
TokenizerFileKind tokenizer_file_kind(std::string_view name, std::string_view text);

/// What a tokenizer file of any kind with this text gives, beside this `tokenizer_config.json`.
Result<TokenizerSource> read_source(const std::filesystem::path& file, std::string text,
                                    const TokenizerConfig& config);

}  // namespace fairlead::tokenizer
