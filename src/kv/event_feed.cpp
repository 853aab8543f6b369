#include "kv/event_feed.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>

#include "kv/feed_source.hpp"
#include "net/zmq.hpp"

namespace fairlead::kv {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxSockets = 65535;
constexpr int kWakeBatch = 64;
// A live socket, its monitor's two ends, a replay socket, and the connections of two of them.
constexpr int kDescriptorsPerSource = 8;

// Running out of descriptors inside the library ends in an abort, so it is looked at before.
Result<> check_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return {};
  }
  const int lowest_free = eventfd(0, EFD_CLOEXEC);
  if (lowest_free >= 0) {
    close(lowest_free);
  }
  if (lowest_free < 0 ||
      static_cast<rlim_t>(lowest_free) + kDescriptorsPerSource > limit.rlim_cur) {
    return fail(ErrorCode::Internal,
                fmt::format("KV events need {} descriptors per source and the limit of {} is "
                            "reached; raise it (ulimit -n)",
                            kDescriptorsPerSource, limit.rlim_cur));
  }
  return {};
}

}  // namespace

// One thread with its sources. Sources come and go through `commands_`.
class Subscription::Thread {
 public:
  explicit Thread(int number)
      : epoll_fd_(epoll_create1(EPOLL_CLOEXEC)),
        wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        thread_([this, number] { run(number); }) {}

  ~Thread() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake();
    thread_.join();
    close(wake_fd_);
    close(epoll_fd_);
  }

  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  void add(FeedSource& source) { post({Command::Kind::Add, &source}); }
  void new_instance(FeedSource& source) { post({Command::Kind::NewInstance, &source}); }

  /// Returns when the thread does not know the source any more.
  void remove(FeedSource& source) {
    std::unique_lock lock(mutex_);
    commands_.push_back({Command::Kind::Remove, &source});
    const std::uint64_t number = ++posted_;
    wake();
    done_changed_.wait(lock, [&] { return done_ >= number; });
  }

  std::size_t sources() const { return count_.load(std::memory_order_relaxed); }

 private:
  struct Command {
    enum class Kind : std::uint8_t { Add, Remove, NewInstance } kind;
    FeedSource* source;
  };
  using Timers = std::set<std::pair<FeedSource::TimePoint, FeedSource*>>;

  void post(const Command& command) {
    {
      const std::lock_guard lock(mutex_);
      commands_.push_back(command);
      ++posted_;
    }
    if (command.kind == Command::Kind::Add) {
      count_.fetch_add(1, std::memory_order_relaxed);
    }
    wake();
  }

  void wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(wake_fd_, &one, sizeof one);
  }

  void run(int number) {
    pthread_setname_np(pthread_self(), fmt::format("kv-feed-{}", number).c_str());
    epoll_event event{};
    event.events = EPOLLIN;
    epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, wake_fd_, &event);
    while (run_commands()) {
      std::array<epoll_event, kWakeBatch> events;
      const int count = epoll_wait(epoll_fd_, events.data(), kWakeBatch, timeout_ms());
      for (int i = 0; i < count; ++i) {
        if (auto* source = static_cast<FeedSource*>(events[static_cast<std::size_t>(i)].data.ptr)) {
          make_ready(*source);
        }
      }
      serve_ready();
      fire_timers();
    }
  }

  int timeout_ms() const {
    if (!ready_.empty()) {
      return 0;
    }
    if (timers_.empty()) {
      return -1;
    }
    const auto left = timers_.begin()->first - Clock::now();
    // Rounded up, so that the timer is due when the wait ends.
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    return static_cast<int>(std::clamp<std::int64_t>(ms, 0, 3'600'000));
  }

  // False when the thread is to end.
  bool run_commands() {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto drained = read(wake_fd_, &count, sizeof count);
    std::deque<Command> commands;
    std::uint64_t posted = 0;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) {
        return false;
      }
      commands.swap(commands_);
      posted = posted_;
    }
    for (const Command& command : commands) {
      run_command(command);
    }
    if (!commands.empty()) {
      const std::lock_guard lock(mutex_);
      done_ = posted;
      done_changed_.notify_all();
    }
    return true;
  }

  void run_command(const Command& command) {
    FeedSource& source = *command.source;
    switch (command.kind) {
      case Command::Kind::Add:
        source.watch(epoll_fd_);
        make_ready(source);
        break;
      case Command::Kind::Remove:
        source.unwatch();
        disarm(source);
        std::erase(ready_, &source);
        count_.fetch_sub(1, std::memory_order_relaxed);
        break;
      case Command::Kind::NewInstance:
        source.new_instance();
        make_ready(source);
        break;
    }
  }

  void make_ready(FeedSource& source) {
    if (std::ranges::find(ready_, &source) == ready_.end()) {
      ready_.push_back(&source);
    }
  }

  // Each source has its turn, so that none waits for another's backlog.
  void serve_ready() {
    for (std::size_t left = ready_.size(); left > 0; --left) {
      FeedSource& source = *ready_.front();
      ready_.pop_front();
      if (source.serve(room_)) {
        ready_.push_back(&source);
      }
      arm(source);
    }
  }

  void fire_timers() {
    const auto now = Clock::now();
    for (std::size_t left = timers_.size();
         left > 0 && !timers_.empty() && timers_.begin()->first <= now; --left) {
      FeedSource& source = *timers_.begin()->second;
      disarm(source);
      // What arrived before the deadline counts, and may move it.
      if (source.deadline() <= now && source.serve(room_)) {
        make_ready(source);
      }
      if (source.deadline() <= now && source.tick()) {
        make_ready(source);
      }
      arm(source);
    }
  }

  // Most deadlines only move away; then the timer fires early and is armed again.
  void arm(FeedSource& source) {
    const auto deadline = source.deadline();
    const auto armed = armed_.find(&source);
    if (deadline == FeedSource::TimePoint::max() ||
        (armed != armed_.end() && armed->second <= deadline)) {
      return;
    }
    disarm(source);
    armed_[&source] = deadline;
    timers_.emplace(deadline, &source);
  }

  void disarm(FeedSource& source) {
    if (const auto armed = armed_.find(&source); armed != armed_.end()) {
      timers_.erase({armed->second, &source});
      armed_.erase(armed);
    }
  }

  int epoll_fd_;
  int wake_fd_;
  std::atomic<std::size_t> count_{0};

  // The thread's own.
  MessageRoom room_;
  std::deque<FeedSource*> ready_;
  Timers timers_;
  std::unordered_map<FeedSource*, FeedSource::TimePoint> armed_;

  std::mutex mutex_;
  std::condition_variable done_changed_;
  std::deque<Command> commands_;  // guarded by mutex_
  std::uint64_t posted_ = 0;      // guarded by mutex_
  std::uint64_t done_ = 0;        // guarded by mutex_
  bool stopping_ = false;         // guarded by mutex_

  std::thread thread_;  // the last: it uses all others
};

