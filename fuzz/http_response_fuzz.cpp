// links: fl_net
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "net/http1_response_reader.hpp"

// A response must read the same however it was cut. The first byte of an input chooses the cuts and
// what was asked.

namespace {

namespace http = fairlead::net::http;

struct Outcome {
  bool ok = true;
  bool done = false;
  bool reusable = false;
  fairlead::ErrorCode code{};
  int status = 0;
  std::string fields;
  std::string body;

  bool operator==(const Outcome&) const = default;
};

Outcome read(std::string_view bytes, std::size_t piece, bool head, bool streaming) {
  http::ClientLimits limits;
  limits.header_bytes = 512;
  limits.body_bytes = 300;
  std::string streamed;
  const http::ResponseReader::OnBody on_body = [&](std::string_view part) {
    if (part.empty()) {
      std::abort();
    }
    streamed.append(part);
  };
  http::ResponseReader reader(limits, head, streaming ? &on_body : nullptr);
  Outcome out;
  fairlead::Result<> result;
  for (std::size_t at = 0; at < bytes.size() && result; at += piece) {
    result = reader.feed(bytes.substr(at, piece));
  }
  if (result) {
    result = reader.end();
  }
  out.ok = result.has_value();
  if (!result) {
    out.code = result.error().code;
    return out;
  }
  out.done = reader.done();
  out.reusable = reader.reusable();
  out.status = reader.response().status;
  for (const http::Header& header : reader.response().headers) {
    out.fields += header.name + ":" + header.value + "\n";
  }
  out.body = streamed + reader.response().body;
  if (!out.done || reader.response().body.size() > limits.body_bytes) {
    std::abort();
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) {
    return 0;
  }
  const std::size_t choice = data[0];
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  const bool head = choice % 8 == 7;
  const bool streaming = choice % 2 == 1;
  const Outcome whole = read(bytes, size, head, streaming);
  if (!(read(bytes, 1 + choice / 8, head, streaming) == whole)) {
    std::abort();
  }
  return 0;
}
