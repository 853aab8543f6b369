#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "routing/router.hpp"

namespace fairlead::routing {

/// A set of healthy workers 100, 101, … of so many ranks each.
inline std::shared_ptr<fleet::WorkerSet> make_kv_set(std::size_t workers, std::uint32_t ranks = 1) {
  auto set = std::make_shared<fleet::WorkerSet>();
  set->id = 7;
  set->slot_count = workers;
  for (std::size_t slot = 0; slot < workers; ++slot) {
    auto worker = std::make_shared<fleet::Worker>();
    worker->id = 100 + slot;
    worker->slot = slot;
    worker->healthy = true;
    worker->info.data_parallel_size = ranks;
    worker->info.total_kv_blocks = 1000;
    worker->info.max_batched_tokens = 8192;
    set->workers.push_back(std::move(worker));
  }
  return set;
}

/// A prompt of `blocks` full blocks and a tail, known by a number; prompts of one `family` share
/// their first `shared` blocks.
inline std::vector<kv::SequenceHash> make_prompt(std::uint64_t family, std::size_t blocks,
                                                 std::uint64_t number = 0, std::size_t shared = 0) {
  std::vector<kv::LocalHash> locals(blocks);
  for (std::size_t i = 0; i < blocks; ++i) {
    locals[i] = (i < shared || number == 0 ? family : family + (number << 20U)) * 1'000'003 + i;
  }
  std::vector<kv::SequenceHash> out;
  kv::sequence_hashes(locals, out);
  return out;
}

/// What each target of the index stands for when ids are given out by slot, then rank.
inline std::vector<TargetPlace> make_places(const fleet::WorkerSet& set) {
  std::vector<TargetPlace> places;
  for (const auto& worker : set.workers) {
    for (std::uint32_t rank = 0; rank < worker->info.data_parallel_size; ++rank) {
      places.push_back({.worker_id = worker->id,
                        .slot = static_cast<std::uint32_t>(worker->slot),
                        .rank = rank});
    }
  }
  return places;
}

/// A value of the metrics text, or -1.
inline double metric(const Router& router, const std::string& line) {
  std::string text;
  observe::TextWriter writer(text, "p");
  router.collect(writer);
  const auto at = text.find(line + " ");
  return at == std::string::npos ? -1 : std::stod(text.substr(at + line.size() + 1));
}

}  // namespace fairlead::routing
