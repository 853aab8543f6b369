// links: fl_engine fl_proto

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "checking_sink.hpp"
#include "engine/sglang_grpc/answer.hpp"
#include "engine/sglang_grpc/lenient_json.hpp"
#include "engine/sglang_grpc/response.hpp"
#include "sglang/runtime.pb.h"

// Arbitrary message sequences: the sink's contract must hold whatever the server sends, and the
// reader must see in a message what protobuf sees.

namespace {

using namespace fairlead;
using namespace fairlead::engine;
using fuzz::CheckingSink;
using fuzz::require;

/// True when some byte could be the tag of a group.
bool has_group(std::string_view message) {
  return std::ranges::any_of(message, [](char c) { return (c & 7) == 3 || (c & 7) == 4; });
}

/// True when some bytes could be a tag above 32 bits, which protobuf cuts and the reader refuses.
bool has_wide_tag(std::string_view message) {
  int more = 0;  // bytes in a row that announce another one
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (more >= 4 && (byte & 0x7F) > 0x0F) {
      return true;
    }
    more = byte >= 0x80 ? more + 1 : 0;
  }
  return false;
}

/// What protobuf reads, the reader reads alike; it takes what has invalid UTF-8, too.
void compare_readers(std::string_view message) {
  static ::sglang::runtime::v1::GenerateResponse parsed;
  static sglang_grpc::Answer answer;
  if (!parsed.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
    return;
  }
  const auto& ids = parsed.output_ids();
  const bool negative = std::ranges::any_of(ids, [](std::int32_t id) { return id < 0; });
  if (!sglang_grpc::read_answer(message, answer)) {
    // Groups, which this schema never had, are refused as well: protobuf skips them.
    require(negative || has_group(message) || has_wide_tag(message));
    return;
  }
  require(!negative && answer.finished == parsed.finished());
  require(std::ranges::equal(
      answer.ids, ids, [](TokenId a, std::int32_t b) { return a == static_cast<TokenId>(b); }));
  const auto reason = parsed.meta_info().find("finish_reason");
  require(answer.finish_reason ==
          (reason == parsed.meta_info().end() ? std::string_view() : reason->second));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) {
    return 0;
  }
  GenerateRequest request;
  request.prompt.assign(1 + (data[0] & 3), 1);
  request.stop.max_tokens = 1 + data[1];
  request.stop.stop_token_ids = {2};
  if (data[0] & 0x10) {
    request.output.logprobs = data[0] & 4 ? 2 : 0;
  }
  if (data[0] & 0x20) {
    request.output.prompt_logprobs = data[0] & 8 ? 1 : 0;
  }
  static sglang_grpc::ResponseScratch scratch;
  const auto mode = static_cast<sglang_grpc::Dialect::Output>((data[0] >> 6) % 3);
  sglang_grpc::ResponseTranslator translator(request, mode);
  CheckingSink sink(request);
  std::string_view rest(reinterpret_cast<const char*>(data) + 2, size - 2);
  while (rest.size() > 1) {
    // Each message is led by its length.
    const std::size_t length = std::min<std::size_t>(
        static_cast<unsigned char>(rest[0]) |
            static_cast<std::size_t>(static_cast<unsigned char>(rest[1])) << 8,
        rest.size() - 2);
    const std::string_view message = rest.substr(2, length);
    rest.remove_prefix(2 + length);
    compare_readers(message);
    const Result<> fed = translator.feed(scratch, message, sink);
    if (!fed) {
      const ErrorCode code = fed.error().code;
      require(!sink.finished());
      require(translator.finished() == (code != ErrorCode::EngineProtocol));
      break;
    }
    require(translator.finished() == sink.finished());
  }
  return 0;
}
