#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>

#include "api/router.hpp"
#include "cli/serve_options.hpp"
#include "fleet/fleet.hpp"
#include "net/http_server.hpp"
#include "net/reactor.hpp"
#include "net/socket.hpp"
#include "observe/metrics.hpp"
#include "routing/router.hpp"
#include "serving/cpu_pool.hpp"
#include "serving/service.hpp"

namespace fairlead::cli {

/// What all lanes share; outlives them.
struct LaneContext {
  const ServeOptions& options;         ///< Checked options.
  routing::Router& router;             ///< Chooses workers.
  serving::CpuPool& pool;              ///< For large prompts.
  observe::Registry& registry;         ///< Metrics.
  serving::Service::Report report;     ///< Called in the lanes' threads.
  routing::SessionAffinity* sessions;  ///< Null: sessions are not bound.
};

/// One reactor with its thread and everything it serves with. All members may be called from the
/// control thread; the work is done in the lane's own.
class Lane {
 public:
  /// Starts the thread. `all_stopped` is counted down by every lane once it runs no request any
  /// more; nothing of any lane is destroyed before, since a scrape reads the counters of all.
  Lane(std::size_t index, const LaneContext& context, std::latch& all_stopped);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// Serves an accepted descriptor.
  void accept(int fd);
  /// Connections open or on their way to the lane.
  std::size_t load() const;
  /// Hands a new snapshot on; `on_taken` is called in the lane's thread, which goes by it from then
  /// on.
  void set_fleet(std::shared_ptr<const fleet::Fleet> fleet, std::function<void()> on_taken);
  /// Hands what is known of the workers' caches on.
  void set_kv_views(std::shared_ptr<const routing::KvViewMap> views);
  /// Hands the files of a model on; an empty name stands for every model.
  void set_assets(std::string name, std::shared_ptr<const serving::ModelContext> assets);
  /// Refuses new work; `on_idle` is called once, in the lane's thread, when no request runs and
  /// what was answered has been taken.
  void drain(std::function<void()> on_idle);
  /// Answers what still runs with an error.
  void fail_all(Error error);
  /// Runs no further turn; returns at once.
  void stop() { reactor_.stop(); }
  /// Waits for the thread's end; `stop` must have been called on every lane.
  void join();
  /// What the lane's server counts; null before the lane has started and after it has stopped.
  const net::http::ServerCounters* counters() const;

 private:
  void run(std::latch& all_stopped);
  void begin();
  void end();
  void check_idle();

  LaneContext context_;
  net::Reactor reactor_;
  std::atomic<std::size_t> arriving_{0};
  std::atomic<const net::http::ServerCounters*> counters_{nullptr};

  // The lane's thread only.
  std::unique_ptr<net::TcpDialer> dialer_;
  std::unique_ptr<serving::Service> service_;
  std::unique_ptr<api::ApiRouter> api_;
  std::unique_ptr<net::http::Server> server_;
  std::unique_ptr<net::Timer> idle_timer_;
  std::function<void()> on_idle_;
  int idle_checks_ = 0;

  std::thread thread_;
};

}  // namespace fairlead::cli
