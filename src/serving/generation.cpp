#include "serving/generation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "routing/kv_query.hpp"
#include "serving/dispatch.hpp"
#include "serving/waiting_place.hpp"
#include "serving/worker_choice.hpp"

namespace fairlead::serving {
namespace {

OutputRules make_rules(const GenerationSpec& spec) {
  OutputRules rules;
  rules.eos_token_ids = spec.assets->eos_token_ids;
  rules.user_stop_ids = spec.user_stop_token_ids;
  std::ranges::sort(rules.eos_token_ids);
  std::ranges::sort(rules.user_stop_ids);
  rules.stop_strings = spec.stop_strings;
  rules.ignore_eos = spec.request.stop.ignore_eos;
  rules.include_stop = spec.include_stop;
  rules.skip_special_tokens = spec.skip_special_tokens;
  rules.detokenize = spec.detokenize;
  rules.offsets = spec.offsets;
  rules.min_tokens = spec.request.stop.min_tokens;
  return rules;
}

}  // namespace

// One sequence: finds a worker, runs on it, and moves to another one as long as nothing was output.
class Generation::Choice final : public engine::TokenSink {
 public:
  Choice(Generation& owner, std::uint32_t index, engine::GenerateRequest request)
      : owner_(owner),
        index_(index),
        request_(std::move(request)),
        named_rank_(request_.data_parallel_rank),
        processor_(owner.rules_, *owner.spec_.assets->tokenizer, request_.prompt) {
    usage_.prompt_tokens = request_.prompt.size();
    last_message_ = net::Reactor::current()->now();
  }

  net::Task<> run() {
    std::vector<std::uint64_t> excluded;
    std::optional<Error> last_error;
    for (std::uint32_t attempt = 0; attempt < owner_.service_.options().max_attempts; ++attempt) {
      auto booked = choose(excluded);
      while (booked && !booked->reservation) {
        co_await place_->turn();
        booked = choose(excluded);
      }
      if (!booked) {
        place_.reset();
        // When others were tried before, what happened there says more than an empty fleet.
        owner_.fail_all(last_error && booked.error().code == ErrorCode::NoWorkers ? *last_error
                                                                                  : booked.error());
        co_return;
      }
      booked_ = std::move(*booked);
      const fleet::Worker& worker = booked_.reservation.worker();
      count_hit_rate();
      request_.data_parallel_rank = named_rank_ || worker.info.data_parallel_size > 1
                                        ? booked_.reservation.rank()
                                        : std::nullopt;
      if (auto error = co_await attempt_on(worker)) {
        report(worker, *error);
        booked_.session.end(traits(error->code).worker_down);
        if (!traits(error->code).migratable || usage_.completion_tokens > 0) {
          owner_.fail_all(std::move(*error));
          co_return;
        }
        excluded.push_back(worker.id);
        booked_ = {};
        last_error = std::move(error);
        continue;
      }
      booked_ = {};
      owner_.choice_done();
      co_return;
    }
    owner_.fail_all(*last_error);
  }

  void on_prompt(const engine::PromptInfo& info) override {
    if (ended_) {
      return;
    }
    last_message_ = net::Reactor::current()->now();
    if (request_.output.prompt_logprobs) {
      if (info.logprobs.size() != request_.prompt.size()) {
        on_error({ErrorCode::EngineProtocol,
                  fmt::format("{} log-probabilities for {} prompt tokens", info.logprobs.size(),
                              request_.prompt.size()),
                  {}});
        return;
      }
      count_missing(info.logprobs);
      prompt_seen_ = true;
    }
    activity_.progress(last_message_);
    owner_.encoder_.on_prompt(index_, info);
    owner_.check_encoder();
  }

