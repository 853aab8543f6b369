#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"

namespace fairlead::jinja {
class Template;
}

namespace fairlead::chat {

/// What to render.
struct RenderRequest {
  json::Value messages;               ///< A list of objects, not empty.
  json::Value tools;                  ///< A list, or null when there are none.
  json::Value documents;              ///< A list, or null when there are none.
  bool add_generation_prompt = true;  ///< Ends with the beginning of the answer.
  /// Leaves the last message open instead; excludes `add_generation_prompt`.
  bool continue_final_message = false;
  std::string continue_field = "content";  ///< What of the last message is left open.
  json::Object kwargs;                     ///< `chat_template_kwargs`: override every variable.
  json::Object special_tokens;             ///< Override the model's, by name.
  std::string template_override;   ///< Source, or name of one of the model's; empty: the model's.
  std::optional<std::string> now;  ///< ISO local time that the template sees; absent: the clock.
  /// Treats the messages first as the server does (docs/chat-templates.md): content as the template
  /// wants it, tool-call arguments and tool definitions as vLLM hands them over, U+0000 removed
  /// from the result. Otherwise the messages are taken as they stand, as transformers does.
  bool normalize = true;
  std::stop_token stop = {};  ///< Once requested, the render ends with an error.
};

/// Which shape of message content a template reads.
enum class ContentFormat : std::uint8_t {
  Text,   ///< One text; a list of text parts is joined by newlines.
  Parts,  ///< A list of parts; a text becomes a list of one.
};

/// The chat templates of a model. Immutable; any number of threads may render at once.
class ChatTemplate {
 public:
  /// Names and sources.
  using Sources = std::vector<std::pair<std::string, std::string>>;

  /// Reads a model folder, as transformers does: `chat_template.jinja` with
  /// `additional_chat_templates/NAME.jinja`, else `chat_template.json`, else the `chat_template`
  /// of `tokenizer_config.json` (a text, or a list of `{name, template}`), which also names the
  /// special tokens. Null when the model has no template. Errors name the file.
  static Result<std::shared_ptr<const ChatTemplate>> load(const std::filesystem::path& folder);
  /// The same with special tokens that the caller has read, by name.
  static Result<std::shared_ptr<const ChatTemplate>> load(const std::filesystem::path& folder,
                                                          Sources special_tokens);
  /// Parses templates by name (`default`, `tool_use`, …); special tokens by name.
  static Result<std::shared_ptr<const ChatTemplate>> make(Sources templates,
                                                          Sources special_tokens);

  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  /// The prompt. Every failure is `InvalidRequest` (or `UnsupportedField` for content that is not
  /// text): messages of the wrong shape, `raise_exception` of the template, exceeded limits. Takes
  /// some 10 µs for a short conversation.
  Result<std::string> render(const RenderRequest& request) const;

  /// Which content the template for conversations without tools reads.
  ContentFormat content_format() const;
  /// Source of the named template; empty when there is none.
  std::string_view source(std::string_view name) const;

 private:
  struct Entry;

  ChatTemplate();

  Result<const Entry*> choose(const RenderRequest& request, std::unique_ptr<Entry>& own) const;
  static Result<Entry> analyse(std::string name, std::string source);

  std::vector<Entry> entries_;
  Sources special_tokens_;
};

/// True when a prompt ends inside a thinking block that it opened itself.
bool ends_inside_thinking(std::string_view prompt);

}  // namespace fairlead::chat
