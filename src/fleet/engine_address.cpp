#include "fleet/engine_address.hpp"

#include <fmt/format.h>

#include <utility>

namespace fairlead::fleet {

Result<engine::Backend> parse_backend(std::string_view name) {
  if (const auto backend = engine::find_backend(name)) {
    return *backend;
  }
  return fail(ErrorCode::InvalidRequest,
              fmt::format("backend `{}` is {}; choose `vllm`, `vllm-http` or `sglang`", name,
                          name == "openai-http" ? "not supported yet" : "unknown"));
}

Result<EngineAddress> parse_engine_address(std::string_view text) {
  EngineAddress out;
  std::string_view url = text;
  // A URL may hold `=` only behind a `:` or `/`, a backend's name never does.
  const std::size_t equals = text.find('=');
  if (equals != std::string_view::npos &&
      text.substr(0, equals).find_first_of(":/") == std::string_view::npos) {
    const Result<engine::Backend> backend = parse_backend(text.substr(0, equals));
    if (!backend) {
      return std::unexpected(backend.error());
    }
    out.backend = *backend;
    url = text.substr(equals + 1);
  }
  Result<Endpoint> endpoint = parse_endpoint(url);
  if (!endpoint) {
    return std::unexpected(std::move(endpoint.error()));
  }
  out.endpoint = std::move(*endpoint);
  return out;
}

}  // namespace fairlead::fleet
