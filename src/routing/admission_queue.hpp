#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "routing/policy_classes.hpp"
#include "routing/queue_stats.hpp"

namespace fairlead::routing {

class AdmissionQueue;

/// What decides a request's place in a queue; fixed when it is added.
struct QueueDemand {
  std::size_t policy_class = 0;       ///< Index in the profile.
  std::uint32_t prompt_tokens = 0;    ///< All of them.
  std::uint32_t cached_tokens = 0;    ///< Of them at the best target it may go to; a pinned
                                      ///< request's is its worker. More than the prompt = all.
  std::int32_t priority = 0;          ///< Higher is more urgent; below 0 counts as 0.
  std::uint32_t strict_priority = 0;  ///< Higher goes first within the class, whatever the policy.

  /// Tokens to compute.
  std::uint32_t uncached_tokens() const {
    return prompt_tokens > cached_tokens ? prompt_tokens - cached_tokens : 0;
  }
  /// What its turn is charged; never nothing.
  std::uint32_t cost() const { return uncached_tokens() > 0 ? uncached_tokens() : 1; }
};

/// A request in a queue. Part of whatever waits; the queue keeps its address and owns nothing. When
/// it is destroyed it leaves its queue, so the queue's lock must be held then, unless it has left
/// before.
class QueueEntry {
 public:
  /// Where it is.
  enum class State : std::uint8_t {
    Out,      ///< In no queue.
    Waiting,  ///< In its place.
    Trying,   ///< Handed out by `next`, and neither done nor given back.
  };

  QueueEntry() = default;
  QueueEntry(const QueueEntry&) = delete;
  QueueEntry& operator=(const QueueEntry&) = delete;
  ~QueueEntry();

  /// Where it is now.
  State state() const { return state_; }
  /// What it was added with.
  const QueueDemand& demand() const { return demand_; }
  /// When its request arrived.
  std::chrono::steady_clock::time_point arrival() const { return arrival_; }

 private:
  friend class AdmissionQueue;

  AdmissionQueue* queue_ = nullptr;
  QueueDemand demand_;
  std::chrono::steady_clock::time_point arrival_;
  double key_ = 0;
  std::uint64_t sequence_ = 0;
  std::size_t position_ = 0;  // in its class's heap while waiting
  State state_ = State::Out;
};

/// The requests that wait for a worker of one set, by policy class. No thread, clock or I/O of its
/// own; its owner locks.
///
/// Within a class the highest (strict priority, key) goes first, with j = max(priority, 0) and t =
/// seconds from the queue's start to the arrival: fcfs j - t, lcfs j + t, wspt (1 + j) / cost.
/// Among equals it is the one added first, with lcfs last.
///
/// Between classes a cursor goes round (deficit round robin). The class under it goes on as long as
/// its credit covers the cost of its first request, which is then taken off the credit. Otherwise
/// the cursor moves on, and the class it comes to gets its quantum added. A class whose first
/// request may not go is passed without a quantum, and nobody behind that one is tried. Rounds in
/// which no credit suffices are counted in one step. A class that is empty loses its credit. So
/// classes that always have work are served uncached tokens in proportion to their quanta, and any
/// first request that may go does so after at most ceil(cost / quantum) rounds.
///
/// How the owner uses it, all under the lock that also guards the loads:
///
/// - A request arrives: when its class `queues()` and `backlog(class)` or `pool_busy`, `add`; else
///   it is routed at once. So nobody passes those that wait in the same class.
/// - Capacity frees (a prefill is complete, a booking is released, the fleet or thresholds change,
///   an entry is done or removed while it was tried): `next(may_go)` until it returns null.
///   `may_go` counts the busy ones of the targets the request may go to; to prevent that many are
///   let go for one place, it counts `trying()` as load, or lets go one at a time.
/// - The entry is told, and chooses again. When it is booked: `done`. When all are busy after all:
///   `give_back`, and it waits at its old place for the next occasion.
/// - The client leaves: `remove`, in any state.
class AdmissionQueue {
 public:
  /// What times are told by.
  using Clock = std::chrono::steady_clock;
  /// Whether the first entry of a class may go now. Asked at most once per class and call.
  using MayGo = std::function<bool(const QueueEntry&)>;

