#include "serving/generation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "serving/choice.hpp"

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

Generation::Generation(Service& service, GenerationSpec spec, ResponseEncoder& encoder,
                       observe::RequestScope& scope)
    : service_(service),
      spec_(std::move(spec)),
      encoder_(encoder),
      scope_(scope),
      shard_(scope.shard()),
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
  if (!paused_) {
    for (const auto& choice : choices_) {
      choice->check_silence(now);
    }
  }
}

}  // namespace fairlead::serving
