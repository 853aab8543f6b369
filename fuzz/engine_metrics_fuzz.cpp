// links: fl_engine

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/vllm_http/metrics_text.hpp"

// Arbitrary metrics of a server: shares are shares, and ranks are bounded.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead::engine;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  vllm_http::read_metrics(text);
  const auto usage = vllm_http::read_kv_usage(text);
  if (usage.size() > 4096) {
    std::abort();
  }
  for (const KvUsage& rank : usage) {
    if (!(rank.share >= 0 && rank.share <= 1)) {
      std::abort();
    }
  }
  return 0;
}
