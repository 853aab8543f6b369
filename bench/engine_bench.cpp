// links: fl_engine fl_proto

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/vllm_grpc/request.hpp"
#include "engine/vllm_grpc/response.hpp"
#include "engine/vllm_grpc/token_message.hpp"
#include "vllm/inference.pb.h"

// The translation between this program's requests and vLLM's messages, per request and per token.

namespace fairlead::engine {
namespace {

class CountingSink final : public TokenSink {
 public:
  void on_tokens(const TokenChunk& chunk) override { tokens += chunk.ids.size(); }
  void on_error(Error) override {}
  std::size_t tokens = 0;
};

std::string token_message(std::size_t tokens, std::uint32_t candidates) {
  ::vllm::GenerateResponse response;
  ::vllm::SequenceOutput& outputs = *response.mutable_outputs();
  outputs.set_num_tokens(static_cast<std::uint32_t>(tokens));
  for (std::size_t i = 0; i < tokens; ++i) {
    outputs.add_token_ids(static_cast<std::uint32_t>(100'000 + i));
    if (candidates > 0) {
      outputs.add_logprobs(-0.5F);
      outputs.add_ranks(1);
      auto& list = *outputs.add_candidate_tokens();
      for (std::uint32_t c = 0; c < candidates; ++c) {
        auto& token = *list.add_tokens();
        token.set_id(c);
        token.set_logprob(-1.0F);
        token.set_rank(c + 1);
      }
    }
  }
  return response.SerializeAsString();
}

GenerateRequest request_of(std::size_t prompt) {
  GenerateRequest request;
  request.request_id = "0123456789abcdef0123456789abcdef";
  // Frequent tokens have small ids: sizes vary as in text.
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < prompt; ++i) {
    state = state * 1664525 + 1013904223;
    const std::uint32_t range = (state >> 24 & 1) != 0 ? 15'000 : 150'000;
    request.prompt.push_back((state >> 8) % range);
  }
  request.stop.max_tokens = 0xFFFF'FFFF;
  request.stop.stop_token_ids = {151643, 151645};
  return request;
}

/// One message per token through the whole translation.
void translate(benchmark::State& state) {
  GenerateRequest request = request_of(100);
  const auto candidates = static_cast<std::uint32_t>(state.range(0));
  if (candidates > 0) {
    request.output.logprobs = candidates;
  }
  const std::string message = token_message(1, candidates);
  vllm_grpc::ResponseScratch scratch;
  CountingSink sink;
  auto translator = std::make_unique<vllm_grpc::ResponseTranslator>(request);
  for (auto _ : state) {
    if (!translator->feed(scratch, message, sink)) {
      translator = std::make_unique<vllm_grpc::ResponseTranslator>(request);
    }
  }
  benchmark::DoNotOptimize(sink.tokens);
}
BENCHMARK(translate)->ArgName("candidates")->Arg(0)->Arg(1)->Arg(5)->Arg(20);

/// The same message by protobuf alone, for comparison.
void protobuf_parse(benchmark::State& state) {
  const std::string message = token_message(1, 0);
  ::vllm::GenerateResponse parsed;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        parsed.ParseFromArray(message.data(), static_cast<int>(message.size())));
  }
}
BENCHMARK(protobuf_parse);

/// The same message by the short decoder alone.
void short_decode(benchmark::State& state) {
  const std::string message = token_message(static_cast<std::size_t>(state.range(0)), 0);
  std::vector<TokenId> ids;
  for (auto _ : state) {
    benchmark::DoNotOptimize(vllm_grpc::decode_token_message(message, ids));
  }
}
BENCHMARK(short_decode)->ArgName("tokens")->Arg(1)->Arg(4)->Arg(32);

/// One request message.
void write_request(benchmark::State& state) {
  const GenerateRequest request = request_of(static_cast<std::size_t>(state.range(0)));
  vllm_grpc::RequestWriter writer;
  for (auto _ : state) {
    benchmark::DoNotOptimize(writer.write(request, vllm_grpc::Dialect::Inference, "model"));
  }
}
BENCHMARK(write_request)->ArgName("prompt")->Arg(100)->Arg(8'000)->Arg(60'000);

}  // namespace
}  // namespace fairlead::engine
