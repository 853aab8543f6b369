#include "chat/messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "jinja/object.hpp"

namespace fairlead::chat {
namespace {

using jinja::Pair;
using jinja::Value;

// Names under which reasoning is passed, the standard one first.
constexpr std::array<std::string_view, 3> kReasoningFields = {"reasoning_content", "thinking",
                                                              "reasoning"};

bool is_reasoning(std::string_view name) {
  return std::ranges::find(kReasoningFields, name) != kReasoningFields.end();
}

std::unexpected<Error> wrong(std::string message, std::string param = "messages") {
  return fail(ErrorCode::InvalidRequest, std::move(message), std::move(param));
}

Pair entry(std::string_view key, Value value) { return {Value::borrowed(key), std::move(value)}; }

Pair* find(std::vector<Pair>& pairs, std::string_view key) {
  const auto found =
      std::ranges::find_if(pairs, [key](const Pair& pair) { return pair.first.text() == key; });
  return found == pairs.end() ? nullptr : &*found;
}

Value text_part(Value text) {
  return Value::dict({entry("type", Value::borrowed("text")), entry("text", std::move(text))});
}

// transformers gives the reasoning every name that templates look for it under.
void alias_reasoning(std::vector<Pair>& message) {
  const Pair* found = nullptr;
  for (std::string_view name : kReasoningFields) {
    found = found != nullptr ? found : find(message, name);
  }
  if (found == nullptr) {
    return;
  }
  const Value reasoning = found->second;
  if (const Pair* own = find(message, "thinking")) {
    const Value value = own->second;
    std::erase_if(message, [](const Pair& pair) { return pair.first.text() == "thinking"; });
    message.insert(message.begin(), entry("thinking", value));
  } else {
    message.insert(message.begin(), entry("thinking", reasoning));
  }
  if (Pair* standard = find(message, "reasoning_content")) {
    standard->second = reasoning;
  } else {
    message.push_back(entry("reasoning_content", reasoning));
  }
}

// The text of a content part that is text under some name; null for other parts.
const std::string* part_text(const json::Value& part, std::string_view& type) {
  type = "text";
  if (const std::string* plain = part.as_string()) {
    return plain;
  }
  if (const json::Value* named = part.find("type"); named != nullptr && named->as_string()) {
    type = *named->as_string();
  }
  if (type == "text" || type == "input_text" || type == "output_text") {
    const json::Value* text = part.find("text");
    return text != nullptr ? text->as_string() : nullptr;
  }
  if (type == "refusal") {
    const json::Value* text = part.find("refusal");
    return text != nullptr ? text->as_string() : nullptr;
  }
  return nullptr;
}

bool is_text_type(std::string_view type) {
  return type == "text" || type == "input_text" || type == "output_text" || type == "refusal";
}

}  // namespace

Result<Value> Conversation::messages(const json::Value& list, const std::string* continue_field,
                                     std::string_view source) {
  const json::Array* array = list.as_array();
  if (array == nullptr) {
    return wrong("messages must be a list");
  }
  if (array->empty()) {
    return wrong(
        "Cannot apply chat template to an empty conversation. Provide at least one message.");
  }
  std::vector<Value> values;
  values.reserve(array->size());
  for (const json::Value& element : *array) {
    const std::size_t index = values.size();
    const json::Object* object = element.as_object();
    if (object == nullptr) {
      return wrong(fmt::format("messages[{}] must be an object", index));
    }
    auto pairs = message(*object, index);
    if (!pairs) {
      return std::unexpected(std::move(pairs.error()));
    }
    alias_reasoning(*pairs);
    if (continue_field != nullptr && index + 1 == array->size()) {
      if (auto open = leave_open(*pairs, *continue_field, source); !open) {
        return std::unexpected(std::move(open.error()));
      }
    }
    values.push_back(Value::dict(std::move(*pairs)));
  }
  return Value::list(std::move(values));
}

Result<std::vector<Pair>> Conversation::message(const json::Object& message, std::size_t index) {
  if (normalize_) {
    return normalized(message, index);
  }
  std::vector<Pair> pairs;
  pairs.reserve(message.size() + 2);
  for (const json::Member& member : message) {
    // Many templates misread null where they handle a missing key, so transformers drops it.
    if (!member.value.is_null()) {
      pairs.push_back(entry(member.key, jinja::from_json(member.value)));
    }
  }
  return pairs;
}

Result<std::vector<Pair>> Conversation::normalized(const json::Object& message, std::size_t index) {
  // Without a place in the template, earlier reasoning goes back to where it came from.
  std::string_view reasoning;
  if (!traits_.reads_reasoning) {
    for (std::string_view name : kReasoningFields) {
      const json::Value* value = message.find(name);
      if (reasoning.empty() && value != nullptr && value->as_string()) {
        reasoning = *value->as_string();
      }
    }
  }
  std::vector<Pair> pairs;
  pairs.reserve(message.size() + 3);
  bool has_content = false;
  for (const auto& [key, value] : message) {
    if (key == "content") {
      auto converted = content(&value, reasoning, index);
      if (!converted) {
        return std::unexpected(std::move(converted.error()));
      }
      pairs.push_back(entry(key, std::move(*converted)));
      has_content = true;
    } else if (value.is_null() || (is_reasoning(key) && !traits_.reads_reasoning)) {
      continue;
    } else if (key == "tool_calls" && value.as_array() != nullptr) {
      // An empty list would send templates down the path of a tool call.
      if (value.as_array()->empty()) {
        continue;
      }
      auto calls = tool_calls(*value.as_array(), index);
      if (!calls) {
        return std::unexpected(std::move(calls.error()));
      }
      pairs.push_back(entry(key, std::move(*calls)));
    } else if (key == "function_call" && value.as_object() != nullptr) {
      pairs.push_back(entry(key, function_call(*value.as_object(), false)));
    } else {
      pairs.push_back(entry(key, jinja::from_json(value)));
    }
  }
  if (!has_content) {
    auto converted = content(nullptr, reasoning, index);
    if (!converted) {
      return std::unexpected(std::move(converted.error()));
    }
    pairs.push_back(entry("content", std::move(*converted)));
  }
  return pairs;
}

Result<Value> Conversation::content(const json::Value* content, std::string_view reasoning,
                                    std::size_t index) {
  const bool parts = traits_.content == ContentFormat::Parts;
  const std::string prefix = reasoning.empty() ? "" : fmt::format("<think>{}</think>", reasoning);
  if (content == nullptr || content->is_null()) {
    if (!parts) {
      return Value::string(prefix);
    }
    return Value::list(prefix.empty() ? std::vector<Value>()
                                      : std::vector<Value>{text_part(Value::string(prefix))});
  }
  if (const std::string* text = content->as_string()) {
    Value value = prefix.empty() ? Value::borrowed(*text) : Value::string(prefix + *text);
    return parts ? Value::list({text_part(std::move(value))}) : value;
  }
  const json::Array* array = content->as_array();
  if (array == nullptr) {
    return wrong(fmt::format("messages[{}].content must be a text or a list of parts", index));
  }
  std::string joined = prefix;
  std::vector<Value> list;
  if (!prefix.empty()) {
    list.push_back(text_part(Value::string(prefix)));
  }
  bool first = true;
  for (const json::Value& part : *array) {
    std::string_view type;
    const std::string* text = part_text(part, type);
    if (text == nullptr) {
      if (is_text_type(type)) {
        return wrong(fmt::format("messages[{}].content has a part without text", index));
      }
      return fail(
          ErrorCode::UnsupportedField,
          fmt::format("messages[{}].content: parts of type `{}` are not supported", index, type),
          "messages");
    }
    if (parts) {
      list.push_back(text_part(Value::borrowed(*text)));
    } else {
      joined += first ? "" : "\n";
      joined += *text;
    }
    first = false;
  }
  return parts ? Value::list(std::move(list)) : Value::string(joined);
}

Result<Value> Conversation::tool_calls(const json::Array& calls, std::size_t index) {
  std::vector<Value> values;
  values.reserve(calls.size());
  for (const json::Value& call : calls) {
    if (call.as_object() == nullptr) {
      return wrong(fmt::format("messages[{}].tool_calls must be a list of objects", index));
    }
    values.push_back(tool_call(*call.as_object()));
  }
  return Value::list(std::move(values));
}

Value Conversation::tool_call(const json::Object& call) {
  std::vector<Pair> pairs;
  pairs.reserve(call.size());
  for (const auto& [key, value] : call) {
    const bool function = key == "function" && value.as_object() != nullptr;
    pairs.push_back(
        entry(key, function ? function_call(*value.as_object(), traits_.accepts_argument_text)
                            : jinja::from_json(value)));
  }
  return Value::dict(std::move(pairs));
}

// Templates want the arguments as a mapping. One that can print the JSON text as it came gets that
// text: reading and writing it again would change bytes of an earlier turn.
Value Conversation::function_call(const json::Object& function, bool keep_text) {
  std::vector<Pair> pairs;
  pairs.reserve(function.size() + 1);
  const auto add = [&pairs](Value value) { pairs.push_back(entry("arguments", std::move(value))); };
  bool seen = false;
  for (const auto& [key, value] : function) {
    if (key != "arguments") {
      pairs.push_back(entry(key, jinja::from_json(value)));
      continue;
    }
    seen = true;
    const std::string* text = value.as_string();
    if (value.is_null() || (text != nullptr && text->empty())) {
      add(Value::dict({}));
    } else if (text == nullptr || keep_text) {
      add(jinja::from_json(value));
    } else if (auto parsed = json::parse(*text); !parsed) {
      add(jinja::from_json(value));
    } else if (parsed->as_object() == nullptr) {
      add(Value::dict({}));
    } else {
      parsed_.push_back(std::move(*parsed));
      add(jinja::from_json(parsed_.back()));
    }
  }
  if (!seen) {
    add(Value::dict({}));
  }
  return Value::dict(std::move(pairs));
}

Result<Value> Conversation::tools(const json::Value& list) {
  if (list.is_null()) {
    return Value();
  }
  const json::Array* array = list.as_array();
  if (array == nullptr) {
    return wrong("tools must be a list", "tools");
  }
  if (array->empty() && normalize_) {
    return Value();
  }
  std::vector<Value> values;
  for (const json::Value& element : *array) {
    if (element.as_object() == nullptr) {
      return wrong("tools must be a list of objects", "tools");
    }
    values.push_back(normalize_ ? tool(*element.as_object()) : jinja::from_json(element));
  }
  return Value::list(std::move(values));
}

// vLLM reads tools into a schema and writes them out again: known keys first and in its order,
// null for absent ones, then the rest.
Value Conversation::tool(const json::Object& tool) {
  const json::Value* function = tool.find("function");
  if (function == nullptr || function->as_object() == nullptr) {
    std::vector<Pair> pairs;
    for (const auto& [key, value] : tool) {
      pairs.push_back(entry(key, jinja::from_json(value)));
    }
    return Value::dict(std::move(pairs));
  }
  const auto member = [](const json::Object& object, std::string_view key) {
    const json::Value* value = object.find(key);
    return value != nullptr ? jinja::from_json(*value) : Value();
  };
  Value parameters = member(*function->as_object(), "parameters");
  if (const json::Value* given = function->as_object()->find("parameters");
      given != nullptr && given->as_object() != nullptr &&
      (given->find("type") == nullptr || given->find("properties") == nullptr)) {
    std::vector<Pair> pairs;
    for (const auto& [key, value] : *given->as_object()) {
      pairs.push_back(entry(key, jinja::from_json(value)));
    }
    if (given->find("type") == nullptr) {
      pairs.push_back(entry("type", Value::borrowed("object")));
    }
    if (given->find("properties") == nullptr) {
      pairs.push_back(entry("properties", Value::dict({})));
    }
    parameters = Value::dict(std::move(pairs));
  }
  std::vector<Pair> inner = {entry("name", member(*function->as_object(), "name")),
                             entry("description", member(*function->as_object(), "description")),
                             entry("parameters", std::move(parameters))};
  for (const auto& [key, value] : *function->as_object()) {
    if (key != "name" && key != "description" && key != "parameters") {
      inner.push_back(entry(key, jinja::from_json(value)));
    }
  }
  const json::Value* type = tool.find("type");
  std::vector<Pair> outer = {
      entry("type", type != nullptr ? jinja::from_json(*type) : Value::borrowed("function")),
      entry("function", Value::dict(std::move(inner)))};
  for (const auto& [key, value] : tool) {
    if (key != "type" && key != "function") {
      outer.push_back(entry(key, jinja::from_json(value)));
    }
  }
  return Value::dict(std::move(outer));
}

Result<Value> Conversation::documents(const json::Value& list) {
  if (list.is_null()) {
    return Value();
  }
  const json::Array* array = list.as_array();
  const auto is_object = [](const json::Value& value) { return value.as_object() != nullptr; };
  if (array == nullptr || !std::ranges::all_of(*array, is_object)) {
    return wrong("Documents should be a list of dicts with 'title' and 'text' keys!", "documents");
  }
  return jinja::from_json(list);
}

Result<> Conversation::leave_open(std::vector<Pair>& message, const std::string& field,
                                  std::string_view source) {
  const Pair* found = find(message, field);
  if (found == nullptr) {
    return wrong(fmt::format(
        "continue_final_message is set but the final message has no \"{}\" to continue!", field));
  }
  const Value original = found->second;
  std::vector<std::string> fields = {field};
  if (is_reasoning(field)) {
    // Reasoning has several names; whichever the template reads is left open.
    fields.clear();
    for (std::string_view name : kReasoningFields) {
      const Pair* copy = find(message, name);
      if (copy != nullptr && copy->second.is_string() && original.is_string() &&
          copy->second.text() == original.text()) {
        fields.emplace_back(name);
      }
    }
  }
  const auto mentioned = [source](const std::string& name) {
    return source.find(name) != std::string_view::npos;
  };
  if (std::ranges::none_of(fields, mentioned)) {
    return wrong(
        fmt::format("continue_final_message is set to \"{}\" but this is not an accepted "
                    "field in the chat_template",
                    field));
  }
  if (original.is_string()) {
    final_text_ = original.text();
    for (const std::string& name : fields) {
      find(message, name)->second = Value::string(final_text_ + std::string(kContinueTag));
    }
    return {};
  }
  if (original.kind() == jinja::Kind::List) {
    std::vector<Value> parts = jinja::as<jinja::ListObject>(original).items();
    for (std::size_t i = parts.size(); i-- > 0;) {
      if (parts[i].kind() != jinja::Kind::Dict) {
        continue;
      }
      std::vector<Pair> pairs = jinja::as<jinja::DictObject>(parts[i]).store().entries();
      Pair* text = find(pairs, "text");
      if (text == nullptr || !text->second.is_string()) {
        continue;
      }
      final_text_ = text->second.text();
      text->second = Value::string(final_text_ + std::string(kContinueTag));
      parts[i] = Value::dict(std::move(pairs));
      find(message, field)->second = Value::list(std::move(parts));
      return {};
    }
  }
  return wrong(
      "continue_final_message is set but we could not find any text to continue in the final "
      "message!");
}

std::size_t text_bytes(const json::Value& value) {
  constexpr std::size_t kPunctuation = 8;  // Quotes and separators of an element.
  std::size_t bytes = kPunctuation;
  if (const std::string* text = value.as_string()) {
    bytes += text->size();
  } else if (const json::Array* array = value.as_array()) {
    for (const json::Value& element : *array) {
      bytes += text_bytes(element);
    }
  } else if (const json::Object* object = value.as_object()) {
    for (const json::Member& member : *object) {
      bytes += member.key.size() + text_bytes(member.value);
    }
  }
  return bytes;
}

}  // namespace fairlead::chat
