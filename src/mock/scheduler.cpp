#include "mock/scheduler.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace fairlead::mock {

void Scheduler::add(Sequence& sequence) {
  extend_hashes(sequence);
  sequence.state = Sequence::State::Waiting;
  waiting_.push_back(&sequence);
}

void Scheduler::remove(Sequence& sequence) {
  for (Scheduled& entry : scheduled_) {
    if (entry.sequence == &sequence) {
      entry.sequence = nullptr;
    }
  }
  if (sequence.state == Sequence::State::Waiting) {
    std::erase(waiting_, &sequence);
  } else if (sequence.state == Sequence::State::Running) {
    std::erase(running_, &sequence);
    if (options_.output_stored_at_end && !sequence.awaits_kv && !sequence.blocks.empty()) {
      store(sequence, sequence.computed / pool_.block_size());
    }
    drop_blocks(sequence);
  }
  sequence.state = Sequence::State::Outside;
}

void Scheduler::drop_blocks(Sequence& sequence) {
  pool_.release(sequence.blocks);
  sequence.blocks.clear();
  sequence.computed = 0;
  sequence.stored_blocks = 0;
}

Scheduler::Step Scheduler::begin_step(Nanos now) {
  Load load;
  load.budget = options_.max_batched_tokens;
  scheduled_.clear();
  schedule_running(now, load);
  if (!load.preempted && !held_) {
    schedule_waiting(now, load);
  }
  Step step;
  step.sequences = scheduled_.size();
  step.work = !scheduled_.empty();
  in_step_ = step.work;
  step.duration = timing_.prefill(load.prefill_tokens);
  if (load.decoding) {
    step.duration += timing_.decode(load.active_tokens, pool_.usable() * pool_.block_size());
  }
  return step;
}

void Scheduler::schedule_running(Nanos now, Load& load) {
  // A preemption takes sequences out of the list, before or behind the current one.
  for (std::size_t i = 0; i < running_.size() && load.budget > 0; ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.paused || sequence.awaits_kv || sequence.ready_at > now) {
      continue;
    }
    const std::size_t tokens = std::min(sequence.tokens.size() - sequence.computed, load.budget);
    if (!grow(sequence, tokens) && !make_room(sequence, tokens, load)) {
      break;
    }
    while (i >= running_.size() || running_[i] != &sequence) {
      --i;
    }
    schedule(sequence, tokens, load);
  }
}

bool Scheduler::make_room(Sequence& sequence, std::size_t tokens, Load& load) {
  while (!grow(sequence, tokens)) {
    Sequence& victim =
        options_.preemption == PreemptionMode::Newest ? *running_.back() : *running_.front();
    load.preempted = true;
    for (auto it = scheduled_.begin(); it != scheduled_.end(); ++it) {
      if (it->sequence == &victim) {
        load.budget += it->tokens;
        scheduled_.erase(it);
        break;
      }
    }
    preempt(victim);
    if (&victim == &sequence) {
      return false;
    }
  }
  return true;
}

void Scheduler::preempt(Sequence& sequence) {
  std::erase(running_, &sequence);
  drop_blocks(sequence);
  sequence.state = Sequence::State::Waiting;
  ++sequence.preemptions;
  ++preemptions_;
  waiting_.push_front(&sequence);
}

