#include "serving/worker_choice.hpp"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/log.hpp"
#include "engine/request_check.hpp"
#include "fleet/selection.hpp"
#include "kv/hashes.hpp"
#include "net/reactor.hpp"
#include "routing/kv_query.hpp"

namespace fairlead::serving {
namespace {

// Read by people and by tests of other routers, so it looks like theirs. Pinned requests were not
// weighed.
void log_choice(const engine::GenerateRequest& request, const routing::KvDecision& decision) {
  if (decision.reason == routing::PickReason::Pinned ||
      decision.reason == routing::PickReason::Affinity) {
    return;
  }
  log::info("[ROUTING] Best: worker_{} dp_rank={} with {}/{} blocks overlap request_id={}",
            decision.target.worker_id, decision.target.rank, decision.cached.total(),
            decision.total_blocks, request.request_id);
}

// Of workers that are handed the prompt's cache only the load counts.
constexpr routing::KvRouterOverrides kByLoad{.overlap_score_credit = 0.0,
                                             .prefill_load_scale = {},
                                             .router_temperature = {},
                                             .shared_cache_multiplier = {},
                                             .assume_kv_reuse = false,
                                             .track_prefill_tokens = false,
                                             .overlap_score_weight = {}};

// Where a session is bound; a worker that left is forgotten.
std::optional<routing::TargetRef> bound_target(Service& service, std::string_view session,
                                               net::TimePoint now) {
  routing::SessionAffinity* const sessions = session.empty() ? nullptr : service.sessions();
  auto target = sessions ? sessions->find(session, now) : std::nullopt;
  if (target && !service.worker(target->worker_id)) {
    sessions->forget_worker(target->worker_id);
    target.reset();
  }
  return target;
}

/// What is known of a request before its worker is chosen. `route` refers to the service's query
/// and to `view`.
struct Known {
  net::TimePoint now;
  std::shared_ptr<const routing::KvSetView> view;  // null outside of kv mode, or: nothing is known
  bool reuses = false;                             // what the view says counts for the request
  routing::KvRoute route;
  routing::KvQuery::Times times;  // if it reuses
};

Known look_up(Service& service, const fleet::WorkerSet& set, const ChoiceContext& context,
              const engine::GenerateRequest& request) {
  Known out;
  out.now = net::Reactor::current()->now();
  out.route.prompt_tokens = static_cast<std::uint32_t>(request.prompt.size());
  out.route.expected_output = context.expected_output;
  out.route.preferred_taints = context.preferred_taints;
  if (!service.routes_by_kv()) {
    return out;
  }
  if (context.by_load) {
    out.route.overrides = &kByLoad;
    if (const auto view = service.kv_view(set.id)) {
      out.route.block_size = view->caches->params.block_size;  // loads are counted in blocks
    }
    return out;
  }
  out.view = service.kv_view(set.id);
  out.route.preferred = bound_target(service, context.session, out.now);
  out.reuses = out.view && !request.bypass_prefix_cache;
  if (out.reuses) {
    out.times = service.kv_query().look_up(*out.view, request.prompt,
                                           kv::hash_seed(request.lora_name, request.cache_salt),
                                           out.now, out.route);
  }
  return out;
}

/// Tells how long the steps of a choice took; reads no clock where nobody wants to know.
class ChoiceTimer {
 public:
  explicit ChoiceTimer(observe::RequestScope* scope) : scope_(scope), begun_(now()) {}

  void looked_up(const Known& known) {
    if (scope_ && known.reuses) {
      scope_->router_overhead(RouterStep::BlockHashing, known.times.hashed - known.times.begun);
      scope_->router_overhead(RouterStep::FindMatches, known.times.found - known.times.hashed);
    }
    scheduling_ = now();
  }
  void chosen() {
    if (scope_) {
      scope_->router_overhead(RouterStep::Scheduling, now() - scheduling_);
    }
  }
  void done() {
    if (scope_) {
      scope_->router_overhead(RouterStep::Total, now() - begun_);
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  using RouterStep = observe::RouterStep;

  Clock::time_point now() const { return scope_ ? Clock::now() : Clock::time_point(); }

  observe::RequestScope* scope_;
  Clock::time_point begun_;
  Clock::time_point scheduling_;
};

}  // namespace

SessionHold::SessionHold(routing::SessionAffinity* sessions, std::string_view session,
                         routing::TargetRef target) {
  if (sessions && sessions->begin(session, target, net::Reactor::current()->now())) {
    sessions_ = sessions;
    session_ = session;
  }
}

SessionHold& SessionHold::operator=(SessionHold&& other) noexcept {
  if (this != &other) {
    end(false);
    sessions_ = std::exchange(other.sessions_, nullptr);
    session_ = std::move(other.session_);
  }
  return *this;
}

void SessionHold::end(bool failed) {
  if (routing::SessionAffinity* sessions = std::exchange(sessions_, nullptr)) {
    sessions->end(session_, failed, routing::SessionAffinity::Clock::now());
  }
}

Result<std::shared_ptr<const fleet::WorkerSet>> choose_set(Service& service,
                                                           const std::string& model,
                                                           std::optional<std::uint64_t> worker_id,
                                                           std::string_view session,
                                                           std::span<const std::string> taints,
                                                           const engine::GenerateRequest& request) {
  const ServedModel* const served = service.served()->find(model);
  if (!served) {
    return fail(ErrorCode::NoWorkers, fmt::format("model `{}` has no workers", model));
  }
  fleet::SelectRequest wanted{.required = engine::required_capabilities(request),
                              .worker_id = worker_id,
                              .required_taints = taints,
                              .enforce = service.options().enforce_capabilities};
  if (const auto bound = bound_target(service, session, net::Reactor::current()->now())) {
    wanted.worker_id = bound->worker_id;
    if (auto set = fleet::select_worker_set(*served->model, wanted, service.draw())) {
      return set;
    }
    wanted.worker_id = worker_id;
  }
  return fleet::select_worker_set(*served->model, wanted, service.draw());
}

Result<BookedWorker> choose_worker(Service& service,
                                   const std::shared_ptr<const fleet::WorkerSet>& set,
                                   const ChoiceContext& context,
                                   const engine::GenerateRequest& request) {
  ChoiceTimer timer(service.routes_by_kv() ? context.scope : nullptr);
  const Known known = look_up(service, *set, context, request);
  timer.looked_up(known);
  Result<routing::Reservation> booked =
      service.router().choose(set, context.wanted, known.route, context.waiter);
  timer.chosen();
  if (!booked) {
    timer.done();
    return std::unexpected(std::move(booked.error()));
  }
  BookedWorker out;
  out.reservation = std::move(*booked);
  if (const routing::KvDecision* decision = out.reservation.decision()) {
    if (known.reuses) {
      service.kv_query().routed(*known.view, decision->target, known.now);
      out.kv_view = known.view;
    }
  }
  timer.done();
  if (const routing::KvDecision* decision = out.reservation.decision()) {
    log_choice(request, *decision);
  }
  return out;
}

Result<WorkerPreview> preview_worker(Service& service,
                                     const std::shared_ptr<const fleet::WorkerSet>& set,
                                     const ChoiceContext& context,
                                     const engine::GenerateRequest& request) {
  Known known = look_up(service, *set, context, request);
  WorkerPreview out;
  known.route.explain = &out.candidates;
  Result<routing::KvDecision> decision = service.router().preview(set, context.wanted, known.route);
  if (!decision) {
    return std::unexpected(std::move(decision.error()));
  }
  out.decision = *decision;
  out.kv_view = std::move(known.view);
  return out;
}

}  // namespace fairlead::serving
