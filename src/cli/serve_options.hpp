#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/options.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "base/log.hpp"
#include "cli/asset_loader.hpp"
#include "cli/router_options.hpp"
#include "cli/settings.hpp"
#include "fleet/discovery/card_folder.hpp"
#include "fleet/flag_cards.hpp"
#include "fleet/live_fleet.hpp"
#include "net/http_server.hpp"
#include "serving/cpu_pool.hpp"
#include "serving/service.hpp"

namespace fairlead::cli {

/// Everything `serve` is composed from, checked.
struct ServeOptions {
  std::string http_host;                    ///< Numeric or a name.
  std::uint16_t http_port = 0;              ///< 0 takes a free one.
  std::size_t threads = 1;                  ///< Reactors.
  serving::CpuPoolOptions cpu_pool;         ///< The pool for large prompts.
  std::size_t tokenizer_cache_bytes = 0;    ///< Of tokenizer::PieceCache.
  std::uint64_t fd_limit = 0;               ///< Wanted soft limit of open files; 0 leaves it.
  net::Duration drain_timeout{};            ///< Time for running answers after SIGTERM.
  log::Level log_level = log::Level::Info;  ///< Severity from which lines are written.

  net::http::ServerLimits limits;                       ///< Of every reactor's server.
  std::vector<fleet::NamedEngine> engines;              ///< Named by flags; not prefill engines.
  std::vector<fleet::NamedEngine> prefill_engines;      ///< Named by flags.
  std::optional<fleet::CardFolderOptions> card_folder;  ///< Where further engines are found.
  fleet::LiveFleetOptions fleet;                        ///< How engines are watched.
  serving::ServiceOptions service;                      ///< Of every reactor's pipeline.
  api::ApiOptions api;                                  ///< Of the client APIs.
  RouterSettings router;                                ///< How workers are chosen.
  std::string metrics_prefix;                           ///< Of every metric.

  // Where values came from that prove wrong when they are used; see Settings::origin.
  std::string http_host_origin = "--http-host";                  ///< Of the host.
  std::string model_path_origin = "--model-path";                ///< Of the model paths.
  std::string generation_config_origin = "--generation-config";  ///< Of the folder.

  ModelPaths model_paths;         ///< Of `--model-path`.
  std::string generation_config;  ///< `auto`, `none` or a folder.
  json::Value default_sampling;   ///< Object or null.
};

/// Checks what the table alone cannot. Errors are wrong usage, one line.
Result<ServeOptions> serve_options(const Settings& settings);

/// Cores this process may run on, at least 1.
std::size_t usable_cores();

}  // namespace fairlead::cli
