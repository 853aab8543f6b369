#include "fleet/engine_watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/log.hpp"

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

TimePoint now() { return net::Reactor::current()->now(); }

}  // namespace

EngineWatch::EngineWatch(WatchContext& context, Card card)
    : context_(context),
      canary_(context.options.canary, *member_.activity,
              fmt::format("{}", worker_id(card.endpoint.url))),
      load_(context.options.load, worker_id(card.endpoint.url)),
      circuit_(context.options.circuit, *member_.activity, worker_id(card.endpoint.url)),
      circuit_timer_([this] { on_circuit_time(); }) {
  member_.id = worker_id(card.endpoint.url);
  member_.key = card.key();
  member_.checksum = card.checksum();
  member_.card = std::move(card);
  member_.incarnation = ++context_.last_incarnation;
}

void EngineWatch::start() {
  member_.down_since = now();
  const Endpoint& endpoint = member_.card.endpoint;
  if (const auto address = net::Address::parse(endpoint.host, endpoint.port)) {
    take_addresses({*address});
  } else {
    tasks_.spawn(keep_resolved());
  }
  tasks_.spawn(watch());
  tasks_.spawn(watch_deadline());
  if (context_.options.canary.enabled) {
    tasks_.spawn(keep_trying());
  }
  if (context_.options.load.wanted) {
    tasks_.spawn(keep_measuring());
  }
}

void EngineWatch::take_card(Card card) {
  member_.checksum = card.checksum();
  member_.card = std::move(card);
  member_.incarnation = ++context_.last_incarnation;
  checks_ = context_.options.checks_per_probe - 1;
  wake_.set();
}

Task<> EngineWatch::watch() {
  while (true) {
    Duration pause = context_.options.retry_interval;
    if (client_ && !member_.up) {
      co_await attempt();
    } else if (member_.up) {
      co_await check();
    }
    if (member_.up) {
      pause = context_.options.health_interval;
    } else if (hold_until_ > now()) {
      pause = hold_until_ - now();
    }
    if (!wake_.is_set()) {
      co_await wake_.wait_for(pause);
    }
    wake_.reset();
    if (const TimePoint woken = now(); !member_.up && hold_until_ > woken) {
      co_await net::Sleep(hold_until_ - woken);
    }
  }
}

Task<> EngineWatch::attempt() {
  const TimePoint deadline = now() + context_.options.attempt_timeout;
  Result<engine::EngineInfo> info = co_await client_->probe(deadline);
  if (!info) {
    note_absent(info.error());
    resolve_wake_.set();
  } else if (const Result<> able = co_await try_to_generate(*info); !able) {
    note_absent(able.error());
    hold_until_ = now() + canary_.retry_delay();
  } else {
    take_info(std::move(*info));
  }
  note_attempt();
}

Task<Result<>> EngineWatch::try_to_generate(const engine::EngineInfo& info) {
  if (!context_.options.canary.enabled) {
    co_return Result<>();
  }
  std::string model = info.served_model_name;
  if (!member_.card.display_name.empty()) {
    model = member_.card.display_name;
  } else if (!context_.model_name.empty()) {
    model = context_.model_name;
  }
  const CanaryPart part{.role = effective_role(member_.card, info),
                        .meets_peer = info.role && *info.role != engine::Leg::Whole};
  co_return co_await canary_.run(*client_, model, part);
}

/// Canaries for an engine that is there, whenever nothing else tells how it is.
Task<> EngineWatch::keep_trying() {
  while (true) {
    const Duration pause = member_.up ? canary_.pause(now()) : context_.options.canary.wait;
    co_await net::Sleep(pause);
    if (!member_.up || canary_.due() > now()) {
      continue;
    }
    const std::uint64_t incarnation = member_.incarnation;
    const Result<> able = co_await try_to_generate(*member_.info);
    if (!able && member_.up && member_.incarnation == incarnation) {
      hold_until_ = now() + canary_.retry_delay();
      lose(able.error().message);
      wake_.set();
    }
  }
}

/// How full its caches are, as long as somebody wants to know.
Task<> EngineWatch::keep_measuring() {
  while (true) {
    co_await net::Sleep(context_.options.load.interval);
    const std::uint64_t blocks = member_.up ? known_info(member_).total_kv_blocks : 0;
    if (blocks > 0 && load_.wanted(*client_)) {
      co_await load_.ask(*client_, blocks);
    } else {
      load_.forget();
    }
  }
}