  void on_tokens(const engine::TokenChunk& chunk) override {
    if (ended_) {
      return;
    }
    last_message_ = owner_.last_output_ = net::Reactor::current()->now();
    if (chunk.finish && chunk.finish->reason == engine::FinishReason::Aborted) {
      on_error({ErrorCode::EngineCancelled, "the engine aborted the request", {}});
      return;
    }
    if (auto wrong = check_logprobs(chunk)) {
      on_error(std::move(*wrong));
      return;
    }
    activity_.progress(last_message_);
    if (!chunk.ids.empty()) {
      booked_.reservation.prefill_complete();
      booked_.reservation.add_output_tokens(static_cast<std::uint32_t>(chunk.ids.size()));
    }
    if (owner_.spec_.prompt_only) {
      drop_output(chunk);
      return;
    }
    if (usage_.completion_tokens == 0 && !chunk.ids.empty()) {
      std::vector<engine::TokenId>().swap(request_.prompt);  // never sent again once output began
    }
    text_.clear();
    OutputProcessor::Step step = processor_.push(chunk.ids, chunk.finish, text_);
    usage_.completion_tokens += step.used;
    take_cached(chunk.finish);
    owner_.scope_.tokens(step.used, owner_.service_.seconds());
    if (step.used > 0 || !text_.empty()) {
      const auto logprobs = chunk.logprobs.first(std::min(step.used, chunk.logprobs.size()));
      count_missing(logprobs);
      owner_.encoder_.on_delta(
          index_, {text_, chunk.ids.first(step.used), logprobs, processor_.offsets()}, usage_);
      owner_.check_encoder();
    }
    if (step.end) {
      ended_ = true;
      owner_.encoder_.on_end(index_, *step.end, usage_);
      event_.set();
    }
    owner_.apply_pressure();
  }

  bool on_unfinished(std::size_t bytes) override {
    if (ended_ || owner_.error_) {
      return false;
    }
    set_unfinished(bytes);
    owner_.check_encoder();
    return !owner_.error_;
  }

  void on_error(Error error) override {
    if (!ended_) {
      ended_ = true;
      error_ = std::move(error);
      event_.set();
    }
  }

  void pause() {
    if (stream_) {
      stream_->pause();
    }
  }
  void resume() {
    last_message_ = net::Reactor::current()->now();
    if (stream_) {
      stream_->resume();
    }
  }
  void check_silence(net::TimePoint now, net::Duration limit) {
    if (stream_ && !stream_->silent_until_done() && now - last_message_ > limit) {
      on_error({ErrorCode::EngineSilent,
                fmt::format("no message from the engine for {} s",
                            std::chrono::duration_cast<std::chrono::seconds>(limit).count()),
                {}});
    }
  }
  // Aborts what still runs on the engine.
  void abandon() {
    stream_.reset();
    activity_ = {};
    booked_ = {};
  }
  const Usage& usage() const { return usage_; }

 private:
  // Whoever asked for log-probabilities gets one per token or an error, never fewer.
  std::optional<Error> check_logprobs(const engine::TokenChunk& chunk) const {
    if (request_.output.prompt_logprobs && !prompt_seen_) {
      return Error{ErrorCode::EngineProtocol, "output before the prompt's log-probabilities", {}};
    }
    if (request_.output.wants_logprobs() && chunk.logprobs.size() != chunk.ids.size()) {
      return Error{ErrorCode::EngineProtocol,
                   fmt::format("{} log-probabilities for {} tokens", chunk.logprobs.size(),
                               chunk.ids.size()),
                   {}};
    }
    return std::nullopt;
  }

  void set_unfinished(std::size_t bytes) {
    if (bytes != unfinished_) {
      owner_.unfinished_ += bytes - unfinished_;
      unfinished_ = bytes;
      owner_.encoder_.on_unfinished(owner_.unfinished_);
    }
  }

  void count_missing(std::span<const engine::TokenLogprob> logprobs) {
    if (const auto count = std::ranges::count(logprobs, true, &engine::TokenLogprob::missing)) {
      owner_.logprobs_missing(static_cast<std::size_t>(count));
    }
  }

  void take_cached(const engine::Finish* finish) {
    if (finish && finish->cached_prompt_tokens) {
      usage_.cached_tokens =
          std::min<std::uint64_t>(*finish->cached_prompt_tokens, usage_.prompt_tokens);
      usage_.cached_known = true;
      if (booked_.kv_view) {
        routing::note_truth(*booked_.kv_view, *booked_.reservation.decision(),
                            static_cast<std::uint32_t>(usage_.prompt_tokens),
                            static_cast<std::uint32_t>(usage_.cached_tokens));
      }
    }
  }

