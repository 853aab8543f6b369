#include "serving/choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.hpp"
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

// How long an engine that answers as a whole may take: as if each token came at its last moment.
// Zero when nothing bounds that.
std::chrono::duration<double> Generation::Choice::whole_answer_limit(const Leg& leg) const {
  const ServiceOptions& options = owner_.service_.options();
  const std::uint32_t tokens = &leg == prefill_.get() ? 1 : request_.stop.max_tokens;
  const std::chrono::duration<double> each = options.stream_timeout;
  const std::chrono::duration<double> first =
      options.first_token_timeout > net::Duration(0) ? options.first_token_timeout : each;
  return tokens > 1 && each.count() == 0 ? each : first + each * (tokens - 1.0);
}

void Generation::Choice::check_silence(net::TimePoint now) {
  const ServiceOptions& options = owner_.service_.options();
  const Leg* const leg = main_ ? main_.get() : prefill_.get();
  if (!leg || ended_ || error_ || prefill_error_) {
    return;
  }
  const auto over = [](std::chrono::duration<double> time, std::chrono::duration<double> limit) {
    return limit.count() > 0 && time > limit;
  };
  const auto silent = [](std::string_view what, std::chrono::duration<double> limit) {
    return Error{ErrorCode::EngineSilent,
                 fmt::format("no {} from the engine within {:g} s", what, limit.count()),
                 {}};
  };
  std::optional<Error> error;
  const net::Duration running = now - std::max(begun_, leg->started_at());
  if (leg->silent_until_done()) {
    if (const auto limit = whole_answer_limit(*leg); over(running, limit)) {
      error = silent("answer", limit);
    }
  } else if (leg->before_first_token() && over(running, options.first_token_timeout)) {
    error = silent("token", options.first_token_timeout);
  } else if (over(now - last_message_, options.stream_timeout)) {
    error = silent("message", options.stream_timeout);
  }
  if (!error) {
    return;
  }
  // Of two silent engines the one that computes the prompt is waited for by the other.
  if (prefill_ && !prefilled_) {
    prefill_sink_.on_error(std::move(*error));
  } else {
    on_error(std::move(*error));
  }
}

}  // namespace fairlead::serving
