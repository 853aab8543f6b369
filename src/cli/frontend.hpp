#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <latch>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "chat/model_files.hpp"
#include "cli/asset_loader.hpp"
#include "cli/lane.hpp"
#include "cli/serve_options.hpp"
#include "fleet/discovery/source.hpp"
#include "fleet/live_fleet.hpp"
#include "fleet/resolver.hpp"
#include "net/reactor.hpp"
#include "net/socket.hpp"
#include "observe/metrics.hpp"
#include "routing/kv_views.hpp"
#include "routing/router.hpp"
#include "routing/session_affinity.hpp"
#include "serving/cpu_pool.hpp"
#include "serving/peer_views.hpp"

namespace fairlead::cli {

/// A whole frontend in this process: listener and fleet in the control reactor, lanes that serve,
/// the pool, the metrics. Lives in the control reactor's thread, outside of its turns.
class Frontend {
 public:
  /// Loads what `--model-path` names (unless `assets` are given), opens the listener and starts
  /// everything; serves from the next turns of `control` on. Errors are one line; wrong usage is
  /// `InvalidRequest`.
  static Result<std::unique_ptr<Frontend>> start(
      net::Reactor& control, ServeOptions options,
      const std::shared_ptr<const chat::ModelAssets>& assets = nullptr);
  /// Stops at once: running answers are cut and aborted on their engines.
  ~Frontend();
  Frontend(const Frontend&) = delete;
  Frontend& operator=(const Frontend&) = delete;

  /// Where it listens.
  const net::Address& address() const { return listener_->address(); }
  /// The newest snapshot of the fleet; never null. The control reactor's thread only.
  std::shared_ptr<const fleet::Fleet> fleet() const { return fleet_->snapshot(); }
  /// Begins to shut down: new work is refused, what runs may finish until the drain timeout and is
  /// then ended with an error. `on_done` is called once, in the control reactor. A second call ends
  /// the waiting.
  void drain(std::function<void()> on_done);

 private:
  Frontend(net::Reactor& control, ServeOptions options);
  Result<> listen();
  void start_lanes();
  void start_fleet();
  void start_loader(std::shared_ptr<const chat::ModelAssets> common);
  void on_accept(int fd);
  void on_snapshot(const std::shared_ptr<const fleet::Fleet>& fleet);
  void hand_out(const std::shared_ptr<const fleet::Fleet>& fleet);
  void set_assets(const std::string& name, const std::shared_ptr<const chat::ModelAssets>& assets);
  engine::TokenId bos_of(std::string_view model) const;
  void start_kv_views();
  void ask_peers();
  void tick_kv_views();
  void end_drain();
  void finish_drain();
  void collect(observe::TextWriter& writer) const;
  /// Runs `job` in the control reactor if this still exists then. Any thread.
  std::function<void(std::move_only_function<void()>)> poster();

  net::Reactor& control_;
  ServeOptions options_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  observe::Registry registry_;
  routing::Router router_;
  std::unique_ptr<net::TcpDialer> dialer_;
  std::unique_ptr<fleet::ThreadResolver> resolver_;
  std::unique_ptr<fleet::LiveFleet> fleet_;
  std::uint64_t handed_out_ = 0;  // generation of the fleet that lanes were given last
  std::unique_ptr<routing::SessionAffinity> sessions_;  // null: sessions are not bound
  std::unique_ptr<routing::KvViews> kv_views_;          // null outside of kv mode
  std::unique_ptr<serving::PeerViews> peers_;           // while they are asked
  bool unsettled_ = false;    // the lanes wait for their first workers, for views' sake
  bool opened_ = false;       // they have had some
  net::TimePoint settle_by_;  // when unsettled
  net::Timer kv_timer_;
  std::unique_ptr<fleet::CardSource> cards_;  // besides the flags; reports to the fleet
  std::unique_ptr<LaneContext> lane_context_;
  std::unique_ptr<std::latch> lanes_stopped_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::unique_ptr<serving::CpuPool> pool_;  // its jobs post to the lanes: destroyed before them
  std::unique_ptr<net::Listener> listener_;
  int client_fd_limit_;  // descriptors from this number on are for engines and files
  net::TimePoint next_full_warning_{};
  std::map<std::string, engine::TokenId, std::less<>> bos_;  // as set_assets names them
  std::unique_ptr<AssetLoader> loader_;  // null when the assets were given at the start
  std::function<void()> on_drained_;
  std::size_t lanes_busy_ = 0;
  net::Timer drain_deadline_;
  net::Timer last_words_;
};

}  // namespace fairlead::cli
