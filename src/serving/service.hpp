#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/intrusive_list.hpp"
#include "engine/client.hpp"
#include "fleet/fleet.hpp"
#include "net/body_budget.hpp"
#include "net/reactor.hpp"
#include "observe/metrics.hpp"
#include "routing/kv_query.hpp"
#include "routing/kv_set_view.hpp"
#include "routing/router.hpp"
#include "routing/session_affinity.hpp"
#include "serving/conditional_disaggregation.hpp"
#include "serving/cpu_pool.hpp"
#include "serving/remote_kv_watch.hpp"
#include "serving/retry_budget.hpp"
#include "serving/served_models.hpp"

namespace fairlead::serving {

class PendingReleases;

/// Something that wants a call about once a second; leaves the list when destroyed.
class Sweep : public ListNode<Sweep> {
 public:
  /// `callback` runs in the reactor's turn.
  explicit Sweep(std::function<void(net::TimePoint)> callback) : callback_(std::move(callback)) {}
  /// One tick.
  void tick(net::TimePoint now) { callback_(now); }

 private:
  std::function<void(net::TimePoint)> callback_;
};

/// Bounds and switches of the pipeline.
struct ServiceOptions {
  std::size_t inline_prompt_bytes = 16 * 1024;  ///< Larger requests are prepared on the CPU pool.
  net::Duration stream_timeout{0};              ///< No engine message for so long: fails; 0 = off.
  net::Duration first_token_timeout{0};         ///< No token for so long: fails; 0 = off.
  std::uint32_t max_attempts = 3;               ///< Workers tried per choice before any output.
  /// Before the n-th further attempt a request pauses for a random time below n times this.
  net::Duration retry_pause = std::chrono::milliseconds(25);
  std::uint32_t migration_limit = 0;           ///< Times that a choice with output goes on
                                               ///< elsewhere.
  std::uint32_t migration_max_seq_len = 0;     ///< Not beyond so many tokens; 0 = no bound.
  ConditionalDisaggregation conditional = {};  ///< Which prompts stay with decode workers.
  net::Duration release_timeout = std::chrono::seconds(30);  ///< See PendingReleases.
  /// Most bytes of one answer that is not streamed.
  std::size_t answer_bytes = std::size_t{64} * 1024 * 1024;
  /// What all of them together may hold until their clients have taken them; null: no bound.
  std::shared_ptr<net::http::BodyBudget> answers = {};
  /// Requests go only to workers that can honour all they ask for. Off is for tests that show what
  /// would happen otherwise; no option reaches it.
  bool enforce_capabilities = true;
};

/// What one reactor needs to serve: the current fleet, the engines' clients, the shared router and
/// pools. Belongs to that reactor; only the constructor's references are shared.
class Service {
 public:
  /// Told how requests ended, where that matters to the fleet; called in the reactor.
  using Report = std::function<void(std::uint64_t worker_id, std::uint64_t incarnation,
                                    fleet::Outcome outcome)>;

  /// Makes an engine's client in this reactor, usually engine::make_client; the seam for tests.
  using ClientFactory = std::function<std::unique_ptr<engine::EngineClient>(engine::ClientOptions)>;

