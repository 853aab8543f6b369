#include "serving/cpu_pool.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>

namespace fairlead::serving {

CpuPool::CpuPool(const CpuPoolOptions& options)
    : options_(options), large_threads_(std::max<std::size_t>(options.threads, 2) - 1) {
  for (std::size_t i = 0; i < std::max<std::size_t>(options.threads, 1); ++i) {
    threads_.emplace_back([this] { work(); });
  }
}

CpuPool::~CpuPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    small_.clear();
    large_.clear();
    for (const std::shared_ptr<Job>& job : running_) {
      job->stop.request_stop();
    }
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

std::optional<Error> CpuPool::submit(const std::shared_ptr<Job>& job) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) {
      return closed_;
    }
    // A job that is larger than the bound by itself runs when it is alone.
    const bool room = bytes_ == 0 || (job->bytes <= options_.queue_bytes &&
                                      bytes_ <= options_.queue_bytes - job->bytes);
    if (!room || small_.size() + large_.size() >= options_.queue_jobs) {
      return Error{ErrorCode::Overloaded, "the queue for large prompts is full", {}};
    }
    bytes_ += job->bytes;
    job->place = begun_bytes_ + job->bytes;
    job->queued = true;
    queue_of(*job).emplace(job->place, job);
  }
  // All, since not every thread may take it.
  wake_.notify_all();
  return std::nullopt;
}

void CpuPool::abandon(Job& job) {
  job.stop.request_stop();
  const std::lock_guard lock(mutex_);
  if (!job.queued) {
    return;
  }
  Queue& queue = queue_of(job);
  const auto [begin, end] = queue.equal_range(job.place);
  const auto found =
      std::find_if(begin, end, [&](const auto& entry) { return entry.second.get() == &job; });
  if (found != end) {
    queue.erase(found);
    bytes_ -= job.bytes;
    job.queued = false;
  }
}

void CpuPool::cancel_all(const Error& error) {
  std::vector<std::shared_ptr<Job>> jobs;
  {
    const std::lock_guard lock(mutex_);
    closed_ = error;
    jobs = running_;
    for (Queue* queue : {&small_, &large_}) {
      for (auto& [place, job] : *queue) {
        bytes_ -= job->bytes;
        job->queued = false;
        jobs.push_back(std::move(job));
      }
      queue->clear();
    }
  }
  for (std::shared_ptr<Job>& job : jobs) {
    job->stop.request_stop();
    net::Reactor& reactor = job->reactor;
    reactor.post([job = std::move(job), error] {
      if (job->done) {
        job->failure = error;
        job->done->set();
      }
    });
  }
}

CpuPool::Load CpuPool::load() const {
  const std::lock_guard lock(mutex_);
  return {.waiting = small_.size() + large_.size(), .running = running_.size(), .bytes = bytes_};
}

std::shared_ptr<CpuPool::Job> CpuPool::take() {
  const bool may_large = !large_.empty() && running_large_ < large_threads_;
  if (small_.empty() && !may_large) {
    return nullptr;
  }
  Queue& queue = !may_large || (!small_.empty() && small_.begin()->first <= large_.begin()->first)
                     ? small_
                     : large_;
  std::shared_ptr<Job> job = std::move(queue.begin()->second);
  queue.erase(queue.begin());
  job->queued = false;
  begun_bytes_ += job->bytes;
  running_large_ += &queue == &large_ ? 1 : 0;
  running_.push_back(job);
  return job;
}

void CpuPool::work() {
  pthread_setname_np(pthread_self(), "cpu");
  const sched_param none{};
  pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
  std::unique_lock lock(mutex_);
  while (true) {
    std::shared_ptr<Job> job;
    wake_.wait(lock, [&] { return stopping_ || (job = take()); });
    if (!job) {
      return;
    }
    lock.unlock();
    job->work();
    lock.lock();
    bytes_ -= job->bytes;
    const bool large = &queue_of(*job) == &large_;
    running_large_ -= large ? 1 : 0;
    std::erase(running_, job);
    lock.unlock();
    if (large) {
      wake_.notify_all();
    }
    net::Reactor& reactor = job->reactor;
    reactor.post([job = std::move(job)] {
      if (job->done) {
        job->done->set();
      }
    });
    lock.lock();
  }
}

}  // namespace fairlead::serving
