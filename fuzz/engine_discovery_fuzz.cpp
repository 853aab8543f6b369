// links: fl_engine fl_proto

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "engine/vllm_grpc/discovery.hpp"
#include "engine/vllm_grpc/response.hpp"

// Arbitrary discovery answers: what is accepted must be consistent.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  using namespace fairlead::engine;
  static const vllm_grpc::ResponseScratch quiet;  // turns protobuf's own log lines off
  if (size < 3) {
    return 0;
  }
  const std::string_view rest(reinterpret_cast<const char*>(data) + 3, size - 3);
  const std::size_t first = std::min<std::size_t>(data[1], rest.size());
  const std::size_t second = std::min<std::size_t>(data[2], rest.size() - first);
  vllm_grpc::DiscoveryAnswers answers;
  answers.has_model_info = (data[0] & 1) != 0;
  answers.has_server_info = (data[0] & 2) != 0;
  answers.model_info = rest.substr(0, first);
  answers.server_info = rest.substr(first, second);
  answers.kv_event_sources = rest.substr(first + second);
  std::vector<std::string> warnings;
  const vllm_grpc::Dialect dialect = vllm_grpc::dialect_of_answers(answers);
  const Result<EngineInfo> info = vllm_grpc::read_discovery(answers, dialect, warnings);
  if (!info) {
    if (info.error().code != ErrorCode::EngineProtocol) {
      std::abort();
    }
    return 0;
  }
  if (info->data_parallel_size == 0 ||
      (!info->kv_event_sources.empty() &&
       info->kv_event_sources.size() != info->data_parallel_size) ||
      (answers.has_model_info && info->served_model_name.empty())) {
    std::abort();
  }
  return 0;
}
