#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/log.hpp"
#include "fleet/selection.hpp"
#include "serving/choice.hpp"

// The part of a choice that decides who does an attempt, and sends its legs.

namespace fairlead::serving {

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

std::optional<Generation::Choice::Failure> Generation::Choice::start() {
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
  // Of a pair the prefill engine tells of the prompt, and has the session.
  const std::string_view session = in_pair_ ? std::string_view() : owner_.spec_.session;
  const auto prompt_logprobs = request_.output.prompt_logprobs;
  if (in_pair_) {
    request_.output.prompt_logprobs.reset();
  }
  request_.leg = in_pair_ ? engine::Leg::Decode : engine::Leg::Whole;
  auto started = main_->start(owner_.service_, request_, session);
  request_.output.prompt_logprobs = prompt_logprobs;
  if (!started) {
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
  auto failed = start_main();
  if (!failed && wants_prompt_logprobs_) {
    main_->pause();  // until the prefill leg has told them
  }
  return failed;
}

// The prompt is computed: the decode leg, by what the prefill engine said of it.
std::optional<Generation::Choice::Failure> Generation::Choice::start_decode() {
  request_.kv_transfer_params = held_;
  return start_main();
}

// The client left. A decode engine that was told where a prompt's cache is must take it, or the
// prefill engine keeps it for minutes.
void Generation::Choice::leave_decode() {
  if (!net::Reactor::current()) {
    return;
  }
  if (in_pair_ && hand_off_ == HandOff::Bootstrap) {
    for (std::unique_ptr<Leg>* const leg : {&prefill_, &main_}) {
      if (*leg && (*leg)->before_first_token()) {
        owner_.service_.releases().settle(std::move(*leg), owner_.shard_);
      }
    }
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

}  // namespace fairlead::serving
