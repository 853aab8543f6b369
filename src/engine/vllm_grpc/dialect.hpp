#pragma once

#include <cstdint>
#include <string_view>

namespace fairlead::engine::vllm_grpc {

/// The generations of vLLM's gRPC wire that behave differently.
enum class Dialect : std::uint8_t {
  Unknown,         ///< Not probed yet.
  Generate,        ///< The single service `vllm.Generate` of the earliest servers (to 0.25).
  InferenceEarly,  ///< `vllm.Inference` and `vllm.Control` before 0.32.0: zero means default.
  Inference,       ///< Since 0.32.0: explicit zeros count.
};

/// Name in EngineInfo::dialect and in logs; empty for Unknown.
std::string_view dialect_name(Dialect dialect);

/// The dialect of a name; Unknown when it is none.
Dialect dialect_from_name(std::string_view name);

/// The dialect of a server with `vllm.Inference`, from what GetServerInfo says. `proto_version`
/// exists since 0.33.0; a version text that cannot be read counts as early, whose requests mean the
/// same to every server.
Dialect dialect_of_version(std::string_view engine_version, std::string_view proto_version);

/// gRPC path of the streaming generation call.
std::string_view generate_stream_path(Dialect dialect);

/// True when the server has `vllm.Control`.
constexpr bool has_control(Dialect dialect) { return dialect != Dialect::Generate; }

/// True when the request has a field for sequences that must not be generated.
constexpr bool takes_bad_words(Dialect dialect) {
  return dialect != Dialect::Generate && dialect != Dialect::InferenceEarly;
}

/// True when explicit zeros of top_k and min_p switch them off.
constexpr bool zeros_are_explicit(Dialect dialect) {
  return dialect == Dialect::Inference || dialect == Dialect::Unknown;
}

}  // namespace fairlead::engine::vllm_grpc
