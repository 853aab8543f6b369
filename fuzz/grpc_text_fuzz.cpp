// links: fl_net
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "net/grpc_wire.hpp"

// The text encodings of gRPC: what is encoded decodes to itself, and no input is read out of
// bounds.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace grpc = fairlead::net::grpc;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::string escaped = grpc::percent_encode(text);
  for (const char c : escaped) {
    if (c < ' ' || c > '~') {
      std::abort();
    }
  }
  if (grpc::percent_decode(escaped) != text || grpc::percent_decode(text).size() > text.size()) {
    std::abort();
  }
  if (grpc::base64_decode(grpc::base64_encode(text)) != text) {
    std::abort();
  }
  static_cast<void>(grpc::base64_decode(text));
  static_cast<void>(grpc::parse_status(text));
  if (const auto timeout = grpc::parse_timeout(text)) {
    const auto again = grpc::parse_timeout(grpc::format_timeout(*timeout));
    if (timeout->count() < 0 || !again || *again < *timeout) {
      std::abort();
    }
  }
  return 0;
}
