// links: fl_mock
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "mock/vllm_output.hpp"
#include "mock/vllm_request.hpp"
#include "vllm/inference.pb.h"

// Any bytes as a GenerateRequest: refused or checked, and what was checked can be answered.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead::mock;
  if (size < 1) {
    return 0;
  }
  MockOptions options;
  options.role = static_cast<Role>(data[0] % 3);
  options.vocab_size = data[0] & 4 ? 50000 : 0;
  options.eos_token_ids = {2};
  if (!resolve(options)) {
    return 0;
  }
  ::vllm::GenerateRequest request;
  if (!request.ParseFromArray(data + 1, static_cast<int>(size - 1))) {
    return 0;
  }
  const std::string_view rank = request.session_id();
  const auto spec = check_request(request, data[0] & 8 ? &rank : nullptr, options);
  if (!spec) {
    return 0;
  }
  OutputEncoder encoder(*spec, options);
  encoder.prompt_info();
  encoder.step(7, "text", nullptr);
  FinishFacts facts;
  facts.hand_off_engine = "engine";
  facts.hand_off_blocks = 2;
  encoder.step(8, "", &facts);
  return 0;
}
