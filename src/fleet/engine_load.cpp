#include "fleet/engine_load.hpp"

#include <cmath>
#include <utility>

namespace fairlead::fleet {

void EngineLoadCounters::collect(observe::TextWriter& writer) const {
  writer.family("engine_load_polls_total", "counter",
                "Questions to engines how full their KV caches are.");
  writer.sample("result=\"success\"", static_cast<double>(answered()));
  writer.sample("result=\"failure\"", static_cast<double>(failed()));
}

net::Task<> EngineLoad::ask(engine::EngineClient& client, std::uint64_t total_blocks) {
  const std::uint64_t before = forgotten_;
  const Result<std::vector<engine::KvUsage>> usage =
      co_await client.kv_usage(net::Reactor::current()->now() + options_.timeout);
  // An answer that tells of no rank is none.
  const bool answered = usage && !usage->empty();
  options_.counters->add(answered);
  if (forgotten_ != before) {
    co_return;
  }
  if (!answered) {
    if (++failures_ >= options_.most_failures) {
      forget();
    }
    co_return;
  }
  failures_ = 0;
  ranks_.clear();
  for (const engine::KvUsage& rank : *usage) {
    ranks_.push_back(rank.rank);
    options_.report(
        id_, rank.rank,
        static_cast<std::uint64_t>(std::llround(rank.share * static_cast<double>(total_blocks))));
  }
}

void EngineLoad::forget() {
  ++forgotten_;
  failures_ = 0;
  for (const std::uint32_t rank : std::exchange(ranks_, {})) {
    options_.report(id_, rank, std::nullopt);
  }
}

}  // namespace fairlead::fleet
