#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "net/event.hpp"
#include "net/task.hpp"

namespace fairlead::serving {

/// Bounds of a CpuPool.
struct CpuPoolOptions {
  std::size_t threads = 1;                             ///< At least 1.
  std::size_t queue_jobs = 256;                        ///< Jobs that may wait.
  std::size_t queue_bytes = std::size_t{256} << 20;    ///< Of all jobs that wait or run.
  std::size_t large_job_bytes = std::size_t{1} << 20;  ///< Such jobs leave one thread to others.
};

/// A few threads for work too long for a reactor, with a bounded queue. Small jobs go first, but no
/// job lets more bytes that came later overtake it than it has itself. One of several threads never
/// takes large jobs, so that small ones need not wait for them to end. A job whose requester left
/// is taken out of the queue, or told to stop when it runs.
class CpuPool {
 public:
  /// What the pool has to do.
  struct Load {
    std::size_t waiting = 0;  ///< Jobs.
    std::size_t running = 0;  ///< Jobs.
    std::size_t bytes = 0;    ///< Of both.
  };

  /// Starts the threads, of batch priority.
  explicit CpuPool(const CpuPoolOptions& options);
  CpuPool(const CpuPool&) = delete;
  CpuPool& operator=(const CpuPool&) = delete;
  /// Runs no further job, tells the running ones to stop and waits for them. Outlives its waiters.
  ~CpuPool();

  /// Runs `job(stop)` on the pool and returns its result to the awaiting coroutine's reactor.
  /// `bytes` is its size: what it holds in memory and about how long it takes. Overloaded when the
  /// queue is full. The job owns its data; once nobody awaits it any more it is not begun, or
  /// `stop` is requested, and its result is dropped.
  template <class F>
  net::Task<Result<std::invoke_result_t<F&, const std::stop_token&>>> run(std::size_t bytes,
                                                                          F job) {
    using T = std::invoke_result_t<F&, const std::stop_token&>;
    struct Work final : Job {
      Work(std::size_t size, F f) : Job(size), function(std::move(f)) {}
      void work() override {
        result.emplace((*function)(stop.get_token()));
        function.reset();  // what it owns is freed here rather than in the reactor
      }
      std::optional<F> function;
      std::optional<T> result;
    };
    net::Event done;
    const auto work = std::make_shared<Work>(bytes, std::move(job));
    work->done = &done;
    const Waiting waiting{*this, *work};
    if (std::optional<Error> refused = submit(work)) {
      co_return std::unexpected(std::move(*refused));
    }
    co_await done.wait();
    if (work->failure) {
      co_return std::unexpected(std::move(*work->failure));
    }
    co_return std::move(*work->result);
  }

  /// For shutdown: every requester gets `error` at once, running jobs are told to stop, and no
  /// further job is taken. Any thread.
  void cancel_all(const Error& error);
  /// The load now. Any thread.
  Load load() const;

 private:
  struct Job {
    explicit Job(std::size_t size) : bytes(size), reactor(*net::Reactor::current()) {}
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;
    virtual ~Job() = default;
    virtual void work() = 0;

    const std::size_t bytes;
    net::Reactor& reactor;
    std::stop_source stop;
    net::Event* done = nullptr;    // reactor's thread only; null when nobody waits any more
    std::optional<Error> failure;  // reactor's thread only
    std::uint64_t place = 0;       // guarded by the pool's mutex, as is the next
    bool queued = false;
  };
  struct Waiting {
    CpuPool& pool;
    Job& job;
    ~Waiting() {
      job.done = nullptr;
      pool.abandon(job);
    }
  };
  // By place: what had been begun when the job came, plus its own bytes.
  using Queue = std::multimap<std::uint64_t, std::shared_ptr<Job>>;

  std::optional<Error> submit(const std::shared_ptr<Job>& job);
  void abandon(Job& job);
  void work();
  Queue& queue_of(const Job& job) { return job.bytes < options_.large_job_bytes ? small_ : large_; }
  std::shared_ptr<Job> take();

  const CpuPoolOptions options_;
  const std::size_t large_threads_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  // All guarded by mutex_.
  Queue small_;
  Queue large_;
  std::vector<std::shared_ptr<Job>> running_;
  std::size_t running_large_ = 0;
  std::size_t bytes_ = 0;
  std::uint64_t begun_bytes_ = 0;
  std::optional<Error> closed_;  // after cancel_all
  bool stopping_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace fairlead::serving