/// A cheap check, or now and then a full probe that notices another engine at the same place.
Task<> EngineWatch::check() {
  const TimePoint deadline = now() + context_.options.health_timeout;
  const std::uint64_t incarnation = member_.incarnation;
  Result<> healthy;
  std::optional<engine::EngineInfo> info;
  if (++checks_ % context_.options.checks_per_probe == 0) {
    Result<engine::EngineInfo> probed = co_await client_->probe(deadline);
    if (probed) {
      info = std::move(*probed);
    } else {
      healthy = std::unexpected(std::move(probed.error()));
    }
  } else {
    healthy = co_await client_->check_health(deadline);
  }
  if (!member_.up || member_.incarnation != incarnation) {
    co_return;  // reported as failed meanwhile: this answer may be older than the report
  }
  if (!healthy) {
    const bool late = healthy.error().code == ErrorCode::EngineConnectTimeout;
    if (!late || ++timeouts_ >= kMaxTimeouts) {
      lose(healthy.error().message);
      resolve_wake_.set();
    }
    wake_.set();  // asked again at once
    co_return;
  }
  timeouts_ = 0;
  if (info && context_.options.canary.enabled && info->instance_id != member_.info->instance_id) {
    lose("another process answers");  // which has not generated yet
    wake_.set();
  } else if (info) {
    take_info(std::move(*info));
  }
}

Task<> EngineWatch::keep_resolved() {
  while (true) {
    const std::string host = member_.card.endpoint.host;
    auto addresses = co_await context_.resolver.resolve(host, member_.card.endpoint.port);
    Duration pause = context_.options.resolve_interval;
    if (addresses) {
      take_addresses(std::move(*addresses));
    } else if (!client_) {
      note_absent(addresses.error());
      note_attempt();
      pause = context_.options.retry_interval;
    }
    resolve_wake_.reset();
    co_await resolve_wake_.wait_for(pause);
  }
}

Task<> EngineWatch::watch_deadline() {
  co_await net::Sleep(context_.options.startup_deadline);
  if (!ever_up_) {
    log::error(
        "engine did not answer within {} s of the start; still trying endpoint={} reason=\"{}\"",
        std::chrono::duration_cast<std::chrono::seconds>(context_.options.startup_deadline).count(),
        member_.card.endpoint.url, logged_reason_);
  }
}

void EngineWatch::take_addresses(std::vector<net::Address> addresses) {
  if (member_.addresses == addresses) {
    return;
  }
  member_.addresses = addresses;
  if (client_) {
    client_->set_addresses(std::move(addresses));
  } else {
    engine::ClientOptions options;
    options.backend = member_.card.backend;
    options.authority = member_.card.endpoint.authority;
    options.addresses = std::move(addresses);
    client_ = context_.make_client(std::move(options));
  }
  wake_.set();
  if (member_.info) {
    context_.on_change();
  }
}

/// A probe succeeded: the engine joins, or what is known of it changes.
void EngineWatch::take_info(engine::EngineInfo info) {
  replace_wildcard_hosts(info, member_.card.endpoint.authority_host());
  const bool same = member_.info == info;
  if (member_.up && same) {
    return;
  }
  const bool another = member_.up && (member_.info->instance_id != info.instance_id ||
                                      member_.info->role != info.role);
  const bool new_process = member_.info && member_.info->instance_id != info.instance_id;
  if (another) {
    member_.incarnation = ++context_.last_incarnation;
  }
  member_.info = std::move(info);
  if (new_process && circuit_.reset()) {
    circuit_timer_.cancel();
    member_.circuit = Circuit::Closed;
    member_.barred = false;
  }
  if (!member_.up) {
    come_up();
  }
  if (!same) {
    for (const std::string& warning : member_.info->warnings) {
      log::warn("{} endpoint={}", warning, member_.card.endpoint.url);
    }
  }
  log_probe();
  context_.on_change();
}

void EngineWatch::come_up() {
  member_.up = true;
  ever_up_ = true;
  timeouts_ = 0;
  checks_ = 0;
  up_since_ = now();
  logged_reason_.clear();
  if (context_.options.canary.enabled && circuit_.succeed(now())) {  // it has just generated
    member_.circuit = Circuit::Closed;
    member_.barred = false;
  }
}

