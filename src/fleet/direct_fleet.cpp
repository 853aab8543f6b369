#include "fleet/direct_fleet.hpp"

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/log.hpp"
#include "fleet/fleet_builder.hpp"
#include "net/event.hpp"
#include "net/task_group.hpp"

namespace fairlead::fleet {
namespace {

using net::Duration;
using net::Task;
using net::TimePoint;

/// Timeouts in a row before a present engine counts as down: a busy machine is late now and then.
constexpr int kMaxTimeouts = 3;
/// A worker that fails requests again within this time of its return waits longer each time.
constexpr Duration kProbation = std::chrono::seconds(10);
constexpr Duration kFirstHold = std::chrono::milliseconds(250);
constexpr Duration kLongestHold = std::chrono::seconds(4);
/// An unchanged reason is logged again after this time.
constexpr Duration kReasonRepeat = std::chrono::seconds(30);

/// A member and how it is watched.
struct Watched : Member {
  std::unique_ptr<engine::EngineClient> client;  // once there are addresses
  net::Event wake;                               // ends the pause between checks
  net::Event resolve_wake;                       // ends the pause between look-ups
  bool numeric = false;                          // the host needs no look-up
  bool attempted = false;                        // one attempt has finished
  bool ever_up = false;
  int timeouts = 0;
  int checks = 0;
  int strikes = 0;
  TimePoint up_since;
  TimePoint hold_until;
  std::string logged_reason;
  std::string logged_exclusion;
  TimePoint logged_at;
};

}  // namespace

class DirectFleet::Impl {
 public:
  Impl(DirectFleetOptions options, ClientFactory make_client, Resolver& resolver,
       OnSnapshot on_snapshot);

  void start();
  void report_failure(WorkerId id, std::uint64_t incarnation);
  const std::shared_ptr<const Fleet>& snapshot() const { return snapshot_; }
  bool first_round_done() const { return unattempted_ == 0; }

 private:
  void add(const Endpoint& endpoint, bool prefill, std::size_t slot);
  Task<> watch(Watched& member);
  Task<> attempt(Watched& member);
  Task<> check(Watched& member);
  Task<> keep_resolved(Watched& member);
  Task<> watch_deadline();
  void take_addresses(Watched& member, std::vector<net::Address> addresses);
  void take_info(Watched& member, engine::EngineInfo info);
  void note_absent(Watched& member, const Error& error);
  void note_attempt(Watched& member);
  void lose(Watched& member, std::string_view reason);
  void publish();
  void log_probe(const Watched& member) const;
  void log_exclusions();
  void log_counts();

