#include "engine/client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/sglang_grpc/client.hpp"
#include "engine/vllm_grpc/client.hpp"
#include "engine/vllm_http/client.hpp"

namespace fairlead::engine {
namespace {

/// Longer ones than any file system has.
constexpr std::size_t kMaxPathBytes = 16 * 1024;

constexpr std::array<std::pair<std::string_view, Backend>, 3> kBackends{{
    {"vllm", Backend::Vllm},
    {"vllm-http", Backend::VllmHttp},
    {"sglang", Backend::Sglang},
}};

}  // namespace

std::string_view backend_name(Backend backend) {
  return std::ranges::find(kBackends, backend, &std::pair<std::string_view, Backend>::second)
      ->first;
}

std::string_view maker_name(Backend backend) {
  switch (backend) {
    case Backend::Vllm:
    case Backend::VllmHttp: return "vLLM";
    case Backend::Sglang: return "SGLang";
  }
  return {};
}

std::optional<Backend> find_backend(std::string_view name) {
  const auto found =
      std::ranges::find(kBackends, name, &std::pair<std::string_view, Backend>::first);
  return found == kBackends.end() ? std::nullopt : std::optional(found->second);
}

Result<> bound_names(EngineInfo& info) {
  const auto too_long = [](const std::string& name) { return name.size() > kMaxModelNameBytes; };
  if (too_long(info.served_model_name) || info.model_id.size() > kMaxPathBytes) {
    return fail(ErrorCode::EngineProtocol, "the name or path of the model is too long");
  }
  const std::size_t aliases = info.aliases.size();
  std::erase_if(info.aliases, too_long);
  info.aliases.resize(std::min(info.aliases.size(), kMaxAliases));
  if (info.aliases.size() < aliases) {
    info.warnings.push_back(fmt::format("{} of the engine's {} aliases are left out",
                                        aliases - info.aliases.size(), aliases));
  }
  const std::size_t adapters = info.lora_adapters.size();
  std::size_t kept = 0;
  for (std::size_t i = 0; i < adapters && kept < kMaxAdapters; ++i) {
    if (!too_long(info.lora_adapters[i])) {
      std::swap(info.lora_adapters[kept], info.lora_adapters[i]);
      if (i < info.lora_paths.size()) {
        std::swap(info.lora_paths[kept], info.lora_paths[i]);
      }
      ++kept;
    }
  }
  if (kept < adapters) {
    info.lora_adapters.resize(kept);
    info.lora_paths.resize(std::min(kept, info.lora_paths.size()));
    info.warnings.push_back(
        fmt::format("{} of the engine's {} adapters are left out", adapters - kept, adapters));
  }
  return {};
}

std::unique_ptr<EngineClient> make_client(net::Dialer& dialer, ClientOptions options) {
  switch (options.backend) {
    case Backend::Vllm: break;
    case Backend::VllmHttp: return vllm_http::make_client(dialer, std::move(options));
    case Backend::Sglang: return sglang_grpc::make_client(dialer, options);
  }
  return vllm_grpc::make_client(dialer, options);
}

}  // namespace fairlead::engine
