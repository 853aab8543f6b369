#include "engine/vllm_grpc/dialect.hpp"

#include <charconv>

namespace fairlead::engine::vllm_grpc {
namespace {

constexpr std::string_view kGenerate = "vllm.Generate";
constexpr std::string_view kInferenceEarly = "vllm.Inference-before-0.32";
constexpr std::string_view kInference = "vllm.Inference";

/// First release with presence on top_k, top_p and min_p.
constexpr int kExplicitZerosMinor = 32;

}  // namespace

std::string_view dialect_name(Dialect dialect) {
  switch (dialect) {
    case Dialect::Unknown: return {};
    case Dialect::Generate: return kGenerate;
    case Dialect::InferenceEarly: return kInferenceEarly;
    case Dialect::Inference: return kInference;
  }
  return {};
}

Dialect dialect_from_name(std::string_view name) {
  for (const Dialect dialect : {Dialect::Generate, Dialect::InferenceEarly, Dialect::Inference}) {
    if (dialect_name(dialect) == name) {
      return dialect;
    }
  }
  return Dialect::Unknown;
}

Dialect dialect_of_version(std::string_view engine_version, std::string_view proto_version) {
  if (!proto_version.empty()) {
    return Dialect::Inference;
  }
  if (engine_version.starts_with('v')) {
    engine_version.remove_prefix(1);
  }
  const char* end = engine_version.data() + engine_version.size();
  int major = 0;
  int minor = 0;
  const auto first = std::from_chars(engine_version.data(), end, major);
  if (first.ec != std::errc{} || first.ptr == end || *first.ptr != '.' ||
      std::from_chars(first.ptr + 1, end, minor).ec != std::errc{}) {
    return Dialect::InferenceEarly;
  }
  return major > 0 || minor >= kExplicitZerosMinor ? Dialect::Inference : Dialect::InferenceEarly;
}

std::string_view generate_stream_path(Dialect dialect) {
  return dialect == Dialect::Generate ? "/vllm.Generate/GenerateStream"
                                      : "/vllm.Inference/GenerateStream";
}

}  // namespace fairlead::engine::vllm_grpc
