#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "routing/kv_route.hpp"

namespace fairlead::routing {

/// Which target each session is bound to. A binding is made at a session's first dispatch, is held
/// while requests of it run and expires when it was idle for the TTL. Bounded: beyond `capacity`
/// the session that was idle longest is forgotten; when all are held, new ones are not bound.
/// Thread-safe.
class SessionAffinity {
 public:
  /// What idle times are told by.
  using Clock = std::chrono::steady_clock;

  /// `ttl` is the idle time; sessions whose id is empty or longer than 256 bytes are never bound.
  SessionAffinity(std::chrono::seconds ttl, std::size_t capacity)
      : ttl_(ttl), capacity_(capacity) {}

  /// Where the session is bound, if it is.
  std::optional<TargetRef> find(std::string_view session, Clock::time_point now);
  /// A request of the session was dispatched to a target and runs: holds the binding, and makes it
  /// when there is none. The first binding wins. False when nothing is held, so that `end` must not
  /// be called.
  bool begin(std::string_view session, TargetRef target, Clock::time_point now);
  /// That request ended; `failed` (not by its client) drops the binding.
  void end(std::string_view session, bool failed, Clock::time_point now);
  /// A worker is gone: its sessions are free to go elsewhere.
  void forget_worker(std::uint64_t worker_id);
  /// Sessions bound now, expired ones that were not met yet included.
  std::size_t size() const;

 private:
  struct Binding {
    std::string session;
    TargetRef target;
    std::size_t running = 0;
    bool dropped = false;  // kept only for what runs
    Clock::time_point idle_since = {};
  };
  using Bindings = std::list<Binding>;

  void expire(Clock::time_point now);
  void erase(Bindings::iterator binding);

  const std::chrono::seconds ttl_;
  const std::size_t capacity_;
  mutable std::mutex mutex_;
  Bindings idle_;  // the longest idle first
  Bindings held_;
  std::unordered_map<std::string_view, Bindings::iterator> by_session_;  // keys in the lists
};

}  // namespace fairlead::routing
