#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "mock/options.hpp"
#include "mock/request_checks.hpp"

namespace google::protobuf {
class Struct;
}

namespace fairlead::mock {

/// Checks the KV transfer parameters of a request against the engine's role. An aggregated engine
/// has no connector and ignores them, as the real one does.
Check check_handoff(const google::protobuf::Struct& params, Role role);

/// The same for parameters that came as JSON; null is none.
Check check_handoff(const json::Value& params, Role role);

/// What a prefill engine answers: parameters that a decode engine demands whole. `engine_id` names
/// the prefill engine, `blocks` the prompt's blocks.
void fill_handoff(google::protobuf::Struct& params, std::string_view engine_id,
                  std::string_view request_id, std::size_t blocks);

/// The same as JSON.
std::string handoff_json(std::string_view engine_id, std::string_view request_id,
                         std::size_t blocks);

}  // namespace fairlead::mock
