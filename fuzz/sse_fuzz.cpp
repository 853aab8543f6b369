// links: fl_net
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "net/http_client.hpp"

// Events must read the same however the bytes were cut. The first byte of an input chooses the
// cuts.

namespace {

std::string read(std::string_view bytes, std::size_t piece) {
  fairlead::net::http::SseReader reader(100);
  std::string out;
  bool ok = true;
  for (std::size_t at = 0; at < bytes.size() && ok; at += piece) {
    ok = reader.feed(bytes.substr(at, piece), [&](std::string_view event, std::string_view data) {
      if (event.empty() || data.size() > 100) {
        std::abort();
      }
      out.append(event).append("\0", 1).append(data).append("\0", 1);
    });
  }
  return out + (ok ? "" : "too large");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) {
    return 0;
  }
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  if (read(bytes, size) != read(bytes, 1 + data[0] % 32)) {
    std::abort();
  }
  return 0;
}
