#include "mock/engine_core.hpp"

#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace fairlead::mock {
namespace {

// Work of one turn: enough that a turn's overhead does not count, little enough (some 100 µs) that
// connections are served in between.
constexpr int kStepsPerTurn = 16;
constexpr std::size_t kTokensPerTurn = 4096;
// Sequences that become ready within this time share one wake-up.
constexpr Nanos kReadySlack = std::chrono::microseconds(250);
// A step that begins later than this after its predecessor's end has lost the connection to it.
constexpr Nanos kMaxLag = std::chrono::milliseconds(50);

}  // namespace

EngineCore::EngineCore(net::Reactor& reactor, const SchedulerOptions& scheduler, TimingModel timing,
                       std::unique_ptr<BlockPool> pool, std::unique_ptr<KvPublisher> publisher)
    : reactor_(reactor),
      pool_(std::move(pool)),
      publisher_(std::move(publisher)),
      scheduler_(scheduler, timing, *pool_),
      timer_fd_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)),
      publishes_idle_(scheduler.output_stored_at_end) {
  if (timer_fd_ < 0 || !reactor_.add(timer_fd_, *this)) {
    throw std::system_error(errno, std::system_category(), "cannot create a timer");
  }
  pool_->set_recording(publisher_ != nullptr);
}

EngineCore::~EngineCore() {
  reactor_.remove(timer_fd_, *this);
  close(timer_fd_);
}

void EngineCore::add(Sequence& sequence) {
  scheduler_.add(sequence);
  run_soon();
}

void EngineCore::remove(Sequence& sequence) {
  scheduler_.remove(sequence);
  run_soon();
}

void EngineCore::set_paused(Sequence& sequence, bool paused) {
  sequence.paused = paused;
  if (!paused) {
    run_soon();
  }
}

void EngineCore::release(std::span<const BlockId> blocks) {
  pool_->release(blocks);
  run_soon();
}

void EngineCore::hold(bool admit, bool freeze) {
  scheduler_.hold(!admit);
  frozen_ = freeze;
  run_soon();
}

void EngineCore::run_soon() { reactor_.flush_later(*this); }

void EngineCore::on_io(std::uint32_t) {
  std::uint64_t expirations = 0;
  [[maybe_unused]] const auto bytes = read(timer_fd_, &expirations, sizeof expirations);
  wake_time_ = Nanos(0);
  flush();
}

void EngineCore::flush() {
  tokens_ = 0;
  for (int i = 0; i < kStepsPerTurn && tokens_ < kTokensPerTurn; ++i) {
    if (!run_step(engine_time(net::Clock::now()))) {
      return;
    }
  }
  run_soon();
}

// True when another step can follow at once.
bool EngineCore::run_step(Nanos now) {
  if (frozen_) {
    return false;
  }
  if (!scheduler_.in_step()) {
    const Scheduler::Step step = scheduler_.begin_step(now + kReadySlack);
    if (!step.work) {
      late_ = false;
      if (publishes_idle_) {
        publish();
      }
      if (const auto ready = scheduler_.next_ready(now + kReadySlack)) {
        wake_at(*ready);
      }
      return false;
    }
    publish();
    tokens_ += step.sequences;
    const bool connected = late_ && step.duration > Nanos(0) && now - step_end_ < kMaxLag;
    step_end_ = (connected ? step_end_ : now) + step.duration;
  }
  if (step_end_ > now) {
    wake_at(step_end_);
    return false;
  }
  late_ = true;
  scheduler_.finish_step(now);
  return true;
}

void EngineCore::wake_at(Nanos time) {
  if (std::exchange(wake_time_, time) == time) {
    return;
  }
  itimerspec spec{};
  spec.it_value.tv_sec = time.count() / 1'000'000'000;
  spec.it_value.tv_nsec = time.count() % 1'000'000'000;
  timerfd_settime(timer_fd_, TFD_TIMER_ABSTIME, &spec, nullptr);
}

void EngineCore::publish() {
  if (publisher_) {
    publisher_->publish(pool_->take_events());
  }
}

}  // namespace fairlead::mock
