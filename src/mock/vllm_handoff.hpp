#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "mock/generate_spec.hpp"
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

/// Where the blocks that a checked decode request names can be fetched; none when nowhere.
std::optional<RemoteKv> remote_of(const google::protobuf::Struct& params);

/// The same for parameters that came as JSON.
std::optional<RemoteKv> remote_of(const json::Value& params);

/// A prefill's result.
struct HandOff {
  std::string_view engine_id;   ///< Names the prefill engine.
  std::string_view request_id;  ///< Names the prefill.
  std::size_t blocks = 0;       ///< The prompt's blocks.
  std::string_view host;        ///< Where they can be fetched; empty = nowhere.
  std::uint16_t port = 0;       ///< Likewise; 0 = nowhere.
};

/// What a prefill engine answers: parameters that a decode engine demands whole.
void fill_handoff(google::protobuf::Struct& params, const HandOff& hand_off);

/// The same as JSON.
std::string handoff_json(const HandOff& hand_off);

}  // namespace fairlead::mock
