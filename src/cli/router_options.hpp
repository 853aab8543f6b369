#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "cli/settings.hpp"
#include "net/reactor.hpp"
#include "routing/kv_view_options.hpp"
#include "routing/router.hpp"
#include "serving/conditional_disaggregation.hpp"
#include "serving/peer_views.hpp"

namespace fairlead::cli {

/// How workers are chosen, as the options say.
struct RouterSettings {
  routing::RouterOptions router;  ///< Mode, seed, weights, thresholds.
  routing::KvViewOptions views;   ///< What is known of caches. Kv mode only.
  /// Who is asked for views of caches at the start. Kv mode with events only.
  serving::PeerOptions peers;
  /// Which prompts stay with decode workers. Kv mode only.
  serving::ConditionalDisaggregation conditional;
  /// Idle time after which a session leaves its worker; unset = sessions are not kept. Kv mode
  /// only.
  std::optional<net::Duration> session_ttl;
};

/// The options about how workers are chosen. Errors are wrong usage, one line.
Result<RouterSettings> router_settings(const Settings& settings);

/// What was given and has no effect, or not the one that it seems to have: one line each.
std::vector<std::string> router_warnings(const Settings& settings);

}  // namespace fairlead::cli
