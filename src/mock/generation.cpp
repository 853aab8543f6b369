#include "mock/generation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "mock/kv_transfer.hpp"
#include "net/task_group.hpp"

namespace fairlead::mock {
namespace {

// Unsent bytes of one answer above which its sequence waits. The connection's low mark ends the
// wait.
constexpr std::size_t kHighMark = 256 * 1024;
constexpr net::Duration kResetPoll = std::chrono::milliseconds(10);
constexpr int kResetPolls = 200;

bool fires_after_tokens(FaultKind kind) {
  return kind == FaultKind::StallAfter || kind == FaultKind::ResetAfter ||
         kind == FaultKind::EndAfter || kind == FaultKind::ErrorAfter;
}

}  // namespace

Generation::Generation(EngineState& state, EngineCore& core, const GenerateSpec& spec,
                       AnswerWriter& writer, net::http::Exchange& exchange)
    : state_(state), core_(core), spec_(spec), writer_(writer), exchange_(exchange) {
  if (!spec_.stop_strings.empty()) {
    stop_strings_.emplace(spec_.stop_strings, spec_.include_stop_string);
  }
  choose_fault();
  prepare_sequence();
  preparing_ = writer_.prepare();
  awaiting_peer_ = spec_.awaits_peer;
  sequence_.paused = preparing_ || awaiting_peer_;
  ++state_.active;
  state_.generations.push_back(*this);
  exchange_.set_on_drain([this] { update_pause(); });
  core_.add(sequence_);
}

Generation::~Generation() {
  if (!over_) {
    core_.remove(sequence_);
    ++state_.aborted_total;
    ++core_.counters().aborted;
  }
  if (!sequence_.kept.empty()) {
    core_.release(sequence_.kept);
  }
  --state_.active;
  exchange_.set_on_drain({});
}

net::Task<> Generation::run() {
  net::TaskGroup fetching;
  if (spec_.remote) {
    fetching.spawn(fetch());
  }
  while (preparing_ && !over_) {
    co_await net::NextTurn();
    preparing_ = !over_ && writer_.prepare();
  }
  update_pause();
  co_await ended_.wait();
}

// The fetch goes on when the client leaves: the blocks over there are freed all the same.
net::Task<> Generation::fetch() {
  const std::shared_ptr<KvFetch> fetch = state_.fetch_kv(*spec_.remote);
  {
    const WaitingForPeer waiting(state_);
    co_await fetch->done.wait();
  }
  if (fetch->succeeded) {
    kv_arrived(std::nullopt);
  } else {
    recompute();
  }
}

void Generation::on_admitted(Sequence&) { admitted_.set(); }

void Generation::start() {
  awaiting_peer_ = false;
  update_pause();
}

void Generation::kv_arrived(std::optional<TokenId> first) {
  if (first) {
    sequence_.reply.put(0, *first);
  }
  sequence_.awaits_kv = false;
  core_.wake();
}

void Generation::recompute() {
  sequence_.prompt_arrives = false;
  sequence_.cached = 0;
  sequence_.computed = 0;
  sequence_.awaits_kv = false;
  core_.wake();
}

void Generation::give_up() {
  if (!over_) {
    ++core_.counters().aborted;
    end(state_.aborted_total);
  }
}

void Generation::choose_fault() {
  for (const Fault& fault : state_.options.faults) {
    if (fires_after_tokens(fault.kind) && (!fault_ || fault.tokens < fault_->tokens)) {
      fault_ = fault;
    }
  }
}

void Generation::prepare_sequence() {
  const MockOptions& options = state_.options;
  const Nanos now = engine_time(net::Clock::now());
  sequence_.tokens = spec_.prompt;
  sequence_.prompt_tokens = spec_.prompt.size();
  sequence_.cache_key = spec_.cache_key;
  sequence_.skip_cache_read = spec_.skip_cache_read;
  sequence_.prompt_arrives = spec_.prompt_arrives;
  sequence_.awaits_kv = spec_.awaits_kv || spec_.remote.has_value();
  sequence_.keep_blocks = spec_.keep_blocks || (spec_.hand_off && state_.keep_kv);
  sequence_.stop = spec_.stop;
  sequence_.observer = this;
  sequence_.reply = state_.replies.next(spec_.request_id, spec_.cache_key.lora);
  if (options.reasoning) {
    sequence_.reply.add_reasoning(*options.reasoning, spec_.stop.max_new_tokens);
  }
  sequence_.reply.restrict_to(spec_.allowed);
  if (spec_.forced) {
    sequence_.reply.force(*spec_.forced);
  }
  if (options.canvas_eos) {
    sequence_.reply.put(*options.canvas_eos, options.eos_token_ids.front());
    sequence_.stop.canvas = true;
    sequence_.stop.ignore_eos = true;
    std::erase_if(sequence_.stop.stop_ids, [&](TokenId id) {
      return std::ranges::find(options.eos_token_ids, id) != options.eos_token_ids.end();
    });
  }
  sequence_.ready_at = now;
  sequence_.interval = Nanos(static_cast<std::int64_t>(options.token_interval_ms * 1e6));
  if (const Fault* slow = state_.fault(FaultKind::Slow)) {
    sequence_.interval += slow->delay;
    sequence_.ready_at += slow->delay;
  }
  if (spec_.prompt_arrives && !spec_.awaits_kv) {
    sequence_.ready_at += transfer_time(options, spec_.prompt.size());
  }
  prompt_blocks_ = (spec_.prompt.size() + options.block_size - 1) / options.block_size;
}

void Generation::begin() {
  if (!std::exchange(begun_, true)) {
    writer_.begin(sequence_.cached.value_or(0));
  }
}

void Generation::on_output(Sequence&, const StepOutput& output) {
  if (sequence_.generated() <= 1) {
    core_.counters().prompt_tokens += sequence_.prompt_tokens;
    core_.counters().cached_tokens += sequence_.cached.value_or(0);
  }
  core_.counters().generated_tokens += output.token ? 1 : 0;
  if (fault_ && fault_->tokens == 0 && apply_fault()) {
    return;
  }
  begin();
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
  writer_.step(output.token, text);
  if (fault_ && sequence_.generated() >= fault_->tokens) {
    apply_fault();
  } else if (exchange_.unsent() > kHighMark) {
    update_pause();
  }
}

void Generation::finish(FinishFacts facts, std::optional<TokenId> token, std::string_view text) {
  facts.output_tokens = static_cast<std::uint32_t>(sequence_.generated());
  facts.cached_tokens = sequence_.cached.value_or(0);
  // As with a real connector, only a prefill that ran into its limit leaves blocks to be fetched.
  if (spec_.hand_off && facts.reason == FinishFacts::Reason::Length) {
    facts.hand_off_engine = state_.instance_id;
    facts.hand_off_blocks = prompt_blocks_;
    if (state_.keep_kv) {
      facts.hand_off_host = state_.transfer_host;
      facts.hand_off_port = state_.transfer_port;
      state_.keep_kv(core_, spec_.request_id, std::exchange(sequence_.kept, {}));
    }
  }
  const bool aborted = facts.reason == FinishFacts::Reason::Aborted;
  TokenCounters& counters = core_.counters();
  ++(aborted ? counters.aborted
             : (facts.reason == FinishFacts::Reason::Stop ? counters.stopped : counters.full));
  writer_.finish(token, text, facts);
  end(aborted ? state_.aborted_total : state_.finished_total);
}

void Generation::end(std::uint64_t& counter) {
  over_ = true;
  unlink();
  core_.remove(sequence_);
  ++counter;
  ended_.set();
}

void Generation::abort() {
  if (over_) {
    return;
  }
  begin();
  std::string text;
  if (stop_strings_) {
    stop_strings_->flush(text);
  }
  FinishFacts facts;
  facts.reason = FinishFacts::Reason::Aborted;
  finish(std::move(facts), std::nullopt, text);
}

// True when the answer has ended or is stuck.
bool Generation::apply_fault() {
  switch (fault_->kind) {
    case FaultKind::StallAfter:
      begin();
      stalled_ = true;
      update_pause();
      return true;
    case FaultKind::EndAfter:
    case FaultKind::ErrorAfter:
      writer_.break_off(*fault_);
      end(state_.faulted_total);
      return true;
    case FaultKind::ResetAfter:
      reset_ = true;
      end(state_.faulted_total);
      return true;
    default: return false;
  }
}

void Generation::update_pause() {
  if (!over_) {
    core_.set_paused(sequence_,
                     preparing_ || awaiting_peer_ || stalled_ || exchange_.unsent() > kHighMark);
  }
}

Nanos transfer_time(const MockOptions& options, std::size_t tokens) {
  if (options.kv_transfer_bandwidth <= 0) {
    return Nanos(0);
  }
  const double bytes =
      static_cast<double>(options.kv_bytes_per_token) * static_cast<double>(tokens);
  return Nanos(static_cast<std::int64_t>(bytes / options.kv_transfer_bandwidth));
}

net::Task<> drain_before_reset(net::http::Exchange& exchange) {
  for (int i = 0; i < kResetPolls && !exchange.finished() && exchange.unsent() > 0; ++i) {
    co_await net::Sleep(kResetPoll);
  }
}

}  // namespace fairlead::mock