Subscription::Subscription(std::shared_ptr<Thread> thread, std::shared_ptr<Count> count,
                           std::shared_ptr<FeedSource> source)
    : thread_(std::move(thread)), count_(std::move(count)), source_(std::move(source)) {
  count_->fetch_add(1, std::memory_order_relaxed);
  thread_->add(*source_);
}

Subscription::~Subscription() {
  thread_->remove(*source_);
  source_->close();
  count_->fetch_sub(1, std::memory_order_relaxed);
}

SourceStatus Subscription::status() const { return source_->status(); }
const RecoveryCounters& Subscription::recovery() const { return source_->recovery_counters(); }
const EventCounters& Subscription::events() const { return source_->event_counters(); }
const EventNormalizer& Subscription::normalizer() const { return source_->normalizer(); }
void Subscription::new_instance() { thread_->new_instance(*source_); }
std::shared_ptr<const CheckpointGiver> Subscription::checkpoints() const { return source_; }

EventFeed::EventFeed(const FeedOptions& options)
    : options_(options),
      context_(std::make_unique<net::zmq::Context>(kMaxSockets)),
      sources_(std::make_shared<Subscription::Count>(0)) {
  for (int i = 0; i < std::max(1, options.threads); ++i) {
    threads_.push_back(std::make_shared<Subscription::Thread>(i));
  }
}

EventFeed::~EventFeed() = default;

Result<std::unique_ptr<Subscription>> EventFeed::subscribe(const SourceSpec& spec, EventSink& sink,
                                                           const std::optional<Checkpoint>& from) {
  if (auto checked = check_descriptors(); !checked) {
    return std::unexpected(checked.error());
  }
  auto source = FeedSource::open(*context_, options_, spec, sink, *sources_, from);
  if (!source) {
    return std::unexpected(source.error());
  }
  const auto thread = std::ranges::min_element(
      threads_, {}, [](const auto& candidate) { return candidate->sources(); });
  return std::unique_ptr<Subscription>(new Subscription(*thread, sources_, std::move(*source)));
}

}  // namespace fairlead::kv
