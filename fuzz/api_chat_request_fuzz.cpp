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

// A chat body is refused as the client's mistake, or what it holds obeys the rules; and whatever is
// accepted is JSON by the other parser's judgement too.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace openai = fairlead::api::openai;
  static JsonReader reader;
  ApiOptions options;
  options.ignore_unsupported_fields = size % 2 == 0;
  std::string body;
  body.reserve(size + fairlead::net::http::kBodyPadding);
  body.assign(reinterpret_cast<const char*>(data), size);
  const auto parsed =
      openai::parse_request(fairlead::observe::Endpoint::ChatCompletions, reader, body, options);
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
  if (parsed->model.empty() || parsed->n < 1 || parsed->n > openai::kMaxChoices ||
      parsed->stop.size() > openai::kMaxStops || !parsed->messages.as_array() ||
      parsed->messages.as_array()->empty() || (parsed->max_tokens && *parsed->max_tokens < 1) ||
      (parsed->top_p && !(*parsed->top_p > 0 && *parsed->top_p <= 1)) ||
      (parsed->temperature && !(*parsed->temperature >= 0 && *parsed->temperature <= 2))) {
    std::abort();
  }
  return 0;
}
