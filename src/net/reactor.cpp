#include "net/reactor.hpp"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

namespace fairlead::net {
namespace {

constexpr int kEventBatch = 256;
// Coroutines resumed per turn before sockets are looked at again.
constexpr int kReadyBatch = 4096;
constexpr Duration kLongestWait = std::chrono::seconds(1);

thread_local Reactor* current_reactor = nullptr;

}  // namespace

struct Reactor::Pending {
  std::array<epoll_event, kEventBatch> events;
  int count = 0;
  int next = 0;
};

void Timer::arm_at(TimePoint deadline) { Reactor::current()->timers().insert(*this, deadline); }

void Timer::arm(Duration delay) { arm_at(Reactor::current()->now() + delay); }

TimerWheel::TimerWheel(TimePoint start)
    : start_(start), slots_(std::make_unique<IntrusiveList<Timer, Timer>[]>(kSlots)) {}

std::int64_t TimerWheel::tick_of(TimePoint time) const { return (time - start_) / kTick; }

void TimerWheel::insert(Timer& timer, TimePoint deadline) {
  timer.unlink();
  // Rounded up, so that a timer never fires early; a deadline may be TimePoint::max().
  const TimePoint rounded = std::min(deadline, TimePoint::max() - kTick) + kTick - Duration(1);
  timer.tick_ = std::max(tick_of(rounded), current_ + 1);
  slots_[static_cast<std::size_t>(timer.tick_) % kSlots].push_back(timer);
}

void TimerWheel::advance(TimePoint now) {
  const std::int64_t target = tick_of(now);
  const std::int64_t rounds = std::min<std::int64_t>(target - current_, kSlots);
  const std::int64_t first = target - rounds + 1;
  current_ = std::max(current_, target);
  for (std::int64_t tick = first; tick <= target; ++tick) {
    auto& slot = slots_[static_cast<std::size_t>(tick) % kSlots];
    IntrusiveList<Timer, Timer> due;
    slot.for_each([&](Timer& timer) {
      if (timer.tick_ <= target) {
        timer.unlink();
        due.push_back(timer);
      }
    });
    while (!due.empty()) {
      due.pop_front().callback_();
    }
  }
}

Duration TimerWheel::until_next(TimePoint now, Duration limit) const {
  const std::int64_t last = std::min<std::int64_t>(current_ + limit / kTick + 1, current_ + kSlots);
  for (std::int64_t tick = current_ + 1; tick <= last; ++tick) {
    if (!slots_[static_cast<std::size_t>(tick) % kSlots].empty()) {
      return std::clamp(start_ + tick * kTick - now, Duration(0), limit);
    }
  }
  return limit;
}

Reactor::Reactor(std::string name)
    : name_(std::move(name)),
      epoll_fd_(epoll_create1(EPOLL_CLOEXEC)),
      event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      now_(Clock::now()),
      timers_(now_),
      pending_(std::make_unique<Pending>()) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  if (epoll_fd_ < 0 || event_fd_ < 0 ||
      epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, event_fd_, &event) != 0) {
    throw std::system_error(errno, std::system_category(), "cannot create an event loop");
  }
}

Reactor::~Reactor() {
  Reactor* const former = std::exchange(current_reactor, this);
  posted_.clear();
  clear_graveyard();
  current_reactor = former == this ? nullptr : former;
  close(event_fd_);
  close(epoll_fd_);
}

Reactor* Reactor::current() { return current_reactor; }

void Reactor::run() {
  pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());
  while (!stopping_.load(std::memory_order_relaxed)) {
    run_turn(kLongestWait);
  }
  stopping_.store(false, std::memory_order_relaxed);
}

void Reactor::run_turn(Duration max_wait) {
  Reactor* const former = std::exchange(current_reactor, this);
  const bool busy = !ready_.empty() || !dirty_.empty();
  wait(busy ? Duration(0) : timers_.until_next(Clock::now(), max_wait));
  now_ = Clock::now();
  while (pending_->next < pending_->count) {
    const epoll_event& event = pending_->events[static_cast<std::size_t>(pending_->next++)];
    if (event.data.ptr) {
      static_cast<IoHandler*>(event.data.ptr)->on_io(event.events);
    }
  }
  pending_->count = pending_->next = 0;
  run_posted();
  run_ready();
  timers_.advance(now_);
  run_ready();
  flush_dirty();
  clear_graveyard();
  current_reactor = former;
}

void Reactor::wait(Duration max_wait) {
  // Rounded up: a wait that ends just before its timer would spin.
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(max_wait).count();
  const int count =
      epoll_wait(epoll_fd_, pending_->events.data(), kEventBatch, static_cast<int>(milliseconds));
  pending_->count = std::max(count, 0);  // EINTR: a turn without events
  pending_->next = 0;
  for (int i = 0; i < pending_->count; ++i) {
    if (pending_->events[static_cast<std::size_t>(i)].data.ptr == nullptr) {
      std::uint64_t drained = 0;
      [[maybe_unused]] const auto bytes = read(event_fd_, &drained, sizeof drained);
    }
  }
}

void Reactor::stop() {
  stopping_.store(true, std::memory_order_relaxed);
  wake();
}

void Reactor::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto bytes = write(event_fd_, &one, sizeof one);
}

void Reactor::post(std::move_only_function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(job));
  }
  if (!woken_.exchange(true, std::memory_order_acq_rel)) {
    wake();
  }
}

void Reactor::run_posted() {
  if (!woken_.exchange(false, std::memory_order_acq_rel)) {
    return;
  }
  std::vector<std::move_only_function<void()>> jobs;
  {
    const std::lock_guard lock(mutex_);
    jobs.swap(posted_);
  }
  for (auto& job : jobs) {
    job();
  }
}

void Reactor::run_ready() {
  for (int i = 0; i < kReadyBatch && !ready_.empty(); ++i) {
    ready_.pop_front().handle.resume();
  }
}

void Reactor::flush_dirty() {
  IntrusiveList<Flushable, Flushable> batch;
  batch.splice(dirty_);
  while (!batch.empty()) {
    batch.pop_front().flush();
  }
}

void Reactor::clear_graveyard() {
  // What is destroyed may bury more.
  while (!graveyard_.empty()) {
    std::vector<Buried> batch;
    batch.swap(graveyard_);
    batch.clear();
    if (graveyard_.empty()) {
      graveyard_.swap(batch);  // keeps the capacity
    }
  }
}

bool Reactor::add(int fd, IoHandler& handler) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = &handler;
  return epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) == 0;
}

void Reactor::remove(int fd, IoHandler& handler) {
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
  for (int i = pending_->next; i < pending_->count; ++i) {
    auto& event = pending_->events[static_cast<std::size_t>(i)];
    if (event.data.ptr == &handler) {
      event.data.ptr = nullptr;
    }
  }
}

}  // namespace fairlead::net