  // Engines generate at least one token; when only the prompt is wanted, it was never there.
  void drop_output(const engine::TokenChunk& chunk) {
    take_cached(chunk.finish);
    if (chunk.finish) {
      ended_ = true;
      owner_.encoder_.on_end(index_, {.reason = EndReason::Length, .matched = {}}, usage_);
      event_.set();
    }
  }

  Result<BookedWorker> choose(const std::vector<std::uint64_t>& excluded) {
    // Later attempts look at the newest fleet: the snapshot of the request may list the dead.
    Service& service = owner_.service_;
    const auto set =
        choose_set(service, owner_.spec_.model->name, owner_.spec_.worker_id, owner_.spec_.session,
                   owner_.spec_.constraints.required_taints, request_);
    if (!set) {
      return std::unexpected(set.error());
    }
    const std::string& model = owner_.spec_.model->files_name();
    if (!place_ && service.router().queues(model)) {
      place_ = std::make_unique<WaitingPlace>(model, owner_.spec_.queue);
    }
    return choose_worker(service, *set,
                         {.wanted = {.worker_id = owner_.spec_.worker_id,
                                     .excluded = excluded,
                                     .adapter = request_.lora_name,
                                     .required_taints = owner_.spec_.constraints.required_taints,
                                     .rank = named_rank_},
                          .session = owner_.spec_.session,
                          .expected_output = owner_.spec_.expected_output,
                          .preferred_taints = owner_.spec_.constraints.preferred_taints,
                          .waiter = place_ ? &place_->waiter() : nullptr,
                          .scope = &owner_.scope_},
                         request_);
  }

  void count_hit_rate() {
    const routing::KvDecision* decision = booked_.reservation.decision();
    if (decision && decision->total_blocks > 0) {
      owner_.scope_.kv_hit_rate(static_cast<double>(decision->cached.total()) /
                                decision->total_blocks);
    }
  }

  // The failure of one attempt, or nothing when the choice ended.
  net::Task<std::optional<Error>> attempt_on(const fleet::Worker& worker) {
    event_.reset();
    error_.reset();
    ended_ = false;
    prompt_seen_ = false;
    last_message_ = net::Reactor::current()->now();
    auto opened = dispatch(owner_.service_, worker, request_, *this);
    if (!opened) {
      co_return opened.error();
    }
    stream_.reset();
    client_ = std::move(opened->client);
    stream_ = std::move(opened->stream);
    activity_ = std::move(opened->activity);
    if (const routing::KvDecision* decision = booked_.reservation.decision()) {
      booked_.session =
          SessionHold(owner_.service_.sessions(), owner_.spec_.session, decision->target);
    }
    if (owner_.paused_) {
      stream_->pause();
    }
    co_await event_.wait();
    stream_.reset();  // a local stop leaves the engine's request unfinished: this aborts it
    set_unfinished(0);
    activity_ = {};
    co_return std::exchange(error_, std::nullopt);
  }

  void report(const fleet::Worker& worker, const Error& error) {
    const ErrorTraits& row = traits(error.code);
    if (row.worker_down) {
      owner_.service_.report_failure(worker);
    }
    // The client reads a general text, so the engine's own words are found here or nowhere. Its
    // refusals, of a request or of more load, are no failures.
    const bool failed = row.http_status >= 500 && error.code != ErrorCode::EngineExhausted &&
                        error.code != ErrorCode::CapabilityUnavailable &&
                        error.code != ErrorCode::TaintsUnmatched;
    constexpr auto kLine = "request {} failed on worker {}: {} ({})";
    if (failed) {
      log::warn(kLine, request_.request_id, worker.id, error.message, row.name);
    } else {
      log::debug(kLine, request_.request_id, worker.id, error.message, row.name);
    }
  }

