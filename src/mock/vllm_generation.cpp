#include "mock/vllm_generation.hpp"

#include <fmt/format.h>

#include <utility>

namespace fairlead::mock {
namespace {

using net::grpc::Status;
using net::grpc::StatusCode;

// Unsent bytes of one call above which its sequence waits. The connection's low mark ends the wait.
constexpr std::size_t kHighMark = 256 * 1024;

bool fires_after_tokens(FaultKind kind) {
  return kind == FaultKind::StallAfter || kind == FaultKind::ResetAfter ||
         kind == FaultKind::EndAfter || kind == FaultKind::ErrorAfter;
}

}  // namespace

VllmGeneration::VllmGeneration(EngineState& state, EngineCore& core, GenerateSpec spec,
                               net::grpc::ServerCall& call, bool streaming, net::Event* reset)
    : state_(state),
      core_(core),
      spec_(std::move(spec)),
      call_(call),
      streaming_(streaming),
      reset_(reset),
      encoder_(spec_, state.options) {
  encoder_.set_gather(!streaming_);
  if (!spec_.stop_strings.empty()) {
    stop_strings_.emplace(spec_.stop_strings, spec_.include_stop_string);
  }
  choose_fault();
  prepare_sequence();
  ++state_.active;
  state_.generations.push_back(*this);
  call_.exchange().set_on_drain([this] { update_pause(); });
  core_.add(sequence_);
}

VllmGeneration::~VllmGeneration() {
  if (!over_) {
    core_.remove(sequence_);
    ++state_.aborted_total;
  }
  --state_.active;
  call_.exchange().set_on_drain({});
}

void VllmGeneration::choose_fault() {
  for (const Fault& fault : state_.options.faults) {
    if (fires_after_tokens(fault.kind) && (!fault_ || fault.tokens < fault_->tokens)) {
      fault_ = fault;
    }
  }
}

void VllmGeneration::prepare_sequence() {
  const MockOptions& options = state_.options;
  const Nanos now = engine_time(net::Clock::now());
  sequence_.tokens = spec_.prompt;
  sequence_.prompt_tokens = spec_.prompt.size();
  sequence_.cache_key = spec_.cache_key;
  sequence_.skip_cache_read = spec_.skip_cache_read;
  sequence_.prompt_arrives = spec_.prompt_arrives;
  sequence_.stop = spec_.stop;
  sequence_.observer = this;
  sequence_.reply = state_.replies.next(spec_.request_id);
  if (options.reasoning) {
    sequence_.reply.add_reasoning(*options.reasoning, spec_.stop.max_new_tokens);
  }
  sequence_.reply.restrict_to(spec_.allowed);
  sequence_.ready_at = now;
  sequence_.interval = Nanos(static_cast<std::int64_t>(options.token_interval_ms * 1e6));
  if (const Fault* slow = state_.fault(FaultKind::Slow)) {
    sequence_.interval += slow->delay;
    sequence_.ready_at += slow->delay;
  }
  if (spec_.prompt_arrives && options.kv_transfer_bandwidth > 0) {
    const double bytes =
        static_cast<double>(options.kv_bytes_per_token) * static_cast<double>(spec_.prompt.size());
    sequence_.ready_at += Nanos(static_cast<std::int64_t>(bytes / options.kv_transfer_bandwidth));
  }
  prompt_blocks_ = (spec_.prompt.size() + options.block_size - 1) / options.block_size;
}

void VllmGeneration::write(std::string_view message) {
  if (streaming_) {
    call_.write(message);
  }
}

void VllmGeneration::write_prompt_info() {
  if (!std::exchange(prompt_info_written_, true)) {
    write(encoder_.prompt_info());
  }
}

void VllmGeneration::on_output(Sequence&, const StepOutput& output) {
  if (fault_ && fault_->tokens == 0 && apply_fault()) {
    return;
  }
  write_prompt_info();
  FinishFacts facts;
  facts.stop_token = output.stop_token;
  if (output.eos) {
    facts.eos_token = output.token;
  }
  bool finished = output.finish != FinishReason::None;
  facts.reason =
      output.finish == FinishReason::Stop ? FinishFacts::Reason::Stop : FinishFacts::Reason::Length;
  std::string text;
  const bool is_stop = output.eos || output.stop_token;
  if (spec_.text && output.token && (!is_stop || spec_.include_stop_string)) {
    text = fmt::format("<token:{}>", *output.token);
  }
  if (stop_strings_) {
    std::string shown;
    const bool armed = sequence_.generated() > spec_.stop.min_new_tokens;
    facts.stop_string = stop_strings_->push(text, armed, shown);
    if (facts.stop_string) {
      facts.reason = FinishFacts::Reason::Stop;
      facts.stop_token.reset();
      facts.eos_token.reset();
      finished = true;
    } else if (finished) {
      stop_strings_->flush(shown);
    }
    text = std::move(shown);
  }
  if (finished) {
    finish(std::move(facts), output.token, text);
    return;
  }
  write(encoder_.step(output.token, text, nullptr));
  if (fault_ && sequence_.generated() >= fault_->tokens) {
    apply_fault();
  } else if (call_.exchange().unsent() > kHighMark) {
    update_pause();
  }
}

void VllmGeneration::finish(FinishFacts facts, std::optional<TokenId> token,
                            std::string_view text) {
  facts.output_tokens = static_cast<std::uint32_t>(sequence_.generated());
  facts.cached_tokens = sequence_.cached.value_or(0);
  // As with a real connector, only a prefill that ran into its limit leaves blocks to be fetched.
  if (spec_.hand_off && facts.reason == FinishFacts::Reason::Length) {
    facts.hand_off_engine = state_.instance_id;
    facts.hand_off_blocks = prompt_blocks_;
  }
  const std::string_view last = encoder_.step(token, text, &facts);
  call_.write(streaming_ ? last : encoder_.gathered());
  end({},
      facts.reason == FinishFacts::Reason::Aborted ? state_.aborted_total : state_.finished_total);
}

void VllmGeneration::end(const Status& status, std::uint64_t& counter) {
  over_ = true;
  unlink();
  core_.remove(sequence_);
  ++counter;
  call_.finish(status);
  ended_.set();
}

void VllmGeneration::abort() {
  if (over_) {
    return;
  }
  write_prompt_info();
  std::string text;
  if (stop_strings_) {
    stop_strings_->flush(text);
  }
  FinishFacts facts;
  facts.reason = FinishFacts::Reason::Aborted;
  finish(std::move(facts), std::nullopt, text);
}

// True when the call has ended or is stuck.
bool VllmGeneration::apply_fault() {
  switch (fault_->kind) {
    case FaultKind::StallAfter:
      write_prompt_info();
      stalled_ = true;
      update_pause();
      return true;
    case FaultKind::EndAfter: end({}, state_.faulted_total); return true;
    case FaultKind::ErrorAfter:
      end({static_cast<StatusCode>(fault_->status), "injected fault", Status::Origin::Server},
          state_.faulted_total);
      return true;
    case FaultKind::ResetAfter:
      if (reset_) {
        over_ = true;
        unlink();
        core_.remove(sequence_);
        ++state_.faulted_total;
        reset_->set();
        return true;
      }
      return false;
    default: return false;
  }
}

void VllmGeneration::update_pause() {
  if (!over_) {
    core_.set_paused(sequence_, stalled_ || call_.exchange().unsent() > kHighMark);
  }
}

}  // namespace fairlead::mock
