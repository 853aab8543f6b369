#pragma once

#include <memory>
#include <string_view>

#include "base/error.hpp"
#include "chat/model_files.hpp"

namespace fairlead::cli {

/// `tokenizer.json` of the demo's model.
std::string_view demo_tokenizer_json();
/// `tokenizer_config.json` of the demo's model.
std::string_view demo_tokenizer_config_json();
/// `config.json` of the demo's model.
std::string_view demo_config_json();
/// `chat_template.jinja` of the demo's model.
std::string_view demo_chat_template();

/// The demo's model, built from the embedded files.
Result<std::shared_ptr<const chat::ModelAssets>> load_demo_model();

}  // namespace fairlead::cli