  Generation& owner_;
  std::uint32_t index_;
  engine::GenerateRequest request_;
  const std::optional<std::uint32_t> named_rank_;  // by the client
  OutputProcessor processor_;
  Usage usage_;
  std::string text_;
  bool ended_ = false;
  std::size_t unfinished_ = 0;  // bytes of a message, in this attempt
  bool prompt_seen_ = false;    // with its log-probabilities, in this attempt
  std::optional<Error> error_;
  net::Event event_;
  net::TimePoint last_message_;
  std::unique_ptr<WaitingPlace> place_;  // in the queue; the same in all attempts
  BookedWorker booked_;                  // of the current attempt
  fleet::Activity::Request activity_;
  std::shared_ptr<engine::EngineClient> client_;  // before the stream, which uses it to the end
  std::unique_ptr<engine::EngineStream> stream_;
};

Generation::Generation(Service& service, GenerationSpec spec, ResponseEncoder& encoder,
                       observe::RequestScope& scope)
    : service_(service),
      spec_(std::move(spec)),
      encoder_(encoder),
      scope_(scope),
      rules_(make_rules(spec_)),
      last_output_(net::Reactor::current()->now()),
      sweep_([this](net::TimePoint now) { tick(now); }) {
  encoder_.set_on_resume([this] { resume(); });
}

Generation::~Generation() { encoder_.set_on_resume({}); }

net::Task<Result<Usage>> Generation::run() {
  if (const Error* error = encoder_.failure()) {
    co_return std::unexpected(*error);
  }
  service_.sweep(sweep_);
  start_choices();
  co_await done_.wait();
  tasks_.cancel();
  if (error_) {
    for (const auto& choice : choices_) {
      choice->abandon();
    }
    co_return std::unexpected(std::move(*error_));
  }
  Usage total;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Usage& usage = choices_[i]->usage();
    if (i % spec_.n == 0) {  // the choices of one prompt share it
      total.prompt_tokens += usage.prompt_tokens;
      total.cached_tokens += usage.cached_tokens;
      total.cached_known = total.cached_known || usage.cached_known;
    }
    total.completion_tokens += usage.completion_tokens;
  }
  scope_.prompt(total.prompt_tokens, total.cached_tokens);
  co_return total;
}

void Generation::start_choices() {
  const std::size_t count = spec_.prompts.size() * spec_.n;
  running_ = count;
  choices_.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    engine::GenerateRequest request = i + 1 == count ? std::move(spec_.request) : spec_.request;
    const std::size_t sequence = i % spec_.n;
    auto& prompt = spec_.prompts[i / spec_.n];
    request.prompt = sequence + 1 == spec_.n ? std::move(prompt) : prompt;
    request.request_id = count == 1 ? spec_.request_id : fmt::format("{}-{}", spec_.request_id, i);
    if (spec_.prompt_logprobs_once && sequence > 0) {
      request.output.prompt_logprobs.reset();
    }
    if (request.sampling.seed && sequence > 0) {
      // Distinct sequences that are still reproducible, as vLLM derives them.
      *request.sampling.seed += static_cast<std::int64_t>(sequence);
    }
    choices_.push_back(
        std::make_unique<Choice>(*this, static_cast<std::uint32_t>(i), std::move(request)));
  }
  for (const auto& choice : choices_) {
    if (error_) {
      break;
    }
    tasks_.spawn(choice->run());
  }
}

void Generation::fail_all(Error error) {
  if (!error_) {
    error_ = std::move(error);
    done_.set();
  }
}

void Generation::choice_done() {
  if (--running_ == 0) {
    done_.set();
  }
}

void Generation::check_encoder() {
  if (const Error* error = encoder_.failure()) {
    fail_all(*error);
  }
}

void Generation::logprobs_missing(std::size_t count) {
  scope_.logprobs_missing(count);
  if (!std::exchange(warned_missing_, true) && service_.may_warn()) {
    log::warn(
        "request {}: the engine gave no finite log-probability for {} of its tokens; {} is "
        "reported",
        spec_.request_id, count, engine::kLowestLogprob);
  }
}

void Generation::apply_pressure() {
  if (!paused_ && encoder_.congested()) {
    paused_ = true;
    for (const auto& choice : choices_) {
      choice->pause();
    }
  }
}

void Generation::resume() {
  if (std::exchange(paused_, false)) {
    for (const auto& choice : choices_) {
      choice->resume();
    }
  }
}

void Generation::tick(net::TimePoint now) {
  encoder_.on_tick(std::chrono::duration<double>(now - last_output_).count());
  const net::Duration limit = service_.options().stream_timeout;
  if (limit > net::Duration(0) && !paused_) {
    for (const auto& choice : choices_) {
      choice->check_silence(now, limit);
    }
  }
}

}  // namespace fairlead::serving