/// Logs why an engine is not there: the first time, when the reason changes, and now and then.
void EngineWatch::note_absent(const Error& error) {
  if (logged_reason_ == error.message && now() - logged_at_ < kReasonRepeat) {
    return;
  }
  logged_reason_ = error.message;
  logged_at_ = now();
  log::warn("engine does not answer; trying again every {} ms endpoint={} reason=\"{}\"",
            std::chrono::duration_cast<std::chrono::milliseconds>(context_.options.retry_interval)
                .count(),
            member_.card.endpoint.url, error.message);
}

void EngineWatch::note_attempt() {
  if (!std::exchange(attempted_, true)) {
    context_.on_attempted();
  }
}

void EngineWatch::report(Outcome outcome, bool replaceable) {
  if (outcome == Outcome::Served) {
    close_circuit("a request was served");
    return;
  }
  fail_circuit(replaceable);
  if (outcome == Outcome::Down) {
    strikes_ = now() - up_since_ < kProbation ? strikes_ + 1 : 0;
    if (strikes_ > 1) {
      const int doublings = std::min(strikes_ - 2, 8);
      hold_until_ = now() + std::min(kFirstHold * (1 << doublings), kLongestHold);
    }
    lose("a request failed");
    wake_.set();
    resolve_wake_.set();
  }
}

/// A request or a trial failed.
void EngineWatch::fail_circuit(bool replaceable) {
  if (!circuit_.fail(now(), replaceable)) {
    return;
  }
  log::warn(
      "worker's circuit opened: {} of its requests failed in a row; no requests for {} s "
      "endpoint={} worker_id={}",
      circuit_.failures(), std::chrono::duration<double>(circuit_.pause()).count(),
      member_.card.endpoint.url, member_.id);
  member_.incarnation = ++context_.last_incarnation;
  circuit_timer_.arm(circuit_.pause());
  show_circuit();
}

void EngineWatch::close_circuit(std::string_view reason) {
  if (!circuit_.succeed(now())) {
    return;
  }
  log::info("worker's circuit closed: {} endpoint={} worker_id={}", reason,
            member_.card.endpoint.url, member_.id);
  show_circuit();
}

/// The pause is over. Where there are canaries one of them is the trial.
void EngineWatch::on_circuit_time() {
  circuit_.half_open();
  log::info("worker's circuit is half-open: {} endpoint={} worker_id={}",
            context_.options.canary.enabled ? "a canary decides" : "one request at a time",
            member_.card.endpoint.url, member_.id);
  show_circuit();
  if (context_.options.canary.enabled && member_.up) {
    tasks_.spawn(try_half_open());
  }
}

Task<> EngineWatch::try_half_open() {
  const std::uint64_t incarnation = member_.incarnation;
  const Result<> able = co_await try_to_generate(*member_.info);
  if (!member_.up || member_.incarnation != incarnation) {
    co_return;  // it is tried again before it returns
  }
  if (able) {
    close_circuit("a canary succeeded");
  } else {
    fail_circuit(true);
  }
}

/// Tells the fleet what the circuit is now.
void EngineWatch::show_circuit() {
  member_.circuit = circuit_.state();
  member_.barred = member_.circuit == Circuit::Open ||
                   (member_.circuit == Circuit::HalfOpen && context_.options.canary.enabled);
  context_.on_change();
}

void EngineWatch::lose(std::string_view reason) {
  member_.up = false;
  member_.down_since = now();
  member_.incarnation = ++context_.last_incarnation;
  load_.forget();
  logged_reason_ = reason;
  logged_at_ = now();
  log::warn("engine left routing endpoint={} reason=\"{}\"", member_.card.endpoint.url, reason);
  context_.on_change();
}

void EngineWatch::log_probe() const {
  // An engine that does not tell its role is one that decodes by its place in the fleet only.
  const Role role = effective_role(member_.card, *member_.info);
  const bool decode_by_place = role == Role::Decode && !member_.info->role;
  const std::string_view family =
      member_.card.backend == engine::Backend::Sglang ? "sglang" : "vllm";
  log::info(
      "probed {} engine for direct routing endpoint={} mode={} model={} kv_event_sources={} "
      "{}_tool_call_parser=\"{}\" {}_reasoning_parser=\"{}\" capabilities=\"{}\"",
      engine::maker_name(member_.card.backend), member_.card.endpoint.url,
      role_name(decode_by_place ? Role::Aggregated : role), member_.info->model_id,
      member_.info->kv_event_sources.size(), family, member_.info->tool_call_parser, family,
      member_.info->reasoning_parser,
      engine::capability_names(member_.info->capabilities.without(member_.card.denied)));
}

}  // namespace fairlead::fleet
