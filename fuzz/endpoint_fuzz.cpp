// links: fl_fleet

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fleet/endpoint.hpp"

// A normal form must be a fixed point: parsing it again gives the same endpoint and worker id.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto endpoint = fleet::parse_endpoint(text)) {
    const auto again = fleet::parse_endpoint(endpoint->url);
    if (!again || !(*again == *endpoint) || again->authority != endpoint->authority ||
        again->host != endpoint->host || again->port != endpoint->port || endpoint->port == 0 ||
        endpoint->host.empty()) {
      std::abort();
    }
  }
  if (const auto list = fleet::parse_endpoints(text)) {
    if (list->empty()) {
      std::abort();
    }
  }
  static_cast<void>(fleet::replace_wildcard_host(text, "host"));
  return 0;
}
