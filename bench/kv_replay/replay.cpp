#include "kv_replay/replay.hpp"

#include <time.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <thread>
#include <tuple>

#include "kv/index.hpp"

namespace fairlead::kv_replay {
namespace {

using Clock = std::chrono::steady_clock;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

struct Share {
  std::vector<const Operation*> operations;
  std::vector<float> find_us;
  Report counts;
};

class Player {
 public:
  Player(kv::KvIndex& index, const std::vector<kv::TargetId>& targets, Share& share)
      : index_(index), targets_(targets), share_(share) {}

  void play(Clock::time_point start, double factor) {
    const double cpu = cpu_seconds();
    for (const Operation* const operation : share_.operations) {
      if (factor > 0) {
        wait(start + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double, std::milli>(operation->time_ms * factor)));
      }
      apply(*operation);
    }
    share_.counts.cpu_seconds = cpu_seconds() - cpu;
  }

 private:
  void wait(Clock::time_point due) {
    const Clock::time_point now = Clock::now();
    if (now < due) {
      std::this_thread::sleep_until(due);
      return;
    }
    share_.counts.latest_ms = std::max(
        share_.counts.latest_ms, std::chrono::duration<double, std::milli>(now - due).count());
  }

  void apply(const Operation& operation) {
    Report& counts = share_.counts;
    const kv::TargetId target = targets_[operation.worker];
    switch (operation.kind) {
      case Operation::Kind::Find: {
        const Clock::time_point start = Clock::now();
        hashes_.clear();
        kv::sequence_hashes(operation.prompt, hashes_);
        index_.find(hashes_, found_);
        share_.find_us.push_back(
            std::chrono::duration<float, std::micro>(Clock::now() - start).count());
        ++counts.finds;
        counts.query_blocks += operation.prompt.size();
        const auto best = std::ranges::max_element(found_, {}, &kv::Overlap::device);
        counts.matched_blocks += best == found_.end() ? 0 : best->device;
        break;
      }
      case Operation::Kind::Store:
        ++counts.events;
        counts.stored_blocks += operation.stored.size();
        counts.failed += index_.store(target, kv::Tier::Device, operation.parent,
                                      operation.stored) == kv::StoreOutcome::Stored
                             ? 0U
                             : 1U;
        break;
      case Operation::Kind::Remove:
        ++counts.events;
        counts.removed_blocks += operation.removed.size();
        index_.remove(target, kv::Tier::Device, operation.removed);
        break;
    }
  }

  kv::KvIndex& index_;
  const std::vector<kv::TargetId>& targets_;
  Share& share_;
  std::vector<kv::SequenceHash> hashes_;
  std::vector<kv::Overlap> found_;
};

}  // namespace

Report replay(const std::vector<std::vector<Operation>>& workload, std::size_t threads,
              double window_ms) {
  kv::KvIndex index({.max_targets = workload.size()});
  std::vector<kv::TargetId> targets;
  std::vector<Share> shares(threads);
  double end = 1;
  for (std::size_t worker = 0; worker < workload.size(); ++worker) {
    targets.push_back(*index.add_target());
    for (const Operation& operation : workload[worker]) {
      shares[worker % threads].operations.push_back(&operation);
      end = std::max(end, operation.time_ms);
    }
  }
  for (Share& share : shares) {
    std::ranges::sort(share.operations, {}, [](const Operation* operation) {
      return std::tuple(operation->time_ms, operation->worker, operation->order);
    });
    share.find_us.reserve(share.operations.size());
  }
  Clock::time_point start;
  std::barrier together(static_cast<std::ptrdiff_t>(threads),
                        [&start]() noexcept { start = Clock::now(); });
  std::vector<std::thread> running;
  for (Share& share : shares) {
    running.emplace_back([&] {
      Player player(index, targets, share);
      together.arrive_and_wait();
      player.play(start, window_ms / end);
    });
  }
  for (std::thread& thread : running) {
    thread.join();
  }
  Report report;
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::vector<float> find_us;
  for (const Share& share : shares) {
    report.finds += share.counts.finds;
    report.events += share.counts.events;
    report.query_blocks += share.counts.query_blocks;
    report.matched_blocks += share.counts.matched_blocks;
    report.stored_blocks += share.counts.stored_blocks;
    report.removed_blocks += share.counts.removed_blocks;
    report.failed += share.counts.failed;
    report.cpu_seconds += share.counts.cpu_seconds;
    report.latest_ms = std::max(report.latest_ms, share.counts.latest_ms);
    find_us.insert(find_us.end(), share.find_us.begin(), share.find_us.end());
  }
  std::ranges::sort(find_us);
  if (!find_us.empty()) {
    report.find_p50_us = static_cast<double>(find_us[find_us.size() / 2]);
    report.find_p99_us = static_cast<double>(find_us[find_us.size() * 99 / 100]);
  }
  const kv::IndexStats stats = index.stats();
  report.held_blocks = stats.held_blocks;
  report.index_bytes = stats.bytes;
  return report;
}

}  // namespace fairlead::kv_replay