void Scheduler::schedule_waiting(Nanos now, Load& load) {
  for (std::size_t i = 0; i < waiting_.size() && load.budget > 0;) {
    if (running_.size() >= options_.max_running) {
      return;
    }
    Sequence& sequence = *waiting_[i];
    if (sequence.paused || sequence.ready_at > now) {
      ++i;
      continue;
    }
    if (!admit(sequence, load)) {
      return;
    }
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

bool Scheduler::admit(Sequence& sequence, Load& load) {
  // The last token is always computed, for its logits: a hit never covers the whole sequence.
  const std::size_t known = sequence.tokens.size();
  std::vector<BlockId> found;
  if (!sequence.skip_cache_read) {
    const std::size_t blocks = std::min(sequence.hashes.size(), (known - 1) / pool_.block_size());
    found = pool_.find_prefix(std::span(sequence.hashes).first(blocks));
  }
  std::size_t computed = found.size() * pool_.block_size();
  const bool arrives = sequence.prompt_arrives && sequence.generated() == 0;
  const std::size_t skipped = arrives ? known - 1 : computed;
  std::size_t tokens = known - skipped;
  if (tokens > load.budget) {
    // Without chunking a prompt longer than a whole step is computed alone in one.
    if (!options_.chunked_prefill && load.budget < options_.max_batched_tokens) {
      return false;
    }
    tokens = options_.chunked_prefill ? load.budget : tokens;
  }
  pool_.acquire(found);
  sequence.blocks = std::move(found);
  sequence.stored_blocks = sequence.blocks.size();
  sequence.computed = skipped;
  if (!grow(sequence, tokens)) {
    drop_blocks(sequence);
    return false;
  }
  if (!sequence.cached) {
    sequence.cached = static_cast<std::uint32_t>(std::min(skipped, sequence.prompt_tokens));
  }
  sequence.state = Sequence::State::Running;
  running_.push_back(&sequence);
  if (sequence.awaits_kv) {
    sequence.observer->on_admitted(sequence);
  } else {
    schedule(sequence, tokens, load);
  }
  return true;
}

bool Scheduler::grow(Sequence& sequence, std::size_t tokens) {
  const std::size_t size = pool_.block_size();
  const std::size_t needed = (sequence.computed + tokens + size - 1) / size;
  const std::size_t held = sequence.blocks.size();
  return needed <= held || pool_.allocate(needed - held, sequence.blocks);
}

void Scheduler::schedule(Sequence& sequence, std::size_t tokens, Load& load) {
  load.budget -= std::min(tokens, load.budget);
  const bool prompt_done = sequence.generated() > 0 || sequence.prompt_arrives;
  if (prompt_done && tokens == 1 && sequence.computed + 1 == sequence.tokens.size()) {
    load.decoding = true;
    load.active_tokens += sequence.tokens.size();
  } else {
    load.prefill_tokens += tokens;
  }
  publish(sequence, tokens);
  scheduled_.push_back({&sequence, tokens});
}

// Blocks become readable when the step that fills them is planned, as in vLLM.
void Scheduler::publish(Sequence& sequence, std::size_t tokens) {
  std::size_t known = sequence.computed + tokens;
  if (options_.output_stored_at_end) {
    known = std::min(known, sequence.prompt_tokens);
  }
  store(sequence, known / pool_.block_size());
}

void Scheduler::extend_hashes(Sequence& sequence) const {
  if (pool_.hashing() == BlockHashing::Sha256) {
    extend_page_hashes(sequence.hashes, sequence.page_digest, sequence.tokens, pool_.block_size(),
                       sequence.cache_key.lora);
  } else {
    extend_block_hashes(sequence.hashes, sequence.tokens, pool_.block_size(), sequence.cache_key);
  }
}

void Scheduler::store(Sequence& sequence, std::size_t full) {
  if (full > sequence.stored_blocks) {
    extend_hashes(sequence);
    pool_.store(sequence.blocks, sequence.hashes, sequence.tokens, sequence.stored_blocks, full,
                sequence.cache_key);
    sequence.stored_blocks = full;
  }
}

void Scheduler::finish_step(Nanos now) {
  in_step_ = false;
  // Observers may remove any sequence, which clears its entry.
  for (Scheduled& entry : scheduled_) {
    if (Sequence* sequence = entry.sequence) {
      sequence->computed += entry.tokens;
      if (sequence->computed == sequence->tokens.size()) {
        entry.sequence = nullptr;
        emit(*sequence, now);
      }
    }
  }
  scheduled_.clear();
}

void Scheduler::emit(Sequence& sequence, Nanos now) {
  const StepOutput output = draw(sequence);
  if (output.token) {
    sequence.tokens.push_back(*output.token);
  }
  if (output.finish != FinishReason::None) {
    if (sequence.keep_blocks) {
      if (options_.output_stored_at_end) {
        store(sequence, sequence.computed / pool_.block_size());
      }
      sequence.kept = std::move(sequence.blocks);
      sequence.blocks.clear();
    }
    remove(sequence);
  } else if (sequence.interval > Nanos(0)) {
    // On its own grid, unless it fell behind by more than one token.
    const bool on_time = now - sequence.ready_at <= sequence.interval;
    sequence.ready_at = (on_time ? sequence.ready_at : now) + sequence.interval;
  }
  sequence.observer->on_output(sequence, output);
}

std::optional<Nanos> Scheduler::next_ready(Nanos now) const {
  std::optional<Nanos> earliest;
  const auto consider = [&](const Sequence* sequence) {
    const Nanos ready = sequence->ready_at;
    if (!sequence->paused && ready > now && (!earliest || ready < *earliest)) {
      earliest = ready;
    }
  };
  for (const Sequence* sequence : running_) {
    if (!sequence->awaits_kv) {
      consider(sequence);
    }
  }
  if (!held_) {  // who comes for a cache is let in first
    std::ranges::for_each(waiting_, consider);
  }
  return earliest;
}

}  // namespace fairlead::mock
