#pragma once

#include <deque>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/json.hpp"
#include "chat/chat_template.hpp"
#include "jinja/value.hpp"

namespace fairlead::chat {

/// What a template does with the fields of messages.
struct TemplateTraits {
  ContentFormat content = ContentFormat::Text;  ///< Shape of content.
  bool accepts_argument_text = false;           ///< Tool-call arguments may stay JSON text.
  bool reads_reasoning = false;  ///< It has a place for the reasoning of earlier turns.
};

/// Marks where the last message must be cut when it is to be continued.
inline constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Turns the messages, tools and documents of a request into template values. The values refer to
/// the request and to this object, so both outlive them.
class Conversation {
 public:
  /// Prepares for a template with these traits.
  Conversation(const TemplateTraits& traits, bool normalize)
      : traits_(traits), normalize_(normalize) {}

  /// The messages. With `continue_field`, the tag is appended to that field of the last one and
  /// `final_text` gets what it was; `source` is the template's.
  Result<jinja::Value> messages(const json::Value& list, const std::string* continue_field,
                                std::string_view source);
  /// The tools; None when there are none.
  Result<jinja::Value> tools(const json::Value& list);
  /// The documents; None when there are none.
  static Result<jinja::Value> documents(const json::Value& list);

  /// The text that is to be continued.
  const std::string& final_text() const { return final_text_; }

 private:
  Result<std::vector<jinja::Pair>> message(const json::Object& message, std::size_t index);
  Result<std::vector<jinja::Pair>> normalized(const json::Object& message, std::size_t index);
  Result<jinja::Value> content(const json::Value* content, std::string_view reasoning,
                               std::size_t index);
  Result<jinja::Value> tool_calls(const json::Array& calls, std::size_t index);
  jinja::Value tool_call(const json::Object& call);
  jinja::Value function_call(const json::Object& function, bool keep_text);
  jinja::Value tool(const json::Object& tool);
  Result<> leave_open(std::vector<jinja::Pair>& message, const std::string& field,
                      std::string_view source);

  const TemplateTraits traits_;
  const bool normalize_;
  std::deque<json::Value> parsed_;
  std::string final_text_;
};

/// About how many bytes of text a document is, by which the limits of its render grow.
std::size_t text_bytes(const json::Value& value);

}  // namespace fairlead::chat
