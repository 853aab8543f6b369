#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/error.hpp"
#include "net/event.hpp"
#include "net/task.hpp"

namespace fairlead::serving {

/// A few threads for work too long for a reactor, with a bounded queue. Destroying it runs no
/// further job and waits for the running ones.
class CpuPool {
 public:
  /// Starts `threads` threads of batch priority; at most `queue_limit` jobs wait.
  CpuPool(std::size_t threads, std::size_t queue_limit);
  CpuPool(const CpuPool&) = delete;
  CpuPool& operator=(const CpuPool&) = delete;
  ~CpuPool();

  /// Runs `job` on the pool and returns its result to the awaiting coroutine's reactor. Overloaded
  /// when the queue is full. The job owns its data: when the awaiting task is destroyed, the job
  /// may still run and its result is dropped.
  template <class F>
  net::Task<Result<std::invoke_result_t<F&>>> run(F job) {
    using T = std::invoke_result_t<F&>;
    struct Shared {
      explicit Shared(F f) : job(std::move(f)), reactor(*net::Reactor::current()) {}
      F job;
      net::Reactor& reactor;
      std::optional<T> result;
      net::Event* done = nullptr;  // reactor's thread only; null when nobody waits any more
    };
    net::Event done;
    auto shared = std::make_shared<Shared>(std::move(job));
    shared->done = &done;
    struct Waiting {
      Shared& shared;
      ~Waiting() { shared.done = nullptr; }
    } waiting{*shared};
    const bool queued = submit([shared] {
      shared->result.emplace(shared->job());
      shared->reactor.post([shared] {
        if (shared->done) {
          shared->done->set();
        }
      });
    });
    if (!queued) {
      co_return fail(ErrorCode::Overloaded, "the queue for large prompts is full");
    }
    co_await done.wait();
    co_return std::move(*shared->result);
  }

 private:
  bool submit(std::move_only_function<void()> job);
  void work();

  std::size_t queue_limit_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::move_only_function<void()>> queue_;  // guarded by mutex_
  bool stopping_ = false;                              // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace fairlead::serving
