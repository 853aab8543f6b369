// links: fl_api
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "api/openai/request.hpp"
#include "api/openai/tokenize.hpp"
#include "base/json.hpp"
#include "request_body.hpp"

// A body for tokens or for their text is refused as the client's mistake, or what it holds obeys
// the rules and is JSON by the other parser's judgement too.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  static api::JsonReader reader;
  api::ApiOptions options;
  options.ignore_unsupported_fields = size % 2 == 0;
  std::string body = fuzz::padded_body(data, size);
  const auto ids = api::openai::parse_detokenize(reader, body, options);
  if (!ids ? !fuzz::blames_client(ids.error()) : !json::parse(body)) {
    std::abort();
  }
  const auto endpoint = api::openai::find_endpoint(reader, body);
  if (!endpoint) {
    return fuzz::blames_client(endpoint.error()) ? 0 : (std::abort(), 0);
  }
  const auto request =
      api::openai::parse_request(*endpoint, reader, body, options, api::openai::Purpose::Tokenize);
  if (!request) {
    return fuzz::blames_client(request.error()) ? 0 : (std::abort(), 0);
  }
  const bool chat = *endpoint == observe::Endpoint::ChatCompletions;
  if (!json::parse(body) ||
      (chat ? !request->messages.as_array() || !request->prompts.empty()
            : request->prompts.size() != 1 || request->prompts[0].index() != 0)) {
    std::abort();
  }
  return 0;
}
