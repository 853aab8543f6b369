#include "serving/worker_choice.hpp"

#include <utility>

#include "base/log.hpp"
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

// Where a session is bound; a worker that left is forgotten.
std::optional<routing::TargetRef> bound_target(Service& service, std::string_view session,
                                               net::TimePoint now) {
  routing::SessionAffinity* const sessions = service.sessions();
  auto target = sessions ? sessions->find(session, now) : std::nullopt;
  if (target && !service.worker(target->worker_id)) {
    sessions->forget_worker(target->worker_id);
    target.reset();
  }
  return target;
}

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

Result<BookedWorker> choose_worker(Service& service,
                                   const std::shared_ptr<const fleet::WorkerSet>& set,
                                   const ChoiceContext& context,
                                   const engine::GenerateRequest& request) {
  BookedWorker out;
  routing::KvRoute route{.prompt_tokens = static_cast<std::uint32_t>(request.prompt.size()),
                         .expected_output = context.expected_output};
  const bool by_cache = service.router().mode() == routing::RouterMode::Kv;
  const net::TimePoint now = net::Reactor::current()->now();
  if (by_cache) {
    out.kv_view = service.kv_view(set->id);
    route.preferred = bound_target(service, context.session, now);
  }
  const bool reuses = out.kv_view && !request.bypass_prefix_cache;
  if (reuses) {
    service.kv_query().look_up(*out.kv_view, request.prompt,
                               kv::hash_seed(request.lora_name, request.cache_salt), now, route);
  }
  Result<routing::Reservation> booked =
      service.router().choose(set, context.wanted, route, context.waiter);
  if (!booked) {
    return std::unexpected(std::move(booked.error()));
  }
  out.reservation = std::move(*booked);
  if (const routing::KvDecision* decision = out.reservation.decision()) {
    if (reuses) {
      service.kv_query().routed(*out.kv_view, decision->target, now);
    } else {
      out.kv_view.reset();
    }
    log_choice(request, *decision);
  }
  return out;
}

}  // namespace fairlead::serving
