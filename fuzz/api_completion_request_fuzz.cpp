// links: fl_api
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "api/openai/request.hpp"
#include "request_body.hpp"

// A completions body is refused, or what it holds obeys the rules.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace openai = fairlead::api::openai;
  const auto parsed =
      fairlead::fuzz::parse_body(fairlead::observe::Endpoint::Completions, data, size);
  if (!parsed) {
    return 0;
  }
  if (!fairlead::fuzz::obeys_token_rules(*parsed) || (parsed->max_tokens == 0 && !parsed->echo)) {
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
