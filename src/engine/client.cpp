#include "engine/client.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/vllm_grpc/client.hpp"
#include "engine/vllm_http/client.hpp"

namespace fairlead::engine {
namespace {

constexpr std::array<std::pair<std::string_view, Backend>, 2> kBackends{{
    {"vllm", Backend::Vllm},
    {"vllm-http", Backend::VllmHttp},
}};

}  // namespace

std::string_view backend_name(Backend backend) {
  return std::ranges::find(kBackends, backend, &std::pair<std::string_view, Backend>::second)
      ->first;
}

std::optional<Backend> find_backend(std::string_view name) {
  const auto found =
      std::ranges::find(kBackends, name, &std::pair<std::string_view, Backend>::first);
  return found == kBackends.end() ? std::nullopt : std::optional(found->second);
}

std::unique_ptr<EngineClient> make_client(net::Dialer& dialer, ClientOptions options) {
  switch (options.backend) {
    case Backend::Vllm: break;
    case Backend::VllmHttp: return vllm_http::make_client(dialer, std::move(options));
  }
  return vllm_grpc::make_client(dialer, std::move(options));
}

}  // namespace fairlead::engine
