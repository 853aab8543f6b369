// links: fl_chat
//
// Rendering speed of a chat template in the manner of Qwen3's, which ends in the same statements:
// tool definitions as JSON, a backward scan for the last question, reasoning, tool calls.

#include <benchmark/benchmark.h>

#include <string>

#include "base/json.hpp"
#include "chat/chat_template.hpp"
#include "jinja/template.hpp"

namespace fairlead {
namespace {

constexpr const char* kTemplate = R"({%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
    {{- "# Tools\n\nCall them as JSON within <tool_call></tool_call>:\n<tools>" }}
    {%- for tool in tools %}{{- "\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\n</tools><|im_end|>\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(open=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.open and message.role == "user" and not(message.content.startswith('<r>') and message.content.endswith('</r>')) %}
        {%- set ns.open = false %}{%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}{%- set reasoning = '' %}
        {%- if message.reasoning_content is defined and message.reasoning_content is not none %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in message.content %}
            {%- set content = message.content.split('</think>')[-1].lstrip('\n') %}
            {%- set reasoning = message.content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or reasoning) %}
            {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {%- if (loop.first and content) or (not loop.first) %}{{- '\n' }}{%- endif %}
            {{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
            {%- if call.function.arguments is string %}{{- call.function.arguments }}
            {%- else %}{{- call.function.arguments | tojson }}{%- endif %}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<r>\n' }}{{- message.content }}{{- '\n</r>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %})";

constexpr const char* kTools =
    R"([{"type":"function","function":{"name":"get_weather","description":
"Current weather of a city","parameters":{"type":"object","properties":{"city":{"type":"string",
"description":"Name of the city"},"unit":{"type":"string","enum":["celsius","fahrenheit"]}},
"required":["city"]}}},{"type":"function","function":{"name":"search","description":"Searches the web",
"parameters":{"type":"object","properties":{"query":{"type":"string"},"limit":{"type":"integer",
"default":5}},"required":["query"]}}}])";

json::Value conversation(int messages) {
  json::Array list;
  const auto say = [&list](const char* role, std::string content) {
    json::Object message;
    message.set("role", json::Value(role));
    message.set("content", json::Value(std::move(content)));
    list.emplace_back(std::move(message));
  };
  say("system", "You are a helpful assistant that answers briefly and to the point.");
  for (int i = 1; i < messages; ++i) {
    if (i % 4 == 2) {
      list.push_back(json::parse(R"({"role":"assistant","content":"","tool_calls":[{"id":"c","type":
        "function","function":{"name":"get_weather","arguments":"{\"city\": \"Paris\"}"}}]})")
                         .value());
    } else if (i % 4 == 3) {
      say("tool", R"({"temperature": 21.5, "sky": "clear", "wind": {"speed": 12, "from": "NW"}})");
    } else {
      say(i % 4 == 0 ? "assistant" : "user",
          "A sentence of some eighty characters, as people write them to machines every day.");
    }
  }
  return json::Value(std::move(list));
}

chat::RenderRequest request(int messages) {
  chat::RenderRequest out;
  out.messages = conversation(messages);
  out.tools = json::parse(kTools).value();
  return out;
}

void render(benchmark::State& state) {
  const auto model =
      chat::ChatTemplate::make({{"default", kTemplate}}, {{"eos_token", "<|im_end|>"}});
  const chat::RenderRequest what = request(static_cast<int>(state.range(0)));
  std::size_t bytes = 0;
  for (auto _ : state) {
    auto prompt = (*model)->render(what);
    if (!prompt) {
      state.SkipWithError(prompt.error().message.c_str());
      break;
    }
    bytes += prompt->size();
    benchmark::DoNotOptimize(prompt);
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes));
}
BENCHMARK(render)->Arg(1)->Arg(10)->Arg(100)->Arg(1000);

void parse(benchmark::State& state) {
  for (auto _ : state) {
    auto parsed = jinja::Template::parse(kTemplate);
    benchmark::DoNotOptimize(parsed);
  }
}
BENCHMARK(parse);

}  // namespace
}  // namespace fairlead
