#include "serving/cpu_pool.hpp"

#include <pthread.h>
#include <sched.h>

namespace fairlead::serving {

CpuPool::CpuPool(std::size_t threads, std::size_t queue_limit) : queue_limit_(queue_limit) {
  for (std::size_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { work(); });
  }
}

CpuPool::~CpuPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    queue_.clear();
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

bool CpuPool::submit(std::move_only_function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || queue_.size() >= queue_limit_) {
      return false;
    }
    queue_.push_back(std::move(job));
  }
  wake_.notify_one();
  return true;
}

void CpuPool::work() {
  pthread_setname_np(pthread_self(), "cpu");
  const sched_param none{};
  pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
  while (true) {
    std::move_only_function<void()> job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) {
        return;
      }
      job = std::move(queue_.front());
      queue_.pop_front();
    }
    job();
  }
}

}  // namespace fairlead::serving
