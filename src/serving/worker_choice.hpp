#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "engine/request.hpp"
#include "fleet/fleet.hpp"
#include "observe/metrics.hpp"
#include "routing/kv_route.hpp"
#include "routing/kv_set_view.hpp"
#include "routing/router.hpp"
#include "routing/session_affinity.hpp"
#include "serving/service.hpp"

namespace fairlead::serving {

/// Holds a session's binding while a request of it runs.
class SessionHold {
 public:
  /// Holds nothing.
  SessionHold() = default;
  /// Binds the session to the target unless it is bound, and holds it. `sessions` may be null.
  SessionHold(routing::SessionAffinity* sessions, std::string_view session,
              routing::TargetRef target);
  SessionHold(SessionHold&& other) noexcept
      : sessions_(std::exchange(other.sessions_, nullptr)), session_(std::move(other.session_)) {}
  SessionHold& operator=(SessionHold&& other) noexcept;
  ~SessionHold() { end(false); }

  /// Ends the hold; `failed`, not by the client, drops the binding.
  void end(bool failed);

 private:
  routing::SessionAffinity* sessions_ = nullptr;
  std::string session_;
};

/// The worker set of a model's newest snapshot that a request goes to: where its session is bound
/// if that worker is usable, else where the named worker is. `taints` are those it requires.
/// Errors: NoWorkers, and those of fleet::select_worker_set.
Result<std::shared_ptr<const fleet::WorkerSet>> choose_set(Service& service,
                                                           const std::string& model,
                                                           std::optional<std::uint64_t> worker_id,
                                                           std::string_view session,
                                                           std::span<const std::string> taints,
                                                           const engine::GenerateRequest& request);

/// A worker that was chosen and booked.
struct BookedWorker {
  routing::Reservation reservation;                   ///< What is booked.
  std::shared_ptr<const routing::KvSetView> kv_view;  ///< By what; null outside of kv mode and when
                                                      ///< nothing is known of the set's caches.
  SessionHold session;                                ///< Taken once the request was sent.
};

/// What a choice depends on besides the request itself.
struct ChoiceContext {
  routing::RouteRequest wanted;                       ///< What the router must respect.
  std::string_view session = {};                      ///< Of the client; empty = none.
  std::optional<std::uint32_t> expected_output = {};  ///< Tokens it will generate; a guess.
  std::span<const routing::PreferredTaint> preferred_taints = {};  ///< Weighed in kv mode.
  bool by_load = false;                    ///< Caches do not matter: the worker is handed what it
                                           ///< needs of the prompt.
  routing::KvWaiter* waiter = nullptr;     ///< Its place in the queue, if it may wait.
  observe::RequestScope* scope = nullptr;  ///< Is told how long a choice took, if given.
};

/// Chooses a worker of the set and books the request there. In kv mode the prompt is hashed and
/// looked up, a bound session goes where it is bound, and what was decided goes to the log and
/// counts for the next requests. The reservation is empty when the request has to wait. Errors:
/// those of Router::choose.
Result<BookedWorker> choose_worker(Service& service,
                                   const std::shared_ptr<const fleet::WorkerSet>& set,
                                   const ChoiceContext& context,
                                   const engine::GenerateRequest& request);

/// What choose_worker would decide now, in kv mode.
struct WorkerPreview {
  routing::KvDecision decision;                       ///< What and why.
  std::vector<routing::CandidateCost> candidates;     ///< All that would do, in no order.
  std::shared_ptr<const routing::KvSetView> kv_view;  ///< By what; null: nothing is known.
};

/// Decides as choose_worker does for a request that does not wait; nothing is booked, counted,
/// logged or sent. Kv mode only. Errors:
/// those of Router::preview.
Result<WorkerPreview> preview_worker(Service& service,
                                     const std::shared_ptr<const fleet::WorkerSet>& set,
                                     const ChoiceContext& context,
                                     const engine::GenerateRequest& request);

}  // namespace fairlead::serving
