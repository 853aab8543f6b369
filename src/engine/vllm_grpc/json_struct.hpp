#pragma once

#include "base/error.hpp"
#include "base/json.hpp"

namespace google::protobuf {
class Struct;
}

namespace fairlead::engine::vllm_grpc {

/// Deepest JSON nesting that fits into a Struct: each level costs three messages, and readers stop
/// at a depth of 100 messages.
inline constexpr int kMaxStructDepth = 30;

/// Fills `out` from an object. Struct numbers are doubles, so integers beyond 2^53 lose precision.
/// Errors are InvalidRequest with `param`: not an object, or nested too deep.
Result<> to_struct(const json::Value& object, std::string_view param,
                   google::protobuf::Struct& out);

/// The object in a Struct, members sorted by name. Whole numbers up to 2^53 - 1 in magnitude become
/// integers again.
json::Value from_struct(const google::protobuf::Struct& object);

/// Turns a whole, non-negative `remote_port` into its decimal text: the engine pastes it into an
/// address, where the `5600.0` of a Struct number would be wrong.
void fix_remote_port(google::protobuf::Struct& kv_transfer_params);

}  // namespace fairlead::engine::vllm_grpc
