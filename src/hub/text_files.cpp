#include "hub/text_files.hpp"

#include <algorithm>

namespace fairlead::hub {
namespace {

constexpr std::size_t kMaxNameBytes = 128;
constexpr std::string_view kTemplates = "additional_chat_templates/";

constexpr std::array<std::string_view, 14> kNamed{"added_tokens.json",
                                                  "chat_template.json",
                                                  "config.json",
                                                  "merges.txt",
                                                  "params.json",
                                                  "generation_config.json",
                                                  "tekken.json",
                                                  "processor_config.json",
                                                  "preprocessor_config.json",
                                                  "tokenizer.json",
                                                  "tokenizer_config.json",
                                                  "special_tokens_map.json",
                                                  "vocab.json",
                                                  "vocab.txt"};

/// A name without folders, of which nothing is special to a shell, a terminal or a file system.
bool is_plain(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && name.front() != '.' &&
         name.front() != '-' && std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-' || c == '+';
         });
}

/// `tokenizer.model`, also with a version behind it (`tokenizer.model.v3`), and the like.
bool is_vocabulary(std::string_view name) {
  return name.ends_with(".tiktoken") || name.ends_with(".model") ||
         name.starts_with("tokenizer.model.v");
}

}  // namespace

bool is_text_file(std::string_view name) {
  if (name.starts_with(kTemplates)) {
    const std::string_view file = name.substr(kTemplates.size());
    return is_plain(file) && file.ends_with(".jinja");
  }
  return is_plain(name) &&
         (std::ranges::find(kNamed, name) != kNamed.end() || is_vocabulary(name) ||
          (name.starts_with("chat_template") && name.ends_with(".jinja")) ||
          name.ends_with("preprocessor_config.json"));
}

bool is_tokenizer_file(std::string_view name) {
  return name == "tokenizer.json" || name == "tekken.json" || name == "vocab.json" ||
         name == "vocab.txt" || (is_plain(name) && is_vocabulary(name));
}

std::vector<std::string> choose_text_files(const std::vector<std::string>& names) {
  std::vector<std::string> chosen;
  std::ranges::copy_if(names, std::back_inserter(chosen),
                       [](const std::string& name) { return is_text_file(name); });
  std::ranges::sort(chosen);
  const auto repeated = std::ranges::unique(chosen);
  chosen.erase(repeated.begin(), repeated.end());
  return chosen;
}

}  // namespace fairlead::hub
