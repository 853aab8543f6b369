#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "routing/admission_queue.hpp"
#include "routing/kv_route.hpp"

namespace fairlead::routing {

class KvTable;
struct RouteRequest;

/// What a request says about its place in the queue.
struct QueueHints {
  std::string policy_class;           ///< Named by the client; empty or unknown = by its prompt.
  std::int32_t priority = 0;          ///< Higher is more urgent; below 0 counts as 0.
  std::uint32_t strict_priority = 0;  ///< Higher goes first within its class.
};

/// A request that waits, or may have to, until a worker has room for its prompt. Given to
/// Router::choose; leaves the queue when it is destroyed. Used by one thread, but for `wake`.
class KvWaiter : private QueueEntry {
 public:
  /// `wake` tells that the request should choose again, or will soon be refused another time; it is
  /// called by any thread, with locks held: it must only pass the message on.
  KvWaiter(std::string model, QueueHints hints, AdmissionQueue::Clock::time_point arrival,
           std::function<void()> wake)
      : model_(std::move(model)),
        hints_(std::move(hints)),
        arrival_(arrival),
        wake_(std::move(wake)) {}
  KvWaiter(const KvWaiter&) = delete;
  KvWaiter& operator=(const KvWaiter&) = delete;
  ~KvWaiter();

  /// Public name of the base model, which policy classes may go by.
  const std::string& model() const { return model_; }

 private:
  friend class KvTable;
  void note(const RouteRequest& request, const KvRoute& route);

  std::string model_;
  QueueHints hints_;
  AdmissionQueue::Clock::time_point arrival_;
  AdmissionQueue::Clock::time_point queued_at_;  // since when it waits, while it does
  std::function<void()> wake_;
  bool counted_ = false;            // among those that had to wait: once, whatever happens
  std::shared_ptr<KvTable> table_;  // whose queue it was in
  // See RouteRequest and KvRoute, as it asked last.
  std::optional<std::uint64_t> worker_id_;
  std::optional<std::uint32_t> rank_;
  std::optional<TargetRef> bound_;
  std::string adapter_;
  std::vector<std::uint64_t> excluded_;
  std::vector<std::string> required_taints_;
  std::vector<std::uint64_t> allowed_;
};

}  // namespace fairlead::routing
