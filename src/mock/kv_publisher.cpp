#include "mock/kv_publisher.hpp"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <random>
#include <string_view>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "net/zmq.hpp"

namespace fairlead::mock {
namespace {

std::string big_endian(std::uint64_t value) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(value >> shift));
  }
  return bytes;
}

// Of any length, as the real publisher reads it; nothing is below the newest batch then.
std::uint64_t read_start(const std::string& bytes) {
  std::uint64_t value = 0;
  for (const char c : bytes) {
    if (value >> 56 != 0) {
      return UINT64_MAX;
    }
    value = value << 8 | static_cast<unsigned char>(c);
  }
  return value;
}

// A wildcard host stays one, as vLLM reports it; the port becomes the real one.
std::string as_configured(std::string_view wanted, std::string_view bound) {
  constexpr std::string_view kWildcard = "tcp://*:";
  return wanted.starts_with(kWildcard)
             ? std::string(kWildcard) + std::string(bound.substr(bound.rfind(':') + 1))
             : std::string(bound);
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

class KvPublisher::Impl {
 public:
  explicit Impl(const KvPublisherOptions& options)
      : options_(options),
        wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        random_(options.seed) {}

  ~Impl() {
    if (thread_.joinable()) {
      {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
      }
      wake();
      thread_.join();
    }
    close(wake_fd_);
  }

  Result<> start() {
    auto pub = net::zmq::Socket::open(context_, net::zmq::Kind::Pub,
                                      {.send_high_water = options_.high_water});
    if (!pub) {
      return std::unexpected(pub.error());
    }
    pub_ = std::move(*pub);
    auto bound = pub_->bind(options_.endpoint);
    if (!bound) {
      return std::unexpected(bound.error());
    }
    endpoint_ = as_configured(options_.endpoint, *bound);
    if (!options_.replay_endpoint.empty()) {
      // A whole buffer may be asked for at once.
      const int answers = 2 * (static_cast<int>(options_.buffer_steps) + 1);
      auto router =
          net::zmq::Socket::open(context_, net::zmq::Kind::Router, {.send_high_water = answers});
      if (!router) {
        return std::unexpected(router.error());
      }
      router_ = std::move(*router);
      auto replay = router_->bind(options_.replay_endpoint);
      if (!replay) {
        return std::unexpected(replay.error());
      }
      replay_endpoint_ = as_configured(options_.replay_endpoint, *replay);
    }
    thread_ = std::thread([this] { run(); });
    return {};
  }

  void publish(std::vector<KvEvent> events) {
    bool full = false;
    bool was_empty = false;
    {
      const std::lock_guard lock(mutex_);
      full = queue_.size() >= options_.max_queue;
      was_empty = queue_.empty();
      if (!full) {
        queue_.push_back({unix_seconds(), std::move(events)});
        ++accepted_;
      }
    }
    if (full && !std::exchange(overrun_, true)) {
      log::warn("KV events are produced faster than they are published: batches are dropped");
    }
    if (was_empty) {
      wake();
    }
  }

  void set_drop_probability(double probability) { drop_.store(probability); }
  const std::string& endpoint() const { return endpoint_; }
  const std::string& replay_endpoint() const { return replay_endpoint_; }
  std::uint64_t published() const {
    const std::lock_guard lock(mutex_);
    return accepted_;
  }
  std::uint64_t sent() const { return sent_.load(); }

 private:
  struct Pending {
    double time;
    std::vector<KvEvent> events;
  };
  struct Buffered {
    std::uint64_t sequence;
    std::string payload;
  };

  void wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(wake_fd_, &one, sizeof one);
  }

  void run() {
    pthread_setname_np(pthread_self(), "kv-events");
    for (;;) {
      net::zmq::wait(router_.get(), wake_fd_, -1);
      std::uint64_t count = 0;
      [[maybe_unused]] const auto drained = read(wake_fd_, &count, sizeof count);
      std::deque<Pending> batches;
      {
        const std::lock_guard lock(mutex_);
        if (stopping_) {
          return;
        }
        batches.swap(queue_);
      }
      for (const Pending& batch : batches) {
        send(batch);
      }
      if (router_) {
        answer_all();
      }
    }
  }

  void send(const Pending& batch) {
    std::string payload = encode_kv_batch(batch.events, options_.block_size, batch.time,
                                          options_.rank, options_.layout, options_.flavor);
    const std::uint64_t sequence = sent_.load(std::memory_order_relaxed);
    if (!(std::uniform_real_distribution<double>(0, 1)(random_) < drop_.load())) {
      pub_->send({options_.topic, big_endian(sequence), payload});
    }
    if (router_) {
      buffered_bytes_ += payload.size();
      buffer_.push_back({sequence, std::move(payload)});
      while (buffer_.size() > options_.buffer_steps || buffered_bytes_ > options_.buffer_bytes) {
        buffered_bytes_ -= buffer_.front().payload.size();
        buffer_.pop_front();
      }
    }
    sent_.store(sequence + 1);
  }

  void answer_all() {
    while (const auto request = router_->receive()) {
      if (request->size() != 3 || !(*request)[1].empty()) {
        log::warn("ignoring a replay request of {} frames", request->size());
        continue;
      }
      const std::string& peer = (*request)[0];
      const std::uint64_t start = read_start((*request)[2]);
      for (const Buffered& batch : buffer_) {
        if (batch.sequence >= start) {
          answer(peer, options_.topic, batch.sequence, batch.payload);
        }
      }
      answer(peer, "", UINT64_MAX, "");
    }
  }

  void answer(const std::string& peer, const std::string& topic, std::uint64_t sequence,
              const std::string& payload) {
    if (options_.replay_topic) {
      router_->send({peer, "", topic, big_endian(sequence), payload});
    } else {
      router_->send({peer, "", big_endian(sequence), payload});
    }
  }

  KvPublisherOptions options_;
  int wake_fd_;
  net::zmq::Context context_;
  std::unique_ptr<net::zmq::Socket> pub_;
  std::unique_ptr<net::zmq::Socket> router_;
  std::string endpoint_;
  std::string replay_endpoint_;
  std::atomic<double> drop_{0};
  std::atomic<std::uint64_t> sent_{
      0};                 // the next batch's number; only the publisher's thread sets it
  bool overrun_ = false;  // publishing thread only

  // The publisher's thread only.
  std::mt19937_64 random_;
  std::deque<Buffered> buffer_;
  std::size_t buffered_bytes_ = 0;

  mutable std::mutex mutex_;
  std::uint64_t accepted_ = 0;  // batches; guarded
  std::deque<Pending> queue_;   // guarded by mutex_
  bool stopping_ = false;       // guarded by mutex_
  std::thread thread_;
};

KvPublisher::KvPublisher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KvPublisher::~KvPublisher() = default;

Result<std::unique_ptr<KvPublisher>> KvPublisher::start(const KvPublisherOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  if (auto started = impl->start(); !started) {
    return std::unexpected(started.error());
  }
  return std::unique_ptr<KvPublisher>(new KvPublisher(std::move(impl)));
}

void KvPublisher::publish(std::vector<KvEvent> events) {
  if (!events.empty()) {
    impl_->publish(std::move(events));
  }
}

void KvPublisher::set_drop_probability(double probability) {
  impl_->set_drop_probability(probability);
}
const std::string& KvPublisher::endpoint() const { return impl_->endpoint(); }
const std::string& KvPublisher::replay_endpoint() const { return impl_->replay_endpoint(); }
std::uint64_t KvPublisher::published() const { return impl_->published(); }
std::uint64_t KvPublisher::sent() const { return impl_->sent(); }

}  // namespace fairlead::mock
