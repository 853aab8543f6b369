// links: fl_mock
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "mock/options.hpp"

// Any text as a fault, a capability or a JSON object of engine settings: refused or understood.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead::mock;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto fault = parse_fault(text)) {
    if (!parse_fault(format_fault(*fault))) {
      std::abort();
    }
  }
  (void)parse_capability(text);
  (void)split_host_port(text);
  MockOptions options;
  if (apply_extra_engine_args(options, "{" + std::string(text))) {
    (void)resolve(options);
  }
  return 0;
}
