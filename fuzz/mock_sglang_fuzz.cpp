// links: fl_mock
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "mock/sglang_bootstrap.hpp"
#include "mock/sglang_request.hpp"
#include "sglang/runtime.pb.h"

// Any bytes as a GenerateRequest, as a decode engine's announcement and as a prefill engine's
// answer: refused or read, and what was read is written and read the same again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead::mock;
  if (size < 1) {
    return 0;
  }
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  if (const auto announcement = parse_announcement(bytes)) {
    const auto again = parse_announcement(announcement_json(*announcement));
    if (!again || again->room != announcement->room || again->rank != announcement->rank) {
      __builtin_trap();
    }
  }
  if (const auto first = parse_first_token(bytes)) {
    const auto again = parse_first_token(first_token_json(*first));
    if (!again || again->token != first->token || again->cached != first->cached) {
      __builtin_trap();
    }
  }
  MockOptions options;
  options.interface = Interface::Sglang;
  options.role = static_cast<Role>(data[0] % 3);
  options.vocab_size = data[0] & 4 ? 50000 : 0;
  options.data_parallel_size = data[0] & 8 ? 4 : 1;
  options.eos_token_ids = {2};
  if (!resolve(options)) {
    return 0;
  }
  ::sglang::runtime::v1::GenerateRequest request;
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return 0;
  }
  if (check_sglang_fields(request, options)) {
    return 0;
  }
  const SglangOutcome outcome = check_sglang_request(request, "rid", options);
  if (const auto* checked = std::get_if<SglangRequest>(&outcome)) {
    const auto& spec = checked->spec;
    if (spec.prompt.empty() || spec.stop.max_new_tokens < 1 || checked->choices < 1 ||
        spec.prompt.size() + spec.stop.max_new_tokens >= options.max_model_len + 1) {
      __builtin_trap();
    }
  }
  return 0;
}
