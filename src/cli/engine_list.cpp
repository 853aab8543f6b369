#include "cli/engine_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "fleet/engine_address.hpp"

namespace fairlead::cli {
namespace {

template <class... Args>
std::unexpected<Error> usage(fmt::format_string<Args...> format, Args&&... args) {
  return fail(ErrorCode::InvalidRequest, fmt::format(format, std::forward<Args>(args)...));
}

/// Where a value came from, or the flag that would set it.
std::string origin_of(const Settings& settings, std::string_view name) {
  return settings.given(name) ? settings.origin(name) : fmt::format("--{}", name);
}

bool contains(const std::vector<fleet::NamedEngine>& engines, const fleet::Endpoint& endpoint) {
  return std::ranges::find(engines, endpoint, &fleet::NamedEngine::endpoint) != engines.end();
}

Result<std::vector<fleet::NamedEngine>> parse_list(const Settings& settings, std::string_view name,
                                                   engine::Backend common) {
  std::vector<fleet::NamedEngine> engines;
  for (const std::string& item : settings.list(name)) {
    Result<fleet::EngineAddress> address = fleet::parse_engine_address(item);
    if (!address) {
      return usage("{}: {}", settings.origin(name), address.error().message);
    }
    if (contains(engines, address->endpoint)) {
      return usage("{}: {} is named twice", settings.origin(name), address->endpoint.url);
    }
    engines.push_back({std::move(address->endpoint), address->backend.value_or(common)});
  }
  if (engines.empty() && settings.given(name)) {
    return usage("{}: names no engine", settings.origin(name));
  }
  return engines;
}

Result<std::optional<fleet::CardFolderOptions>> select_folder(const Settings& settings) {
  const std::string& store = settings.text("discovery-backend");
  const std::string& path = settings.text("discovery-dir");
  const std::string origin = origin_of(settings, "discovery-backend");
  if (store == "mem") {
    if (!path.empty()) {
      return usage("{}: a folder of cards needs --discovery-backend file",
                   settings.origin("discovery-dir"));
    }
    return std::nullopt;
  }
  if (store != "file") {
    const bool planned = store == "etcd" || store == "kubernetes";
    return usage(
        "{}: discovery backend `{}` is {}; choose `file` with --discovery-dir DIR, or "
        "name the engines with --direct --engine-url URL",
        origin, store, planned ? "not supported yet" : "unknown");
  }
  if (path.empty()) {
    return usage("{}: which folder are the cards in? name it with --discovery-dir DIR", origin);
  }
  std::error_code error;
  if (const auto status = std::filesystem::status(path, error);
      std::filesystem::exists(status) && !std::filesystem::is_directory(status)) {
    return usage("{}: `{}` is not a folder", settings.origin("discovery-dir"), path);
  }
  fleet::CardFolderOptions folder;
  folder.path = path;
  folder.filter = fleet::NamespaceFilter(settings.text("namespace"),
                                         settings.given("namespace-prefix")
                                             ? std::optional(settings.text("namespace-prefix"))
                                             : std::nullopt,
                                         settings.flag("namespace-prefix-strict"));
  return folder;
}

/// Checks that the lists of engines and the switch agree.
Result<> check_direct(const Settings& settings, const EngineSelection& selection) {
  const bool prefill = !selection.prefill_engines.empty();
  for (const fleet::NamedEngine& engine : selection.prefill_engines) {
    if (contains(selection.engines, engine.endpoint)) {
      return usage("{}: {} is also an --engine-url; an engine has one role",
                   settings.origin("prefill-engine-url"), engine.endpoint.url);
    }
  }
  if (!settings.flag("direct")) {
    if (!selection.engines.empty() || prefill) {
      return usage(
          "{}: engine URLs need --direct",
          settings.origin(selection.engines.empty() ? "prefill-engine-url" : "engine-url"));
    }
    if (!selection.folder) {
      return usage(
          "no engines: name them with --direct --engine-url URL, or a folder of model "
          "cards with --discovery-backend file --discovery-dir DIR");
    }
    return {};
  }
  if (selection.engines.empty() && prefill && !selection.folder) {
    return usage("{}: prefill engines alone cannot answer; name at least one --engine-url",
                 settings.origin("prefill-engine-url"));
  }
  if (selection.engines.empty() && !selection.folder) {
    return usage("--direct needs at least one --engine-url");
  }
  return {};
}

}  // namespace

Result<engine::Backend> parse_backend(std::string_view origin, std::string_view name) {
  const Result<engine::Backend> backend = fleet::parse_backend(name);
  if (!backend) {
    return usage("{}: {}", origin, backend.error().message);
  }
  return backend;
}

Result<EngineSelection> select_engines(const Settings& settings) {
  const Result<engine::Backend> backend =
      parse_backend(origin_of(settings, "direct-backend"), settings.text("direct-backend"));
  if (!backend) {
    return std::unexpected(backend.error());
  }
  Result<std::optional<fleet::CardFolderOptions>> folder = select_folder(settings);
  if (!folder) {
    return std::unexpected(folder.error());
  }
  auto engines = parse_list(settings, "engine-url", *backend);
  if (!engines) {
    return std::unexpected(engines.error());
  }
  auto prefill = parse_list(settings, "prefill-engine-url", *backend);
  if (!prefill) {
    return std::unexpected(prefill.error());
  }
  EngineSelection selection{std::move(*engines), std::move(*prefill), std::move(*folder)};
  if (const Result<> good = check_direct(settings, selection); !good) {
    return std::unexpected(good.error());
  }
  return selection;
}

}  // namespace fairlead::cli
