// links: fl_engine

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "checking_sink.hpp"
#include "engine/vllm_http/response.hpp"
#include "engine/vllm_http/token_event.hpp"

// Arbitrary events and whole answers: the sink's contract must hold whatever the server sends, and
// the short decoder must agree with the full parser. The first two bytes choose what was asked for;
// events are separated by line feeds.

namespace {

using namespace fairlead;
using namespace fairlead::engine;
using fuzz::CheckingSink;
using fuzz::require;

bool null_or_absent(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  return !value || value->is_null();
}

/// What the short decoder accepts is exactly that event to the full parser.
void compare_decoders(std::string_view event) {
  static std::vector<TokenId> ids;
  std::optional<std::uint32_t> total;
  if (!vllm_http::decode_token_event(event, ids, total)) {
    return;
  }
  const auto parsed = json::parse(event);
  require(parsed.has_value() && null_or_absent(*parsed, "error"));
  const json::Array& choices = *parsed->find("choices")->as_array();
  require(choices.size() == 1);
  const json::Value& choice = choices.front();
  require(!choice.find("index") || *choice.find("index")->as_int() == 0);
  require(null_or_absent(choice, "finish_reason") && null_or_absent(choice, "logprobs"));
  const json::Array& list = *choice.find("token_ids")->as_array();
  require(list.size() == ids.size() && !ids.empty());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    require(*list[i].as_int() == ids[i]);
  }
  const json::Value* usage = parsed->find("usage");
  const json::Value* count = usage ? usage->find("completion_tokens") : nullptr;
  require(total ? count && *count->as_int() == *total : count == nullptr);
}

GenerateRequest request_of(std::uint8_t options, std::uint8_t tokens) {
  GenerateRequest request;
  request.prompt.assign(1 + (options & 3), 1);
  request.stop.max_tokens = 1 + tokens;
  if (options & 0x10) {
    request.output.logprobs = 1;
  }
  if (options & 0x20) {
    request.output.prompt_logprobs = 0;
  }
  if (options & 0x40) {
    request.output.logprob_token_ids = {1, 5};
  }
  return request;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) {
    return 0;
  }
  const GenerateRequest request = request_of(data[0], data[1]);
  static vllm_http::ResponseScratch scratch;
  vllm_http::ResponseTranslator translator(request);
  CheckingSink sink(request);
  std::string_view rest(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (data[0] & 0x04) {
    const Result<> fed = translator.feed_answer(scratch, std::string(rest), sink);
    require(fed.has_value() == sink.finished());
    return 0;
  }
  // Streams never carry the prompt's log-probabilities.
  while (!rest.empty()) {
    const std::string_view event = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), event.size() + 1));
    compare_decoders(event);
    if (!translator.feed_event(scratch, event, sink)) {
      require(!sink.finished());
      return 0;
    }
    require(translator.finished() == sink.finished());
    if (data[0] & 0x08) {
      translator.release_tokens(sink);  // what came next was not there yet
      require(translator.finished() == sink.finished());
    }
  }
  const bool ended = translator.end(sink).has_value();
  require(ended == sink.finished());
  return 0;
}
