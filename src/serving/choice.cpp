#include "serving/choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "base/log.hpp"
#include "fleet/selection.hpp"
#include "routing/kv_query.hpp"
#include "serving/migration.hpp"

namespace fairlead::serving {

Generation::Choice::Choice(Generation& owner, std::uint32_t index, engine::GenerateRequest request)
    : owner_(owner),
      index_(index),
      request_(std::move(request)),
      named_rank_(request_.data_parallel_rank),
      wants_prompt_logprobs_(request_.output.prompt_logprobs.has_value()),
      processor_(owner.rules_, *owner.spec_.assets->tokenizer, request_.prompt),
      prefill_sink_(*this) {
  usage_.prompt_tokens = request_.prompt.size();
  last_message_ = begun_ = net::Reactor::current()->now();
  keeps_prompt_ = owner_.service_.options().migration_limit > 0 && !owner_.spec_.worker_id &&
                  !owner_.spec_.prompt_only && migration_obstacle(request_).empty();
}

Generation::Choice::~Choice() {
  moved(observe::MigrationOutcome::Cancelled);
  leave_decode();
}

net::Task<> Generation::Choice::run() {
  owner_.service_.retries().earn();
  std::optional<Error> last_error;
  for (;;) {
    std::optional<Failure> failure = co_await attempt();
    if (!failure) {
      owner_.choice_done();
      co_return;
    }
    const bool nobody = failure->worker == nullptr;
    if (nobody || !may_try_again(*failure)) {
      place_.reset();
      moved(observe::MigrationOutcome::Failure);
      // When others were tried before, what happened there says more than an empty fleet.
      const bool empty = nobody && failure->error.code == ErrorCode::NoWorkers;
      owner_.fail_all(last_error && empty ? std::move(*last_error) : std::move(failure->error));
      co_return;
    }
    excluded_.push_back(failure->worker->id);
    last_error = std::move(failure->error);
    if (ended_) {  // nothing was missing but the end
      owner_.choice_done();
      co_return;
    }
    if (const net::Duration pause = pause_before_retry(); pause > net::Duration(0)) {
      event_.reset();
      co_await event_.wait_for(pause);
    }
  }
}

// The failure of one attempt, or nothing when the choice ended.
net::Task<std::optional<Generation::Choice::Failure>> Generation::Choice::attempt() {
  for (;;) {
    Result<bool> planned = make_plan();
    if (!planned) {
      plan_.reset();  // perhaps one of two is booked
      co_return Failure{std::move(planned.error()), nullptr};
    }
    if (*planned) {
      break;
    }
    plan_.reset();
    co_await place_->turn();
  }
  begin_attempt();
  std::optional<Failure> failed = start();
  while (!failed && !ended_) {
    co_await event_.wait();
    event_.reset();
    failed = failure();
    if (!failed && prefilled_) {
      report_served(prefill_.get());
      prefill_.reset();
      if (!main_) {
        failed = start_decode();
      }
    }
  }
  if (!failed) {
    failed = failure();
  }
  if (failed) {
    report(*failed);
  } else {
    report_served(prefill_.get());
    report_served(main_.get());
  }
  end_attempt(failed.has_value());
  co_return failed;
}

// Books whoever does the next attempt; false when the request has to wait.
Result<bool> Generation::Choice::make_plan() {
  // Later attempts look at the newest fleet: the snapshot of the request may list the dead.
  Service& service = owner_.service_;
  const GenerationSpec& spec = owner_.spec_;
  const auto set = choose_set(service, spec.model->name, spec.worker_id, spec.session,
                              spec.constraints.required_taints, request_);
  if (!set) {
    return std::unexpected(set.error());
  }
  const bool decodes = (*set)->role == fleet::Role::Decode;
  const ServedModel* const served = service.served()->find(spec.model->name);
  auto peers =
      decodes && held_.is_null() && served ? fleet::prefill_peers(*served->model, **set) : nullptr;
  ChoiceContext main = context();
  if (peers && bypass(*set, peers, main)) {
    peers.reset();
  }
  main.by_load = decodes && (peers || !held_.is_null());
  plan_.emplace();
  if (peers) {
    ChoiceContext first = context();
    first.wanted.worker_id = spec.prefill_worker_id;
    first.wanted.rank = spec.prefill_rank;
    first.expected_output = 1;
    auto booked = choose_worker(service, peers, first, request_);
    if (!booked) {
      return std::unexpected(std::move(booked.error()));
    }
    if (!booked->reservation) {
      return false;
    }
    plan_->prefill = std::move(*booked);
    main.waiter = nullptr;  // it was let in by the prefill workers
  }
  auto booked = choose_worker(service, *set, main, request_);
  if (!booked) {
    return std::unexpected(std::move(booked.error()));
  }
  if (!booked->reservation) {
    return false;
  }
  plan_->main = std::move(*booked);
  return true;
}

// Whether the decode worker that has most of the prompt shall compute the rest by itself; it is
// named in `main` then.
bool Generation::Choice::bypass(const std::shared_ptr<const fleet::WorkerSet>& decode_set,
                                const std::shared_ptr<const fleet::WorkerSet>& prefill_set,
                                ChoiceContext& main) {
  Service& service = owner_.service_;
  const ConditionalDisaggregation& config = service.options().conditional;
  if (!config.enabled || !service.routes_by_kv() || owner_.spec_.prefill_worker_id ||
      hand_off_of(decode_set->workers.front()->backend) != HandOff::AfterPrefill) {
    return false;
  }
  const auto load_of = [&](const WorkerPreview& preview) {
    const routing::TargetRef& target = preview.decision.target;
    const auto found =
        std::ranges::find(preview.candidates, target, &routing::CandidateCost::target);
    const auto worker = service.worker(target.worker_id);
    return PromptLoad{.active_tokens = found != preview.candidates.end()
                                           ? found->load.prefill_tokens
                                           : std::int64_t{0},
                      .max_batched_tokens = worker ? worker->info.max_batched_tokens : 0};
  };
  ChoiceContext asked = main;
  asked.waiter = nullptr;
  asked.scope = nullptr;
  const auto decode = preview_worker(service, decode_set, asked, request_);
  if (!decode) {
    return false;
  }
  std::optional<PromptLoad> prefill;
  if (config.looks_at_prefill_load()) {
    if (const auto preview = preview_worker(service, prefill_set, asked, request_)) {
      prefill = load_of(*preview);
    }
  }
  const auto tokens = static_cast<std::uint32_t>(request_.prompt.size());
  if (!bypasses_prefill(config, tokens, decode->decision.cached_tokens, load_of(*decode),
                        prefill)) {
    return false;
  }
  owner_.shard_.prefill_bypassed.add(1);
  log::info("prefill bypassed request_id={} decode_worker_id={} cached_tokens={} prompt_tokens={}",
            request_.request_id, decode->decision.target.worker_id, decode->decision.cached_tokens,
            tokens);
  main.wanted.worker_id = decode->decision.target.worker_id;
  main.wanted.rank = decode->decision.target.rank;
  return true;
}

ChoiceContext Generation::Choice::context() {
  const GenerationSpec& spec = owner_.spec_;
  const std::string& model = spec.model->files_name();
  if (!place_ && owner_.service_.router().queues(model)) {
    place_ = std::make_unique<WaitingPlace>(model, spec.queue);
  }
  return {.wanted = {.worker_id = spec.worker_id,
                     .excluded = excluded_,
                     .adapter = request_.lora_name,
                     .required_taints = spec.constraints.required_taints,
                     .rank = named_rank_},
          .session = spec.session,
          .expected_output = spec.expected_output,
          .preferred_taints = spec.constraints.preferred_taints,
          .waiter = place_ ? &place_->waiter() : nullptr,
          .scope = &owner_.scope_};
}

void Generation::Choice::begin_attempt() {
  event_.reset();
  error_.reset();
  prefill_error_.reset();
  ended_ = false;
  prefilled_ = false;
  prompt_seen_ = !held_.is_null();  // told in the attempt that left it
  begun_ = last_message_ = net::Reactor::current()->now();
  in_pair_ = plan_->prefill.has_value() || !held_.is_null();
  count_hit_rate(plan_->prefill ? *plan_->prefill : plan_->main);
}

std::optional<Generation::Choice::Failure> Generation::Choice::start() {
  request_.leg = engine::Leg::Whole;
  request_.bootstrap.reset();
  request_.kv_transfer_params = {};
  if (!plan_->prefill) {
    if (!held_.is_null()) {
      return start_decode();
    }
    return start_main();
  }
  hand_off_ = hand_off_of(plan_->prefill->reservation.worker().backend);
  log_pair();
  if (hand_off_ == HandOff::Bootstrap) {
    return start_together();
  }
  return start_prefill(prefill_leg(request_, hand_off_));
}

// Sends the part that generates, to the worker that was booked for it.
std::optional<Generation::Choice::Failure> Generation::Choice::start_main() {
  request_.data_parallel_rank = rank_for(plan_->main, named_rank_);
  main_ = std::make_unique<Leg>(std::move(plan_->main), *this);
  const std::string_view session = in_pair_ ? std::string_view() : owner_.spec_.session;
  if (auto started = main_->start(owner_.service_, request_, session); !started) {
    return Failure{std::move(started.error()), main_->booked().reservation.shared_worker()};
  }
  if (owner_.paused_) {
    main_->pause();
  }
  return std::nullopt;
}

std::optional<Generation::Choice::Failure> Generation::Choice::start_prefill(
    engine::GenerateRequest request) {
  request.data_parallel_rank = rank_for(*plan_->prefill, owner_.spec_.prefill_rank);
  prefill_ = std::make_unique<Leg>(std::move(*plan_->prefill), prefill_sink_);
  if (auto started = prefill_->start(owner_.service_, request, owner_.spec_.session); !started) {
    return Failure{std::move(started.error()), prefill_->booked().reservation.shared_worker()};
  }
  return std::nullopt;
}

// Both legs at once. What either says of the prompt is the prefill engine's word.
std::optional<Generation::Choice::Failure> Generation::Choice::start_together() {
  const routing::Reservation& prefill = plan_->prefill->reservation;
  auto bootstrap = make_bootstrap(prefill.worker(), prefill.rank(), owner_.service_.random());
  if (!bootstrap) {
    return Failure{std::move(bootstrap.error()), prefill.shared_worker()};
  }
  request_.bootstrap = std::move(*bootstrap);
  if (auto failed = start_prefill(prefill_leg(request_, hand_off_))) {
    return failed;
  }
  request_.leg = engine::Leg::Decode;
  std::optional<std::uint32_t> prompt_logprobs = std::exchange(request_.output.prompt_logprobs, {});
  auto failed = start_main();
  request_.output.prompt_logprobs = prompt_logprobs;
  if (!failed && wants_prompt_logprobs_) {
    main_->pause();  // until the prefill leg has told them
  }
  return failed;
}

// The prompt is computed: the decode leg, by what the prefill engine said of it.
std::optional<Generation::Choice::Failure> Generation::Choice::start_decode() {
  request_.leg = engine::Leg::Decode;
  request_.kv_transfer_params = held_;
  const auto prompt_logprobs = std::exchange(request_.output.prompt_logprobs, {});
  auto failed = start_main();
  request_.output.prompt_logprobs = prompt_logprobs;
  return failed;
}

// What went wrong, if anything did. A prefill engine's trouble comes first: it explains the
// other's.
std::optional<Generation::Choice::Failure> Generation::Choice::failure() {
  if (ended_ && !error_) {
    return std::nullopt;
  }
  if (prefill_error_) {
    return Failure{std::move(*std::exchange(prefill_error_, std::nullopt)),
                   prefill_->booked().reservation.shared_worker()};
  }
  if (error_) {
    return Failure{std::move(*std::exchange(error_, std::nullopt)),
                   main_->booked().reservation.shared_worker()};
  }
  return std::nullopt;
}

// Aborts whatever still runs, and gives back what is booked.
void Generation::Choice::end_attempt(bool failed) {
  set_unfinished(0);
  if (failed) {
    ended_ = false;
    // Another decode engine may come for the cache; if that is in vain, too, it is lost.
    if (main_ && ++held_uses_ > 1) {
      held_ = {};
    }
  } else if (prefill_ && prefill_->before_first_token()) {
    // It has handed over and need only say so.
    owner_.service_.releases().adopt(std::move(prefill_), owner_.shard_);
  }
  prefill_.reset();
  main_.reset();
  plan_.reset();
}

// The client left. A decode engine that was told where a prompt's cache is must take it, or the
// prefill engine keeps it for minutes.
void Generation::Choice::leave_decode() {
  if (!net::Reactor::current()) {
    return;
  }
  prefill_.reset();
  if (!held_.is_null() && plan_ && plan_->main.reservation && prefilled_ && !main_) {
    request_.stop.max_tokens = 1;
    request_.stop.min_tokens = 0;
    start_decode();
  }
  if (main_ && !held_.is_null() && main_->before_first_token()) {
    owner_.service_.releases().adopt(std::move(main_), owner_.shard_);
  }
  main_.reset();
}

void Generation::Choice::abandon() {
  leave_decode();
  prefill_.reset();
  plan_.reset();
}

bool Generation::Choice::may_try_again(const Failure& failure) {
  if (!traits(failure.error.code).migratable) {
    return false;
  }
  if (usage_.completion_tokens == 0) {
    if (++attempts_ >= owner_.service_.options().max_attempts ||
        !owner_.service_.retries().spend(net::Reactor::current()->now())) {
      return false;
    }
    moving(observe::MigrationType::NewRequest);
    return true;
  }
  return may_migrate();
}

bool Generation::Choice::may_migrate() {
  const ServiceOptions& options = owner_.service_.options();
  if (!keeps_prompt_ || migrations_ >= options.migration_limit) {
    return false;
  }
  ++migrations_;
  moving(observe::MigrationType::OngoingRequest);
  prepare_continuation();
  return true;
}

// What was output is part of the prompt from now on.
void Generation::Choice::prepare_continuation() {
  const auto delivered = static_cast<std::uint32_t>(usage_.completion_tokens) - delivered_before_;
  delivered_before_ = static_cast<std::uint32_t>(usage_.completion_tokens);
  request_.output.prompt_logprobs.reset();  // the client has them
  held_ = {};
  ended_ = false;
  if (!reduce(request_.stop, delivered)) {
    // The engine broke off between the last token and saying so.
    const engine::TokenId last = request_.prompt.back();
    const bool eos =
        !owner_.rules_.ignore_eos && std::ranges::binary_search(owner_.rules_.eos_token_ids, last);
    const engine::Finish finish{
        .reason = eos ? engine::FinishReason::Stop : engine::FinishReason::Length,
        .stop_token_id = std::nullopt,
        .eos_token_id = eos ? std::optional(last) : std::nullopt,
        .output_tokens = delivered,
        .cached_prompt_tokens = std::nullopt,
        .kv_transfer_params = {},
        .ec_transfer_params = {}};
    on_tokens({.ids = {}, .logprobs = {}, .finish = &finish});
  }
}

// Random, so that the requests of a failed engine do not arrive at the next one together.
net::Duration Generation::Choice::pause_before_retry() {
  const net::Duration::rep most =
      owner_.service_.options().retry_pause.count() * (attempts_ + migrations_);
  return most > 0 ? net::Duration(static_cast<net::Duration::rep>(owner_.service_.draw() %
                                                                  static_cast<std::uint64_t>(most)))
                  : net::Duration(0);
}

void Generation::Choice::moving(observe::MigrationType type) {
  owner_.shard_.migrations[static_cast<std::size_t>(type)].add(1);
  if (!moving_since_) {
    moving_since_ = net::Reactor::current()->now();
  }
  moving_ = type;
}

void Generation::Choice::moved(observe::MigrationOutcome outcome) {
  const auto since = std::exchange(moving_since_, std::nullopt);
  if (since && net::Reactor::current()) {
    owner_.shard_
        .migration_duration[static_cast<std::size_t>(moving_)][static_cast<std::size_t>(outcome)]
        .observe(std::chrono::duration<double>(net::Reactor::current()->now() - *since).count());
  }
}

// A leg did what was asked of it.
void Generation::Choice::report_served(const Leg* leg) {
  if (leg) {
    owner_.service_.report_served(leg->worker());
  }
}

void Generation::Choice::report(const Failure& failure) {
  if (!failure.worker) {
    return;
  }
  const ErrorTraits& row = traits(failure.error.code);
  owner_.service_.report_failure(*failure.worker, failure.error.code);
  for (Leg* const leg : {prefill_.get(), main_.get()}) {
    if (leg && leg->worker().id == failure.worker->id) {
      leg->end_session(row.worker_down);
    }
  }
  // The client reads a general text, so the engine's own words are found here or nowhere. Its
  // refusals, of a request or of more load, are no failures.
  const bool failed = row.http_status >= 500 && failure.error.code != ErrorCode::EngineExhausted &&
                      failure.error.code != ErrorCode::CapabilityUnavailable &&
                      failure.error.code != ErrorCode::TaintsUnmatched;
  constexpr auto kLine = "request {} failed on worker {}: {} ({})";
  if (failed) {
    log::warn(kLine, request_.request_id, failure.worker->id, failure.error.message, row.name);
  } else {
    log::debug(kLine, request_.request_id, failure.worker->id, failure.error.message, row.name);
  }
}

std::optional<std::uint32_t> Generation::Choice::rank_for(const BookedWorker& booked,
                                                          std::optional<std::uint32_t> named) {
  return named || booked.reservation.worker().info.data_parallel_size > 1
             ? booked.reservation.rank()
             : std::nullopt;
}

// A rank that the engine itself is to choose is told as the number that no rank has.
void Generation::Choice::log_pair() const {
  const auto rank_of = [](const routing::Reservation& booked) {
    constexpr std::uint32_t kAny = std::numeric_limits<std::uint32_t>::max();
    return booked.rank().value_or(booked.worker().info.data_parallel_size > 1 ? kAny : 0);
  };
  const routing::Reservation& prefill = plan_->prefill->reservation;
  const routing::Reservation& decode = plan_->main.reservation;
  log::info(
      "prefill and decode request_id={} prefill_worker_id={} prefill_dp_rank={} "
      "decode_worker_id={} decode_dp_rank={}",
      request_.request_id, prefill.worker().id, rank_of(prefill), decode.worker().id,
      rank_of(decode));
}

void Generation::Choice::count_hit_rate(const BookedWorker& booked) {
  const routing::KvDecision* decision = booked.reservation.decision();
  if (decision && decision->total_blocks > 0) {
    owner_.scope_.kv_hit_rate(static_cast<double>(decision->cached.total()) /
                              decision->total_blocks);
  }
}

void Generation::Choice::pause() {
  if (main_) {
    main_->pause();
  }
}

void Generation::Choice::resume() {
  last_message_ = net::Reactor::current()->now();
  if (main_ && !(wants_prompt_logprobs_ && in_pair_ && !prompt_seen_)) {
    main_->resume();
  }
}

void Generation::Choice::check_silence(net::TimePoint now) {
  const ServiceOptions& options = owner_.service_.options();
  const Leg* const leg = main_ ? main_.get() : prefill_.get();
  if (!leg || ended_ || error_ || prefill_error_) {
    return;
  }
  const bool first = leg->before_first_token();
  const net::Duration first_limit = options.first_token_timeout;
  const auto seconds = [](net::Duration limit) {
    return std::chrono::duration_cast<std::chrono::seconds>(limit).count();
  };
  Error error;
  if (first && first_limit > net::Duration(0) && !leg->silent_until_done() &&
      now - begun_ > first_limit) {
    error = {ErrorCode::EngineSilent,
             fmt::format("no token from the engine within {} s", seconds(first_limit)),
             {}};
  } else if (options.stream_timeout > net::Duration(0) && !leg->silent_until_done() &&
             now - last_message_ > options.stream_timeout) {
    error = {ErrorCode::EngineSilent,
             fmt::format("no message from the engine for {} s", seconds(options.stream_timeout)),
             {}};
  } else {
    return;
  }
  // Of two silent engines the one that computes the prompt is waited for by the other.
  if (prefill_ && !prefilled_) {
    prefill_sink_.on_error(std::move(error));
  } else {
    on_error(std::move(error));
  }
}

}  // namespace fairlead::serving
