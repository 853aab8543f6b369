// links: fl_base
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/json.hpp"

// What parses must print as something that parses to the same document again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto document = fairlead::json::parse(text);
  if (!document) {
    return 0;
  }
  const std::string printed = fairlead::json::dump(*document);
  const auto again = fairlead::json::parse(printed);
  if (!again || fairlead::json::dump(*again) != printed) {
    std::abort();
  }
  return 0;
}
