// links: fl_api
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "api/openai/request.hpp"
#include "base/json.hpp"

using fairlead::ErrorCode;
using fairlead::api::ApiOptions;
using fairlead::api::JsonReader;

// A completions body is refused as the client's mistake, or what it holds obeys the rules; and
// whatever is accepted is JSON by the other parser's judgement too.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace openai = fairlead::api::openai;
  static JsonReader reader;
  ApiOptions options;
  options.ignore_unsupported_fields = size % 2 == 0;
  std::string body;
  body.reserve(size + fairlead::net::http::kBodyPadding);
  body.assign(reinterpret_cast<const char*>(data), size);
  const auto parsed =
      openai::parse_request(fairlead::observe::Endpoint::Completions, reader, body, options);
  if (!parsed) {
    if (parsed.error().code != ErrorCode::InvalidRequest &&
        parsed.error().code != ErrorCode::UnsupportedField) {
      std::abort();
    }
    return 0;
  }
  if (!fairlead::json::parse(body)) {
    std::abort();
  }
  if (parsed->model.empty() || parsed->prompts.empty() ||
      parsed->prompts.size() * parsed->n > openai::kMaxChoices ||
      parsed->stop.size() > openai::kMaxStops) {
    std::abort();
  }
  for (const openai::Prompt& prompt : parsed->prompts) {
    const auto* ids = std::get_if<1>(&prompt);
    if (ids && ids->empty()) {
      std::abort();
    }
  }
  for (const auto& [id, bias] : parsed->logit_bias) {
    if (!(bias >= -100 && bias <= 100)) {
      std::abort();
    }
  }
  return 0;
}
