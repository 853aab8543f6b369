#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/client.hpp"
#include "fleet/canary.hpp"
#include "fleet/circuit.hpp"
#include "fleet/engine_load.hpp"
#include "fleet/member.hpp"
#include "fleet/resolver.hpp"
#include "net/event.hpp"
#include "net/reactor.hpp"
#include "net/task_group.hpp"

namespace fairlead::fleet {

/// How engines are watched.
struct WatchOptions {
  net::Duration startup_deadline = std::chrono::seconds(1800);  ///< Then absent engines are named
                                                                ///< as an error; probing goes on.
  net::Duration attempt_timeout = std::chrono::seconds(10);     ///< One probe or health check.
  net::Duration retry_interval = std::chrono::seconds(1);       ///< Between probes of an absent
                                                                ///< engine.
  net::Duration health_interval = std::chrono::seconds(1);    ///< Between checks of a present one.
  net::Duration health_timeout = std::chrono::seconds(2);     ///< One check of a present engine.
  net::Duration resolve_interval = std::chrono::seconds(30);  ///< Names are looked up again.
  int checks_per_probe = 5;  ///< Every such check is a full probe, which notices changes.
  CanaryOptions canary;      ///< Whether and how engines are tried by generating.
  EngineLoadOptions load;    ///< Whether and how they are asked for their load.
  CircuitOptions circuit;    ///< When they get no more requests because these failed.
};

/// What all watched engines share; outlives them.
struct WatchContext {
  /// Makes a client in the control reactor; the seam for tests.
  using ClientFactory =
      std::function<std::unique_ptr<engine::EngineClient>(engine::ClientOptions options)>;

  WatchOptions options;                ///< Intervals.
  ClientFactory make_client;           ///< See there.
  Resolver& resolver;                  ///< Of host names.
  std::string model_name;              ///< Public name of workers whose card has none; empty =
                                       ///< what their engine reports.
  std::function<void()> on_change;     ///< What is known of some engine changed. Must not destroy
                                       ///< any watch.
  std::function<void()> on_attempted;  ///< Some engine's first attempt has finished.
  std::uint64_t last_incarnation = 0;  ///< No two lives of any engine have the same.
};

/// One engine, looked up, probed and checked for as long as this lives: probed while it is absent,
/// checked while it is there. With canaries on, a probe alone lets it not join: a canary must have
/// succeeded, and later ones keep it there. Belongs to the control reactor.
class EngineWatch {
 public:
  /// `context` outlives it; `card` is a base card.
  EngineWatch(WatchContext& context, Card card);
  EngineWatch(const EngineWatch&) = delete;
  EngineWatch& operator=(const EngineWatch&) = delete;

  /// Begins, in the current reactor.
  void start();
  /// Another card for the same engine: a new incarnation, probed anew at once. What the former
  /// probe found counts until then, since it is the engine's own word.
  void take_card(Card card);
  /// A request in this incarnation ended so; `replaceable`: another worker could take the requests.
  void report(Outcome outcome, bool replaceable);
  /// True once one attempt has finished.
  bool attempted() const { return attempted_; }
  /// What is known of it.
  Member& member() { return member_; }

 private:
  net::Task<> watch();
  net::Task<> attempt();
  net::Task<> check();
  net::Task<Result<>> try_to_generate(const engine::EngineInfo& info);
  net::Task<> keep_trying();
  net::Task<> try_half_open();
  net::Task<> keep_measuring();
  net::Task<> keep_resolved();
  net::Task<> watch_deadline();
  void fail_circuit(bool replaceable);
  void close_circuit(std::string_view reason);
  void on_circuit_time();
  void show_circuit();
  void take_addresses(std::vector<net::Address> addresses);
  void take_info(engine::EngineInfo info);
  void come_up();
  void lose(std::string_view reason);
  void note_absent(const Error& error);
  void note_attempt();
  void log_probe() const;

  WatchContext& context_;
  Member member_;
  std::unique_ptr<engine::EngineClient> client_;  // once there are addresses
  Canary canary_;
  EngineLoad load_;
  CircuitBreaker circuit_;
  net::Timer circuit_timer_;  // while the circuit is open
  net::Event wake_;           // ends the pause between checks
  net::Event resolve_wake_;   // ends the pause between look-ups
  bool attempted_ = false;
  bool ever_up_ = false;
  int timeouts_ = 0;
  int checks_ = 0;
  int strikes_ = 0;
  net::TimePoint up_since_;
  net::TimePoint hold_until_;
  std::string logged_reason_;
  net::TimePoint logged_at_;
  net::TaskGroup tasks_;
};

}  // namespace fairlead::fleet
