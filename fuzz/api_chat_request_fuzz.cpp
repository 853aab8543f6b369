// links: fl_api
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "api/openai/request.hpp"
#include "request_body.hpp"

// A chat body is refused, or what it holds obeys the rules.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace openai = fairlead::api::openai;
  const auto parsed =
      fairlead::fuzz::parse_body(fairlead::observe::Endpoint::ChatCompletions, data, size);
  if (!parsed) {
    return 0;
  }
  if (!fairlead::fuzz::obeys_token_rules(*parsed)) {
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
