#include "kv_sim/engine.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

namespace fairlead::kv_sim {

bool Engine::fits(const EngineOptions& options, std::uint32_t prompt, std::uint32_t output) {
  return (std::uint64_t{prompt} + output) / options.block_size + 1 <= options.blocks;
}

void Engine::add(Job& job) {
  ++totals_.requests;
  waiting_.push_back(&job);
}

std::optional<Nanos> Engine::begin_step() {
  scheduled_.clear();
  Load load{.budget = options_.step_tokens};
  for (std::size_t i = 0; i < running_.size() && load.budget > 0; ++i) {
    Job& job = *running_[i];
    const std::uint32_t tokens = std::min(job.known() - job.computed, load.budget);
    // The newest gives way. Nothing behind this one is scheduled yet.
    bool fits = grow(job, tokens);
    while (!fits && i < running_.size()) {
      load.preempted = true;
      preempt(*running_.back());
      fits = i < running_.size() && grow(job, tokens);
    }
    if (fits) {
      schedule(job, tokens, load);
    }
  }
  while (!load.preempted && load.budget > 0 && !waiting_.empty() &&
         running_.size() < options_.max_running && admit(*waiting_.front(), load)) {
    waiting_.pop_front();
  }
  if (scheduled_.empty()) {
    return std::nullopt;
  }
  in_step_ = true;
  const StepTime& time = options_.time;
  const double ms =
      time.base_ms + time.prefill_token_ms * load.prefill_tokens +
      time.decode_request_ms * load.decoding +
      time.kv_block_ms * options_.block_size / 16.0 * static_cast<double>(load.decode_blocks);
  const Nanos duration(std::llround(ms * 1e6));
  totals_.busy += duration;
  totals_.computed_tokens += load.prefill_tokens;
  return duration;
}

bool Engine::admit(Job& job, Load& load) {
  // The last token is always computed, for what follows it: a hit never covers everything.
  const std::size_t blocks =
      std::min<std::size_t>(job.hashes.size(), (job.known() - 1) / options_.block_size);
  cache_.acquire_prefix(std::span(job.hashes).first(blocks), job.blocks);
  job.published = static_cast<std::uint32_t>(job.blocks.size());
  job.computed = job.published * options_.block_size;
  const std::uint32_t tokens = std::min(job.known() - job.computed, load.budget);
  if (!grow(job, tokens)) {
    drop_blocks(job);
    return false;
  }
  if (!job.cached) {
    job.cached = job.computed;
  }
  running_.push_back(&job);
  schedule(job, tokens, load);
  return true;
}

bool Engine::grow(Job& job, std::uint32_t tokens) {
  const std::uint32_t needed =
      (job.computed + tokens + options_.block_size - 1) / options_.block_size;
  const auto held = static_cast<std::uint32_t>(job.blocks.size());
  if (needed <= held) {
    return true;
  }
  evicted_.clear();
  if (!cache_.allocate(needed - held, job.blocks, evicted_)) {
    return false;
  }
  if (!evicted_.empty()) {
    events_.push_back({.stored = false, .parent = {}, .blocks = {}, .removed = evicted_});
  }
  return true;
}

void Engine::preempt(Job& job) {
  ++totals_.preemptions;
  std::erase(running_, &job);
  drop_blocks(job);
  waiting_.push_front(&job);
}

void Engine::schedule(Job& job, std::uint32_t tokens, Load& load) {
  load.budget -= tokens;
  if (job.generated > 0 && job.computed + 1 == job.known()) {
    ++load.decoding;
    load.decode_blocks += job.blocks.size();
  } else {
    load.prefill_tokens += tokens;
  }
  publish(job, tokens);
  scheduled_.push_back({&job, tokens});
}

// Blocks can be found from the step on that fills them, as in vLLM.
void Engine::publish(Job& job, std::uint32_t tokens) {
  const std::uint32_t full = (job.computed + tokens) / options_.block_size;
  CacheEvent event;
  const auto flush = [&] {
    if (!event.blocks.empty()) {
      events_.push_back(std::exchange(event, {}));
    }
  };
  for (; job.published < full; ++job.published) {
    const std::uint32_t i = job.published;
    if (i == job.hashes.size()) {  // holds output
      job.locals.push_back(unique_block(job.request, i));
      job.hashes.push_back(i == 0 ? kv::root_hash(job.locals[i])
                                  : kv::extend_hash(job.hashes[i - 1], job.locals[i]));
    }
    const BlockId mine = job.blocks[i];
    job.blocks[i] = cache_.publish(mine, job.hashes[i]);
    if (job.blocks[i] != mine) {
      flush();
      continue;
    }
    if (event.blocks.empty() && i > 0) {
      event.parent = job.hashes[i - 1];
    }
    event.blocks.push_back({.engine = job.hashes[i], .local = job.locals[i]});
  }
  flush();
}

void Engine::drop_blocks(Job& job) {
  cache_.release(job.blocks);
  job.blocks.clear();
  job.computed = 0;
  job.published = 0;
}

void Engine::finish_step(StepOutput& out) {
  in_step_ = false;
  bool ended = false;
  for (const Scheduled& entry : scheduled_) {
    Job& job = *entry.job;
    job.computed += entry.tokens;
    if (job.computed < job.known()) {
      continue;
    }
    ++job.generated;
    out.advanced.push_back(&job);
    if (job.generated >= job.output_tokens) {
      drop_blocks(job);
      ended = true;
    }
  }
  if (ended) {
    std::erase_if(running_, [](const Job* job) { return job->generated >= job->output_tokens; });
  }
  out.events.insert(out.events.end(), std::make_move_iterator(events_.begin()),
                    std::make_move_iterator(events_.end()));
  events_.clear();
}

}  // namespace fairlead::kv_sim
