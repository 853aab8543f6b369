// links: fl_jinja

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "base/utf8.hpp"
#include "jinja/template.hpp"

// Parses and renders any source: it must end soon, within its limits, with well-formed text.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  static const json::Value context =
      json::parse(R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":
        [{"type":"text","text":"Gr\u00fc\u00dfe \ud83c\udf89"}]},{"role":"assistant","content":"a b",
        "tool_calls":[{"function":{"name":"f","arguments":{"x":[1,2.5,null,true]}}}]}],
        "tools":null,"n":7,"f":2.5,"s":"Hello World","d":{"b":1,"a":{"x":[1]}},"l":[3,1,2]})")
          .value();
  auto parsed = jinja::Template::parse(std::string(reinterpret_cast<const char*>(data), size));
  if (!parsed) {
    return 0;
  }
  (*parsed)->loops_over_content();
  jinja::Template::Options options;
  options.now = "2026-01-15T12:34:56";
  options.limits.max_output_bytes = std::size_t{64} << 10;
  options.limits.max_live_bytes = std::size_t{4} << 20;
  options.limits.max_steps = 20'000;
  const auto first = (*parsed)->render(jinja::from_json(context), options);
  if (first &&
      first->size() > 2 * options.limits.max_output_bytes + options.limits.max_live_bytes) {
    __builtin_trap();
  }
  if (first && !utf8::valid(*first)) {
    __builtin_trap();
  }
  // A template keeps nothing of a render.
  const auto second = (*parsed)->render(jinja::from_json(context), options);
  const std::string_view source = (*parsed)->source();
  if (source.find("random") == std::string_view::npos &&
      (first.has_value() != second.has_value() || (first && *first != *second))) {
    __builtin_trap();
  }
  return 0;
}