  /// Everything referenced outlives the service.
  Service(net::Reactor& reactor, ClientFactory make_client, routing::Router& router, CpuPool& pool,
          observe::Registry& registry, ServiceOptions options, Report report);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// Takes a new snapshot; clients of workers that left are destroyed once their last generation
  /// has ended.
  void set_fleet(std::shared_ptr<const fleet::Fleet> fleet);
  /// The current snapshot; never null.
  const std::shared_ptr<const fleet::Fleet>& fleet() const { return fleet_; }
  /// Sets the assets used for a model; `name` is the public model name, or empty for all models;
  /// null forgets them.
  void set_assets(std::string name, std::shared_ptr<const ModelContext> assets);
  /// The assets of a model, of an adapter its base's; null when none are loaded.
  std::shared_ptr<const ModelContext> assets(const fleet::Model& model) const;
  /// The models of the current snapshot with their assets; never null. Made anew only after one of
  /// them has changed.
  const std::shared_ptr<const ServedModels>& served();
  /// Takes what is known of the workers' caches; kv mode only.
  void set_kv_views(std::shared_ptr<const routing::KvViewMap> views) {
    kv_views_ = std::move(views);
  }
  /// What is known of a worker set's caches; null when nothing is.
  std::shared_ptr<const routing::KvSetView> kv_view(std::uint64_t set) const;
  /// True when workers are chosen by what they have cached.
  bool routes_by_kv() const { return router_.mode() == routing::RouterMode::Kv; }
  /// Binds sessions to workers; kv mode only. `sessions` outlives the service; null: none are.
  void set_sessions(routing::SessionAffinity* sessions) { sessions_ = sessions; }
  /// The bindings, or null.
  routing::SessionAffinity* sessions() const { return sessions_; }
  /// For looking prompts up.
  routing::KvQuery& kv_query() { return kv_query_; }
  /// The worker of this id in the current snapshot, or null.
  std::shared_ptr<const fleet::Worker> worker(fleet::WorkerId id) const;
  /// 64 random bits, for drawing among worker sets.
  std::uint64_t draw() { return random_(); }
  /// For what draws more than that.
  std::mt19937_64& random() { return random_; }
  /// What is left for repeating attempts.
  RetryBudget& retries() { return retries_; }
  /// Whether caches that are handed on are used.
  RemoteKvWatch& remote_kv() { return remote_kv_; }
  /// Legs that nobody listens to any more.
  PendingReleases& releases() { return *releases_; }

  /// The client of a worker's engine, made on first use. Shared with running generations.
  std::shared_ptr<engine::EngineClient> client(const fleet::Worker& worker);
  /// Reports that a request to this worker, or a leg of one, failed. Only what is the worker's
  /// fault reaches the fleet.
  void report_failure(const fleet::Worker& worker, ErrorCode code);
  /// Reports that the worker did what was asked of it.
  void report_served(const fleet::Worker& worker);

  /// This reactor's metrics of a model (`Registry::kUnknownModel` for names that do not exist).
  observe::ModelShard& metrics(std::string_view model);
  /// The shared router.
  routing::Router& router() { return router_; }
  /// The shared pool.
  CpuPool& pool() { return pool_; }
  /// Options.
  const ServiceOptions& options() const { return options_; }
  /// Monotonic seconds at the start of this turn, for metrics.
  double seconds() const;
  /// True at most once a second: for warnings that every request could bring.
  bool may_warn();
  /// Adds to the once-a-second sweep.
  void sweep(Sweep& item);

  /// True once the process drains: new work is refused.
  bool draining() const { return draining_; }
  /// Begins the drain.
  void set_draining() { draining_ = true; }

 private:
  struct Entry {
    std::uint64_t incarnation = 0;
    std::shared_ptr<engine::EngineClient> client;
  };
  void on_sweep();

  net::Reactor& reactor_;
  ClientFactory make_client_;
  routing::Router& router_;
  CpuPool& pool_;
  observe::Registry& registry_;
  ServiceOptions options_;
  Report report_;
  std::shared_ptr<const fleet::Fleet> fleet_;
  std::unordered_map<fleet::WorkerId, std::shared_ptr<const fleet::Worker>> workers_;
  std::shared_ptr<const routing::KvViewMap> kv_views_;  // null outside of kv mode
  routing::KvQuery kv_query_;
  routing::SessionAffinity* sessions_ = nullptr;
  std::mt19937_64 random_;
  std::map<std::string, std::shared_ptr<const ModelContext>, std::less<>> assets_;
  std::shared_ptr<const ServedModels> served_;  // null until asked for after a change
  std::map<std::uint64_t, Entry> clients_;
  RetryBudget retries_;
  RemoteKvWatch remote_kv_;
  std::unique_ptr<PendingReleases> releases_;  // uses the clients
  std::map<std::string, observe::ModelShard*, std::less<>> shards_;
  bool draining_ = false;
  std::optional<double> warned_at_;
  IntrusiveList<Sweep, Sweep> sweeps_;
  net::Timer sweep_timer_;
};

}  // namespace fairlead::serving
