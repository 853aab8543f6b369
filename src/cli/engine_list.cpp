#include "cli/engine_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace fairlead::cli {
namespace {

template <class... Args>
std::unexpected<Error> usage(fmt::format_string<Args...> format, Args&&... args) {
  return fail(ErrorCode::InvalidRequest, fmt::format(format, std::forward<Args>(args)...));
}

/// Splits `BACKEND=URL`; the URL itself may hold `=` only behind a `/`, so a backend never does.
std::pair<std::string_view, std::string_view> split_backend(std::string_view item) {
  const std::size_t equals = item.find('=');
  if (equals == std::string_view::npos ||
      item.substr(0, equals).find_first_of(":/") != std::string_view::npos) {
    return {{}, item};
  }
  return {item.substr(0, equals), item.substr(equals + 1)};
}

Result<std::vector<fleet::Endpoint>> parse_list(const Settings& settings, std::string_view name,
                                                engine::Backend common) {
  std::vector<fleet::Endpoint> endpoints;
  for (const std::string& item : settings.list(name)) {
    const auto [backend_name, url] = split_backend(item);
    if (!backend_name.empty()) {
      const Result<engine::Backend> backend = parse_backend(settings.origin(name), backend_name);
      if (!backend) {
        return std::unexpected(backend.error());
      }
      if (*backend != common) {
        return usage("{}: engines of different backends are not supported yet",
                     settings.origin(name));
      }
    }
    Result<fleet::Endpoint> endpoint = fleet::parse_endpoint(url);
    if (!endpoint) {
      return usage("{}: {}", settings.origin(name), endpoint.error().message);
    }
    if (std::ranges::find(endpoints, *endpoint) != endpoints.end()) {
      return usage("{}: {} is named twice", settings.origin(name), endpoint->url);
    }
    endpoints.push_back(std::move(*endpoint));
  }
  return endpoints;
}

}  // namespace

Result<engine::Backend> parse_backend(std::string_view origin, std::string_view name) {
  if (name == "vllm") {
    return engine::Backend::Vllm;
  }
  if (name == "sglang" || name == "vllm-http" || name == "openai-http") {
    return usage("{}: backend `{}` is not supported yet; only `vllm` is", origin, name);
  }
  return usage("{}: backend `{}` is unknown; choose `vllm`", origin, name);
}

Result<std::vector<fleet::Endpoint>> select_engines(const Settings& settings) {
  const std::string& backend_name = settings.text("direct-backend");
  const std::string backend_origin = settings.given("direct-backend")
                                         ? settings.origin("direct-backend")
                                         : std::string("--direct-backend");
  const Result<engine::Backend> backend = parse_backend(backend_origin, backend_name);
  if (!backend) {
    return std::unexpected(backend.error());
  }
  if (const std::string& store = settings.text("discovery-backend"); store != "mem") {
    const bool known = store == "file" || store == "etcd" || store == "kubernetes";
    return usage("{}: discovery backend `{}` is {}", settings.origin("discovery-backend"), store,
                 known ? "not supported yet; name the engines with --direct --engine-url URL"
                       : "unknown; only `mem` is available yet");
  }
  Result<std::vector<fleet::Endpoint>> engines = parse_list(settings, "engine-url", *backend);
  if (!engines) {
    return engines;
  }
  const Result<std::vector<fleet::Endpoint>> prefill =
      parse_list(settings, "prefill-engine-url", *backend);
  if (!prefill) {
    return std::unexpected(prefill.error());
  }
  for (const fleet::Endpoint& endpoint : *prefill) {
    if (std::ranges::find(*engines, endpoint) != engines->end()) {
      return usage("{}: {} is also an --engine-url; an engine has one role",
                   settings.origin("prefill-engine-url"), endpoint.url);
    }
  }
  if (!settings.flag("direct")) {
    if (!engines->empty() || !prefill->empty()) {
      return usage("{}: engine URLs need --direct",
                   settings.origin(engines->empty() ? "prefill-engine-url" : "engine-url"));
    }
    return usage("no engines: name them with --direct --engine-url URL");
  }
  if (engines->empty()) {
    return prefill->empty() ? usage("--direct needs at least one --engine-url")
                            : usage(
                                  "{}: prefill engines alone cannot answer; name at least one "
                                  "--engine-url",
                                  settings.origin("prefill-engine-url"));
  }
  if (!prefill->empty()) {
    return usage(
        "{}: prefill/decode dispatch is not supported yet; name the engines with "
        "--engine-url",
        settings.origin("prefill-engine-url"));
  }
  return engines;
}

}  // namespace fairlead::cli