  DirectFleetOptions options_;
  ClientFactory make_client_;
  Resolver& resolver_;
  OnSnapshot on_snapshot_;
  FleetBuilder builder_;
  std::vector<std::unique_ptr<Watched>> members_;  // engines, then prefill engines
  std::vector<Member*> member_views_;
  std::size_t unattempted_;
  std::size_t logged_decode_ = 0;
  std::size_t logged_prefill_ = 0;
  std::shared_ptr<const Fleet> snapshot_ = std::make_shared<Fleet>();
  net::TaskGroup tasks_;
};

DirectFleet::Impl::Impl(DirectFleetOptions options, ClientFactory make_client, Resolver& resolver,
                        OnSnapshot on_snapshot)
    : options_(std::move(options)),
      make_client_(std::move(make_client)),
      resolver_(resolver),
      on_snapshot_(std::move(on_snapshot)),
      builder_(options_.model_name, options_.engines.size(), options_.prefill_engines.size()),
      unattempted_(options_.engines.size() + options_.prefill_engines.size()) {
  for (std::size_t i = 0; i < options_.engines.size(); ++i) {
    add(options_.engines[i], false, i);
  }
  for (std::size_t i = 0; i < options_.prefill_engines.size(); ++i) {
    add(options_.prefill_engines[i], true, i);
  }
}

void DirectFleet::Impl::add(const Endpoint& endpoint, bool prefill, std::size_t slot) {
  auto member = std::make_unique<Watched>();
  member->endpoint = endpoint;
  member->backend = options_.backend;
  member->id = worker_id(endpoint.url);
  member->prefill = prefill;
  member->slot = slot;
  member_views_.push_back(member.get());
  members_.push_back(std::move(member));
}

void DirectFleet::Impl::start() {
  for (const std::unique_ptr<Watched>& member : members_) {
    const auto address = net::Address::parse(member->endpoint.host, member->endpoint.port);
    member->numeric = address.has_value();
    if (address) {
      take_addresses(*member, {*address});
    } else {
      tasks_.spawn(keep_resolved(*member));
    }
    tasks_.spawn(watch(*member));
  }
  tasks_.spawn(watch_deadline());
}

/// One engine, for ever: probe it while it is absent, check it while it is there.
Task<> DirectFleet::Impl::watch(Watched& member) {
  while (true) {
    Duration pause = options_.retry_interval;
    if (member.client && !member.up) {
      co_await attempt(member);
    } else if (member.up) {
      co_await check(member);
    }
    const TimePoint now = net::Reactor::current()->now();
    if (member.up) {
      pause = options_.health_interval;
    } else if (member.hold_until > now) {
      pause = member.hold_until - now;
    }
    if (!member.wake.is_set()) {
      co_await member.wake.wait_for(pause);
    }
    member.wake.reset();
    if (const TimePoint woken = net::Reactor::current()->now();
        !member.up && member.hold_until > woken) {
      co_await net::Sleep(member.hold_until - woken);
    }
  }
}

Task<> DirectFleet::Impl::attempt(Watched& member) {
  const TimePoint deadline = net::Reactor::current()->now() + options_.attempt_timeout;
  Result<engine::EngineInfo> info = co_await member.client->probe(deadline);
  if (info) {
    take_info(member, std::move(*info));
  } else {
    note_absent(member, info.error());
    member.resolve_wake.set();
  }
  note_attempt(member);
}

/// A cheap check, or now and then a full probe that notices another engine at the same place.
Task<> DirectFleet::Impl::check(Watched& member) {
  const TimePoint deadline = net::Reactor::current()->now() + options_.health_timeout;
  const std::uint64_t incarnation = member.incarnation;
  Result<> healthy;
  std::optional<engine::EngineInfo> info;
  if (++member.checks % options_.checks_per_probe == 0) {
    Result<engine::EngineInfo> probed = co_await member.client->probe(deadline);
    if (probed) {
      info = std::move(*probed);
    } else {
      healthy = std::unexpected(std::move(probed.error()));
    }
  } else {
    healthy = co_await member.client->check_health(deadline);
  }
  if (!member.up || member.incarnation != incarnation) {
    co_return;  // reported as failed meanwhile: this answer may be older than the report
  }
  if (!healthy) {
    const bool late = healthy.error().code == ErrorCode::EngineConnectTimeout;
    if (!late || ++member.timeouts >= kMaxTimeouts) {
      lose(member, healthy.error().message);
      member.resolve_wake.set();
    }
    member.wake.set();  // asked again at once
    co_return;
  }
  member.timeouts = 0;
  if (info) {
    take_info(member, std::move(*info));
  }
}

Task<> DirectFleet::Impl::keep_resolved(Watched& member) {
  while (true) {
    auto addresses = co_await resolver_.resolve(member.endpoint.host, member.endpoint.port);
    Duration pause = options_.resolve_interval;
    if (addresses) {
      take_addresses(member, std::move(*addresses));
    } else {
      if (!member.client) {
        note_absent(member, addresses.error());
        note_attempt(member);
        pause = options_.retry_interval;
      }
    }
    member.resolve_wake.reset();
    co_await member.resolve_wake.wait_for(pause);
  }
}

Task<> DirectFleet::Impl::watch_deadline() {
  co_await net::Sleep(options_.startup_deadline);
  for (const std::unique_ptr<Watched>& member : members_) {
    if (!member->ever_up) {
      log::error(
          "engine did not answer within {} s of the start; still trying endpoint={} reason=\"{}\"",
          std::chrono::duration_cast<std::chrono::seconds>(options_.startup_deadline).count(),
          member->endpoint.url, member->logged_reason);
    }
  }
}

void DirectFleet::Impl::take_addresses(Watched& member, std::vector<net::Address> addresses) {
  if (member.addresses == addresses) {
    return;
  }
  member.addresses = addresses;
  if (member.client) {
    member.client->set_addresses(std::move(addresses));
  } else {
    engine::ClientOptions options;
    options.backend = options_.backend;
    options.authority = member.endpoint.authority;
    options.addresses = std::move(addresses);
    member.client = make_client_(std::move(options));
  }
  member.wake.set();
  if (member.info) {
    publish();
  }
}

/// A probe succeeded: the engine joins, or what is known of it changes.
void DirectFleet::Impl::take_info(Watched& member, engine::EngineInfo info) {
  replace_wildcard_hosts(info, member.endpoint.authority_host());
  const bool same = member.info == info;
  if (member.up && same) {
    return;
  }
  if (member.up && member.info->instance_id != info.instance_id) {
    ++member.incarnation;
  }
  member.info = std::move(info);
  if (!member.up) {
    member.up = true;
    member.ever_up = true;
    member.timeouts = 0;
    member.checks = 0;
    member.up_since = net::Reactor::current()->now();
    member.logged_reason.clear();
  }
  if (!same) {
    for (const std::string& warning : member.info->warnings) {
      log::warn("{} endpoint={}", warning, member.endpoint.url);
    }
  }
  log_probe(member);
  publish();
}

/// Logs why an engine is not there: the first time, when the reason changes, and now and then.
void DirectFleet::Impl::note_absent(Watched& member, const Error& error) {
  const TimePoint now = net::Reactor::current()->now();
  if (member.logged_reason == error.message && now - member.logged_at < kReasonRepeat) {
    return;
  }
  member.logged_reason = error.message;
  member.logged_at = now;
  log::warn("engine does not answer; trying again every {} ms endpoint={} reason=\"{}\"",
            std::chrono::duration_cast<std::chrono::milliseconds>(options_.retry_interval).count(),
            member.endpoint.url, error.message);
}

void DirectFleet::Impl::note_attempt(Watched& member) {
  if (!std::exchange(member.attempted, true)) {
    --unattempted_;
    log_counts();
  }
}

void DirectFleet::Impl::report_failure(WorkerId id, std::uint64_t incarnation) {
  for (const std::unique_ptr<Watched>& member : members_) {
    if (member->id != id || !member->up || member->incarnation != incarnation) {
      continue;
    }
    const TimePoint now = net::Reactor::current()->now();
    member->strikes = now - member->up_since < kProbation ? member->strikes + 1 : 0;
    if (member->strikes > 1) {
      const int doublings = std::min(member->strikes - 2, 8);
      member->hold_until = now + std::min(kFirstHold * (1 << doublings), kLongestHold);
    }
    lose(*member, "a request failed");
    member->wake.set();
    member->resolve_wake.set();
  }
}

void DirectFleet::Impl::lose(Watched& member, std::string_view reason) {
  member.up = false;
  ++member.incarnation;
  member.logged_reason = reason;
  member.logged_at = net::Reactor::current()->now();
  log::warn("engine left routing endpoint={} reason=\"{}\"", member.endpoint.url, reason);
  publish();
}

void DirectFleet::Impl::publish() {
  snapshot_ = builder_.build(member_views_, static_cast<std::int64_t>(std::time(nullptr)));
  log_exclusions();
  log_counts();
  on_snapshot_(snapshot_);
}

void DirectFleet::Impl::log_probe(const Watched& member) const {
  log::info(
      "probed vLLM engine for direct routing endpoint={} mode={} model={} kv_event_sources={} "
      "vllm_tool_call_parser=\"{}\" vllm_reasoning_parser=\"{}\"",
      member.endpoint.url, role_name(member.prefill ? Role::Prefill : Role::Aggregated),
      member.info->model_id, member.info->kv_event_sources.size(), member.info->tool_call_parser,
      member.info->reasoning_parser);
}

void DirectFleet::Impl::log_exclusions() {
  for (const std::unique_ptr<Watched>& member : members_) {
    const std::string reason = member->up ? member->exclusion : std::string();
    if (reason != member->logged_exclusion && !reason.empty()) {
      log::error("engine left out: all engines must serve one model endpoint={} reason=\"{}\"",
                 member->endpoint.url, reason);
    }
    member->logged_exclusion = reason;
  }
}

/// Once all engines were tried, and whenever the counts change after that.
void DirectFleet::Impl::log_counts() {
  if (unattempted_ > 0) {
    return;
  }
  std::size_t decode = 0;
  std::size_t prefill = 0;
  for (const std::unique_ptr<Watched>& member : members_) {
    if (member->up && member->exclusion.empty()) {
      ++(member->prefill ? prefill : decode);
    }
  }
  if (decode != logged_decode_ || prefill != logged_prefill_) {
    log::info("serving directly dialed engines decode_engines={} prefill_engines={}", decode,
              prefill);
    logged_decode_ = decode;
    logged_prefill_ = prefill;
  }
}

DirectFleet::DirectFleet(DirectFleetOptions options, ClientFactory make_client, Resolver& resolver,
                         OnSnapshot on_snapshot)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(make_client), resolver,
                                   std::move(on_snapshot))) {}

DirectFleet::~DirectFleet() = default;

void DirectFleet::start() { impl_->start(); }

void DirectFleet::report_failure(WorkerId id, std::uint64_t incarnation) {
  impl_->report_failure(id, incarnation);
}

std::shared_ptr<const Fleet> DirectFleet::snapshot() const { return impl_->snapshot(); }

bool DirectFleet::first_round_done() const { return impl_->first_round_done(); }

}  // namespace fairlead::fleet
