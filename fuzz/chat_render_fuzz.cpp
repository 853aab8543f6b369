// links: fl_chat

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/json.hpp"
#include "base/utf8.hpp"
#include "chat/chat_template.hpp"

namespace {

constexpr const char* kText =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ m.reasoning_content }}{% for c in "
    "m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% "
    "endfor %}"
    "{{ tools | tojson }}{{ documents }}{{ add_generation_prompt }}";
constexpr const char* kParts =
    "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{{ m.items() | list }}"
    "{% endfor %}{{ tools }}";

}  // namespace

// A JSON document as a request: {"messages": …, "tools": …, "documents": …, "kwargs": {…}}.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  static const auto text =
      chat::ChatTemplate::make({{"default", kText}}, {{"bos_token", "<s>"}}).value();
  static const auto parts = chat::ChatTemplate::make({{"default", kParts}}, {}).value();
  const auto document = json::parse({reinterpret_cast<const char*>(data), size});
  if (!document) {
    return 0;
  }
  chat::RenderRequest request;
  const auto copy = [&document](std::string_view name, json::Value& to) {
    if (const json::Value* value = document->find(name)) {
      to = *value;
    }
  };
  copy("messages", request.messages);
  copy("tools", request.tools);
  copy("documents", request.documents);
  if (const json::Value* kwargs = document->find("kwargs");
      kwargs != nullptr && kwargs->as_object()) {
    request.kwargs = *kwargs->as_object();
  }
  for (const bool normalize : {true, false}) {
    for (const bool continued : {true, false}) {
      request.normalize = normalize;
      request.continue_final_message = continued;
      request.add_generation_prompt = !continued;
      for (const auto& model : {text, parts}) {
        const auto prompt = model->render(request);
        if (prompt && !utf8::valid(*prompt)) {
          __builtin_trap();
        }
      }
    }
  }
  return 0;
}
