// links: fl_engine fl_proto

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "engine/sglang_grpc/discovery.hpp"
#include "engine/vllm_grpc/response.hpp"
#include "sglang/runtime.pb.h"

// Arbitrary JSON of the discovery calls and of GetLoad: what is accepted must be consistent.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  using namespace fairlead::engine;
  static const vllm_grpc::ResponseScratch quiet;  // turns protobuf's own log lines off
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = text.find('\0');
  ::sglang::runtime::v1::GetServerInfoResponse server;
  server.set_json_info(std::string(text.substr(0, cut)));
  ::sglang::runtime::v1::GetModelInfoResponse model;
  model.set_model_path("/m");
  sglang_grpc::DiscoveryAnswers answers;
  answers.model_info = model.SerializeAsString();
  answers.server_info = server.SerializeAsString();
  if (cut != std::string_view::npos) {
    answers.models = text.substr(cut + 1);
  }
  const Result<sglang_grpc::Discovery> found = sglang_grpc::read_discovery(answers);
  if (!found) {
    if (found.error().code != ErrorCode::EngineProtocol) {
      std::abort();
    }
  } else {
    const EngineInfo& info = found->info;
    if (info.data_parallel_size == 0 || info.served_model_name.empty() || !info.role ||
        (*info.role == Leg::Prefill) != (info.bootstrap_port != 0) ||
        (!info.kv_event_sources.empty() &&
         (info.kv_event_sources.size() != info.data_parallel_size || info.kv_block_size == 0)) ||
        sglang_grpc::dialect_from_text(info.dialect) != found->dialect) {
      std::abort();
    }
  }
  ::sglang::runtime::v1::GetLoadResponse load;
  load.set_json_info(std::string(text.substr(0, cut)));
  const auto usage = sglang_grpc::read_load(load.SerializeAsString());
  if (usage) {
    for (const KvUsage& rank : *usage) {
      if (!(rank.share >= 0 && rank.share <= 1)) {
        std::abort();
      }
    }
  }
  return 0;
}
