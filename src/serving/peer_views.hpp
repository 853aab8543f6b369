#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "fleet/endpoint.hpp"
#include "fleet/resolver.hpp"
#include "kv/dump.hpp"
#include "net/reactor.hpp"
#include "net/socket.hpp"
#include "net/task.hpp"
#include "net/task_group.hpp"

namespace fairlead::serving {

/// Which frontends are asked, and for how long.
struct PeerOptions {
  std::vector<fleet::Endpoint> peers;  ///< In this order; may name this frontend, too.
  net::Duration timeout = std::chrono::seconds(30);      ///< For all of them.
  net::Duration stall = std::chrono::seconds(5);         ///< Silence that ends the asking of one.
  net::Duration pause = std::chrono::milliseconds(250);  ///< Until busy ones are asked again.
  std::size_t max_bytes = std::size_t{2} << 30U;         ///< Of one peer's blocks.
};

/// Asks other frontends for what they know of the engines' caches (`/v1/kv/dump`), one after
/// another, every address of a name for itself, until one of them follows all its engines without a
/// loss; of each engine the best view is kept. Those that are busy with another dump are asked
/// again. Belongs to one reactor.
class PeerViews {
 public:
  /// Gets what was found, perhaps nothing, once and not inside `start`.
  using OnDone = std::move_only_function<void(std::vector<kv::DumpedTarget>)>;

  /// `dialer` and `resolver` outlive it. Destroying it ends the asking.
  PeerViews(net::Dialer& dialer, fleet::Resolver& resolver, PeerOptions options);
  PeerViews(const PeerViews&) = delete;
  PeerViews& operator=(const PeerViews&) = delete;

  /// Begins to ask.
  void start(OnDone on_done);

 private:
  using Dump = Result<std::vector<kv::DumpedTarget>>;

  net::Task<> run();
  net::Task<bool> ask_each();
  net::Task<bool> ask_all(const fleet::Endpoint& peer);
  net::Task<Dump> ask(const fleet::Endpoint& peer, const net::Address& address);
  void keep(kv::DumpedTarget view);

  net::Dialer& dialer_;
  fleet::Resolver& resolver_;
  const PeerOptions options_;
  OnDone on_done_;
  net::TimePoint deadline_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, kv::DumpedTarget> found_;  // by worker, rank
  bool busy_ = false;     // some peer was, in the last round
  net::TaskGroup tasks_;  // the last: what they use outlives them
};

}  // namespace fairlead::serving
