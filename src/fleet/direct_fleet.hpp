#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/client.hpp"
#include "fleet/endpoint.hpp"
#include "fleet/fleet.hpp"
#include "fleet/resolver.hpp"
#include "net/reactor.hpp"

namespace fairlead::fleet {

/// What a directly dialed fleet consists of and how it is watched.
struct DirectFleetOptions {
  std::vector<Endpoint> engines;                    ///< Engines that are not prefill; no repeats.
  std::vector<Endpoint> prefill_engines;            ///< Prefill engines; none is also in `engines`.
  engine::Backend backend = engine::Backend::Vllm;  ///< Wire of every engine.
  std::string model_name;  ///< Public name instead of the engines' own names; empty = theirs.
  net::Duration startup_deadline = std::chrono::seconds(1800);  ///< Then absent engines are named
                                                                ///< as an error; probing goes on.
  net::Duration attempt_timeout = std::chrono::seconds(10);     ///< One probe or health check.
  net::Duration retry_interval = std::chrono::seconds(1);       ///< Between probes of an absent
                                                                ///< engine.
  net::Duration health_interval = std::chrono::seconds(1);    ///< Between checks of a present one.
  net::Duration health_timeout = std::chrono::seconds(2);     ///< One check of a present engine.
  net::Duration resolve_interval = std::chrono::seconds(30);  ///< Names are looked up again.
  int checks_per_probe = 5;  ///< Every such check is a full probe, which notices changes.
};

/// The engines named by the operator, probed and watched for as long as this lives. Belongs to the
/// control reactor except where said. Nothing ever waits for an engine: each URL has its own task,
/// and engines come and go in snapshots. All engines serve one model: an engine that differs from
/// those already serving is named in the log and left out until it agrees.
class DirectFleet {
 public:
  /// Makes a client in the control reactor; the seam for tests.
  using ClientFactory =
      std::function<std::unique_ptr<engine::EngineClient>(engine::ClientOptions options)>;
  /// Receives every new snapshot, in the control reactor. Never called inside the constructor.
  using OnSnapshot = std::function<void(std::shared_ptr<const Fleet>)>;

  /// `resolver` must outlive the fleet.
  DirectFleet(DirectFleetOptions options, ClientFactory make_client, Resolver& resolver,
              OnSnapshot on_snapshot);
  ~DirectFleet();
  DirectFleet(const DirectFleet&) = delete;
  DirectFleet& operator=(const DirectFleet&) = delete;

  /// Begins to probe every engine, in the current reactor, which must be the control reactor.
  void start();
  /// A request met a failure that counts against this worker (ErrorTraits::worker_down): it leaves
  /// routing at once, is probed again and comes back by itself. Reports about a former incarnation
  /// are ignored. Other threads post this call to the control reactor.
  void report_failure(WorkerId id, std::uint64_t incarnation);
  /// The newest snapshot; never null.
  std::shared_ptr<const Fleet> snapshot() const;
  /// True once every URL has had one finished attempt.
  bool first_round_done() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fairlead::fleet
