#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "mock/options.hpp"
#include "net/grpc.hpp"

namespace google::protobuf {
class Struct;
}
namespace vllm {
class GenerateRequest;
}

namespace fairlead::mock {

/// Checks the KV transfer parameters of a request against the engine's role. An aggregated engine
/// has no connector and ignores them, as the real one does.
std::optional<net::grpc::Status> check_handoff(const ::vllm::GenerateRequest& request, Role role);

/// What a prefill engine answers: parameters that a decode engine demands whole. `engine_id` names
/// the prefill engine, `blocks` the prompt's blocks.
void fill_handoff(google::protobuf::Struct& params, std::string_view engine_id,
                  std::string_view request_id, std::size_t blocks);

}  // namespace fairlead::mock
