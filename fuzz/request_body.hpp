#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "api/openai/request.hpp"
#include "base/json.hpp"

namespace fairlead::fuzz {

// The request that fuzzer bytes parse to, or nothing when they were refused. Aborts when the
// refusal is not the client's mistake, and when what was accepted is no JSON by the other parser's
// judgement.
inline std::optional<api::openai::RequestBody> parse_body(observe::Endpoint endpoint,
                                                          const std::uint8_t* data,
                                                          std::size_t size) {
  static api::JsonReader reader;
  api::ApiOptions options;
  options.ignore_unsupported_fields = size % 2 == 0;
  std::string body;
  body.reserve(size + net::http::kBodyPadding);
  body.assign(reinterpret_cast<const char*>(data), size);
  auto parsed = api::openai::parse_request(endpoint, reader, body, options);
  if (!parsed) {
    if (parsed.error().code != ErrorCode::InvalidRequest &&
        parsed.error().code != ErrorCode::UnsupportedField) {
      std::abort();
    }
    return std::nullopt;
  }
  if (!json::parse(body)) {
    std::abort();
  }
  return *std::move(parsed);
}

}  // namespace fairlead::fuzz
