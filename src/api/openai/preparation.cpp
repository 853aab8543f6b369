#include "api/openai/preparation.hpp"

#include <algorithm>
#include <string_view>

namespace fairlead::api::openai {
namespace {

// A body kept for the life of a stream costs memory for nothing; small buffers are reused.
constexpr std::size_t kKeptBody = 4096;

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) {
           return (x >= 'A' && x <= 'Z' ? static_cast<char>(x - 'A' + 'a') : x) == y;
         });
}

/// `application/json` or `application/…+json`, parameters aside.
bool is_json(const net::http::Request& request) {
  const auto field = request.headers.find("content-type");
  if (!field) {
    return false;
  }
  std::string_view type = field->substr(0, field->find(';'));
  while (type.ends_with(' ') || type.ends_with('\t')) {
    type.remove_suffix(1);
  }
  constexpr std::string_view kPrefix = "application/";
  constexpr std::string_view kSuffix = "+json";
  return equals_ignoring_case(type, "application/json") ||
         (type.size() > kPrefix.size() + kSuffix.size() &&
          equals_ignoring_case(type.substr(0, kPrefix.size()), kPrefix) &&
          equals_ignoring_case(type.substr(type.size() - kSuffix.size()), kSuffix));
}

}  // namespace

std::optional<Error> refusal(const serving::Service& service, const net::http::Request& request) {
  if (service.draining()) {
    return Error{ErrorCode::Draining, "The server is shutting down", {}};
  }
  if (!is_json(request)) {
    return Error{ErrorCode::UnsupportedMediaType, "The content type must be application/json", {}};
  }
  const auto encoding = request.headers.find("content-encoding");
  if (encoding && !equals_ignoring_case(*encoding, "identity")) {
    return Error{ErrorCode::UnsupportedMediaType,
                 "The body must be sent without a Content-Encoding: none is decoded here",
                 {}};
  }
  return std::nullopt;
}

bool Preparation::is_small(const net::http::Request& request) const {
  return request.body.size() <= service_.options().inline_prompt_bytes;
}

void Preparation::let_go(std::string& body) {
  if (body.capacity() > kKeptBody) {
    body = std::string();
  }
}

PrepareInput Preparation::input_for(const net::http::Request& request,
                                    observe::Endpoint endpoint) const {
  PrepareInput input;
  input.endpoint = endpoint;
  input.options = options_;
  for (const net::http::Header& header : request.headers) {
    if (header.name.starts_with("x-")) {
      input.routing_headers.add(header.name, header.value);
    }
  }
  input.models = service_.served();
  return input;
}

}  // namespace fairlead::api::openai
