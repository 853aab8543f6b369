#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/client.hpp"
#include "fleet/card.hpp"
#include "fleet/engine_watch.hpp"
#include "fleet/fleet.hpp"
#include "fleet/resolver.hpp"
#include "net/reactor.hpp"

namespace fairlead::fleet {

/// How the fleet's engines are watched and made into models.
struct LiveFleetOptions : WatchOptions {
  std::string model_name;  ///< Public name of the workers whose card has none; empty = what their
                           ///< engine reports.
  /// Decode engines answer whole requests while no prefill engine is there.
  bool decode_alone = false;
  /// A cohort whose workers are all down for so long makes room for another one of its group.
  net::Duration succession_after = std::chrono::seconds(30);
};

/// The engines that cards name, probed and watched for as long as their cards are there, and the
/// models they make. Belongs to the control reactor except where said. Nothing ever waits for an
/// engine: each has its own tasks, and engines come and go in snapshots.
class LiveFleet {
 public:
  /// Makes a client in the control reactor; the seam for tests.
  using ClientFactory = WatchContext::ClientFactory;
  /// Receives every new snapshot, in the control reactor. Never called inside the constructor, and
  /// must not call `set_cards`.
  using OnSnapshot = std::function<void(std::shared_ptr<const Fleet>)>;

  /// `resolver` must outlive the fleet.
  LiveFleet(LiveFleetOptions options, ClientFactory make_client, Resolver& resolver,
            OnSnapshot on_snapshot);
  ~LiveFleet();
  LiveFleet(const LiveFleet&) = delete;
  LiveFleet& operator=(const LiveFleet&) = delete;

  /// Replaces the cards of one source, before or after `start`. Workers whose card stays as it is
  /// are left alone, others join or are withdrawn. A card with other content under its key is a new
  /// life of its worker: it gets another incarnation, its record changes in the next snapshot, and
  /// its engine is probed at once. The second card for an engine is ignored while the first one is
  /// there.
  void set_cards(std::string_view source, std::vector<Card> cards);
  /// Begins to probe every engine, in the current reactor, which must be the control reactor.
  void start();
  /// A request to this worker ended so. One that is `Down` leaves routing at once, is probed again
  /// and comes back by itself; after too many failures in a row the worker's circuit opens, unless
  /// no other worker of its set could take the requests. `Served` need be reported only of a worker
  /// whose circuit is half-open. Reports about a former incarnation are ignored. Other threads post
  /// this call to the control reactor.
  void report(WorkerId id, std::uint64_t incarnation, Outcome outcome);
  /// The newest snapshot; never null.
  std::shared_ptr<const Fleet> snapshot() const;
  /// True once every engine has had one finished attempt.
  bool first_round_done() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fairlead::fleet
