#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "kv_testing.hpp"
#include "routing/kv_waiter.hpp"
#include "routing/router.hpp"

namespace fairlead::routing {

/// A router in kv mode whose requests wait beyond this multiple of a step.
inline RouterOptions queue_options(double threshold, std::size_t limit = 100) {
  RouterOptions out{.mode = RouterMode::Kv, .seed = 1};
  out.policies = std::make_shared<const PolicyConfig>(
      QueueOptions{.threshold = threshold, .policy = QueuePolicy::Fcfs, .limit = limit});
  out.queue_limit = limit;
  return out;
}

/// A fleet of one model without a name.
inline fleet::Fleet fleet_of(const std::shared_ptr<const fleet::WorkerSet>& set) {
  auto model = std::make_shared<fleet::Model>();
  model->worker_sets = {set};
  fleet::Fleet out;
  out.models.push_back(std::move(model));
  return out;
}

/// A request of 100 blocks that may wait.
struct Waiting {
  explicit Waiting(QueueHints hints = {})
      : waiter("m", std::move(hints), AdmissionQueue::Clock::now(), [this] { ++woken; }) {}

  Result<Reservation> choose(Router& router, const std::shared_ptr<const fleet::WorkerSet>& set,
                             const RouteRequest& request = {},
                             std::optional<TargetRef> bound = {}) {
    return router.choose(
        set, request,
        {.prompt_tokens = 10'000, .block_size = 16, .expected_output = {}, .preferred = bound},
        &waiter);
  }

  std::atomic<int> woken{0};
  KvWaiter waiter;
};

}  // namespace fairlead::routing
