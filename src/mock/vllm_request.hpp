#pragma once

#include <expected>
#include <string_view>

#include "mock/generate_spec.hpp"
#include "mock/options.hpp"
#include "mock/request_checks.hpp"
#include "net/grpc.hpp"

namespace vllm {
class GenerateRequest;
}

namespace fairlead::mock {

/// The refusal as this interface says it.
net::grpc::Status to_status(Refusal refusal);

/// Checks a request as vLLM 0.32 does, in its order and with its texts; what the simulation cannot
/// do (text prompts, media) is UNIMPLEMENTED. `rank_metadata` is the value of
/// `x-data-parallel-rank`, null without one.
std::expected<GenerateSpec, net::grpc::Status> check_request(const ::vllm::GenerateRequest& request,
                                                             const std::string_view* rank_metadata,
                                                             const MockOptions& options);

}  // namespace fairlead::mock