  /// What a class holds, entries that are being tried included.
  struct Load {
    std::size_t requests = 0;         ///< Entries.
    std::size_t trying = 0;           ///< Of them, those being tried.
    std::uint64_t prompt_tokens = 0;  ///< Of all.
    std::uint64_t cached_tokens = 0;  ///< Of all.
    /// Entries refused, ever, by the limit they met.
    std::array<std::uint64_t, static_cast<std::size_t>(QueueLimit::kCount)> refused{};
  };

  /// `limit` bounds the entries of all classes together; `start` is where arrivals count from.
  AdmissionQueue(std::shared_ptr<const PolicyProfile> profile, std::size_t limit,
                 Clock::time_point start);
  AdmissionQueue(const AdmissionQueue&) = delete;
  AdmissionQueue& operator=(const AdmissionQueue&) = delete;
  /// Entries left are in no queue then.
  ~AdmissionQueue();

  /// Adds an entry that is in no queue. QueueFull when what is there has reached a limit of its
  /// class, times `workers`, or the limit of all; so the entry that crosses a limit of tokens is
  /// still added. Keeps its address until it leaves.
  Result<> add(QueueEntry& entry, const QueueDemand& demand, Clock::time_point arrival,
               std::size_t workers);
  /// The entry whose turn it is, now being tried; null when none may go.
  QueueEntry* next(const MayGo& may_go);
  /// The same when all may go.
  QueueEntry* next();
  /// Puts an entry that is being tried back to its place, with its key, and gives its class the
  /// credit back. With nothing else in between the next turn is its own again.
  void give_back(QueueEntry& entry);
  /// An entry that was being tried has got its worker: it leaves.
  void done(QueueEntry& entry);
  /// The entry leaves, whatever its state; when it was being tried, its class gets the credit back.
  /// O(log n).
  void remove(QueueEntry& entry);

  /// True when a class has entries: new requests of it have to wait behind them.
  bool backlog(std::size_t policy_class) const { return classes_[policy_class].load.requests > 0; }
  /// What a class holds.
  const Load& load(std::size_t policy_class) const { return classes_[policy_class].load; }
  /// Entries of all classes.
  std::size_t size() const { return size_; }
  /// Of them, those being tried.
  std::size_t trying() const { return trying_; }
  /// The classes; never null.
  const std::shared_ptr<const PolicyProfile>& profile() const { return profile_; }

 private:
  struct Class {
    std::vector<QueueEntry*> heap;  // waiting ones; the first is the next
    std::uint64_t credit = 0;
    Load load;
    std::uint64_t asked = 0;  // call of `next` that `may_go` is of
    bool may_go = false;
  };

  QueueEntry* candidate(Class& of, const MayGo& may_go);
  QueueEntry* take(Class& of);
  void retract(QueueEntry& entry);
  void leave(QueueEntry& entry);
  bool before(const QueueEntry& a, const QueueEntry& b) const;
  void push(Class& to, QueueEntry& entry);
  void erase(Class& from, QueueEntry& entry);
  void rise(Class& in, std::size_t position);
  void sink(Class& in, std::size_t position);

  const std::shared_ptr<const PolicyProfile> profile_;
  const std::size_t limit_;
  const Clock::time_point start_;
  std::vector<Class> classes_;
  std::size_t cursor_;
  std::size_t size_ = 0;
  std::size_t trying_ = 0;
  std::uint64_t added_ = 0;
  std::uint64_t calls_ = 0;
  std::vector<QueueEntry*> tried_;  // those being tried
};

}  // namespace fairlead::routing
