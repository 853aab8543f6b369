// links: fl_mock
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "mock/vllm_http_error.hpp"
#include "mock/vllm_http_request.hpp"

// Any bytes as a body of the HTTP interface: refused with an error, or checked.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead::mock;
  if (size < 1) {
    return 0;
  }
  MockOptions options;
  options.role = static_cast<Role>(data[0] % 3);
  options.flavor = static_cast<HttpFlavor>(data[0] / 4 % 3);
  options.vocab_size = data[0] & 16 ? 50000 : 0;
  options.eos_token_ids = {2};
  options.loras = {"adapter"};
  if (!resolve(options)) {
    return 0;
  }
  const std::string_view body(reinterpret_cast<const char*>(data + 1), size - 1);
  const std::optional<std::string_view> rank =
      data[0] & 32 ? std::optional(body.substr(0, 3)) : std::nullopt;
  const HttpOutcome outcome = check_http_request(body, rank, options);
  if (outcome.request.has_value() == outcome.refusal.has_value()) {
    __builtin_trap();
  }
  if (outcome.refusal) {
    http_error(options.flavor, *outcome.refusal);
  }
  return 0;
}
