#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "net/reactor.hpp"

namespace fairlead::api {

/// Switches and bounds of the client APIs.
struct ApiOptions {
  bool ignore_unsupported_fields = false;  ///< Unknown top-level fields are dropped, not refused.
  bool force_include_usage = false;        ///< Every stream ends with usage.
  bool disable_nvext = false;     ///< `nvext` and routing headers are dropped, except cache salts.
  int overload_status = 503;      ///< Status of refusals because every worker is busy.
  std::uint32_t retry_after = 1;  ///< Seconds in Retry-After of refusals that may be retried.
  /// Silence before a comment frame; 0 = off.
  net::Duration keep_alive = std::chrono::seconds(15);
  std::size_t high_mark_bytes = 256 * 1024;  ///< Unsent bytes above which engines are paused.
  bool admin = true;                         ///< The routes that tell of the inside and change it.
  bool access_log = false;                   ///< One INFO line per request.
};

}  // namespace fairlead::api
