#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace fairlead::hub {

/// The files without which it is not known that a snapshot is whole, unless the hub is known not to
/// have them.
inline constexpr std::array<std::string_view, 5> kCoreFiles{
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
    "chat_template.jinja"};

/// True for a file of a repository that belongs to a model's text side: tokenizers, templates and
/// configuration, never weights; and whose name is harmless as a path.
bool is_text_file(std::string_view name);

/// True when the file holds a tokenizer.
bool is_tokenizer_file(std::string_view name);

/// Those of the files that are of the text side, sorted, each once.
std::vector<std::string> choose_text_files(const std::vector<std::string>& names);

}  // namespace fairlead::hub
