// links: fl_engine fl_proto

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "checking_sink.hpp"
#include "engine/vllm_grpc/response.hpp"
#include "engine/vllm_grpc/token_message.hpp"
#include "vllm/inference.pb.h"

// Arbitrary message sequences: the sink's contract must hold whatever the server sends, and the
// short decoder must agree with protobuf.

namespace {

using namespace fairlead;
using namespace fairlead::engine;
using fuzz::CheckingSink;
using fuzz::require;

/// What the short decoder accepts is exactly that message to protobuf.
void compare_decoders(std::string_view message) {
  static ::vllm::GenerateResponse parsed;
  static std::vector<TokenId> ids;
  if (!vllm_grpc::decode_token_message(message, ids)) {
    return;
  }
  require(parsed.ParseFromArray(message.data(), static_cast<int>(message.size())));
  require(!parsed.has_prompt_info() && parsed.has_outputs());
  const ::vllm::SequenceOutput& outputs = parsed.outputs();
  require(outputs.index() == 0 && outputs.text().empty() && !outputs.has_finish_info());
  require(outputs.num_tokens() == ids.size());
  require(outputs.token_ids_size() == static_cast<int>(ids.size()));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    require(outputs.token_ids(static_cast<int>(i)) == ids[i]);
  }
  require(outputs.logprobs_size() + outputs.ranks_size() + outputs.candidate_tokens_size() == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) {
    return 0;
  }
  GenerateRequest request;
  request.prompt.assign(1 + (data[0] & 7), 1);
  request.stop.max_tokens = 1 + data[1];
  if (data[0] & 0x10) {
    request.output.logprobs = 1;
  }
  if (data[0] & 0x20) {
    request.output.prompt_logprobs = 0;
  }
  if (data[0] & 0x40) {
    request.output.logprob_token_ids = {1};
  }
  static vllm_grpc::ResponseScratch scratch;
  vllm_grpc::ResponseTranslator translator(request);
  CheckingSink sink(request);
  std::string_view rest(reinterpret_cast<const char*>(data) + 2, size - 2);
  while (!rest.empty()) {
    // Each message is led by its length.
    const std::size_t length =
        std::min<std::size_t>(static_cast<unsigned char>(rest[0]), rest.size() - 1);
    const std::string_view message = rest.substr(1, length);
    rest.remove_prefix(1 + length);
    compare_decoders(message);
    const Result<> fed = translator.feed(scratch, message, sink);
    if (!fed) {
      require(fed.error().code == ErrorCode::EngineProtocol && !sink.finished());
      break;
    }
    require(translator.finished() == sink.finished());
  }
  return 0;
}
