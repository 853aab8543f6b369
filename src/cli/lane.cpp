#include "cli/lane.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <utility>

#include "api/error_response.hpp"
#include "engine/client.hpp"

namespace fairlead::cli {
namespace {

constexpr net::Duration kIdleCheck = std::chrono::milliseconds(20);
// A client that keeps a connection open without using it holds the drain up for so long.
constexpr int kIdleChecksWithConnections = 10;

std::uint64_t random_seed() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

}  // namespace

Lane::Lane(std::size_t index, const LaneContext& context, std::latch& all_stopped)
    : context_(context), reactor_(fmt::format("reactor-{}", index)) {
  reactor_.index = static_cast<int>(index);
  reactor_.post([this] { begin(); });
  thread_ = std::thread([this, &all_stopped] { run(all_stopped); });
}

Lane::~Lane() { join(); }

void Lane::run(std::latch& all_stopped) {
  reactor_.run();
  all_stopped.arrive_and_wait();
  reactor_.post([this] { end(); });
  reactor_.run_turn(net::Duration(0));
}

void Lane::begin() {
  const ServeOptions& options = context_.options;
  dialer_ = std::make_unique<net::TcpDialer>(options.limits.socket);
  service_ = std::make_unique<serving::Service>(
      reactor_,
      [this](engine::ClientOptions client) {
        return engine::make_client(*dialer_, std::move(client));
      },
      context_.router, context_.pool, context_.registry, options.service, context_.report);
  service_->set_sessions(context_.sessions);
  api_ = std::make_unique<api::ApiRouter>(*service_, context_.registry, options.api, random_seed());
  server_ =
      std::make_unique<net::http::Server>(api_->handler(), options.limits, api::server_error_body);
  counters_.store(&server_->counters(), std::memory_order_release);
}

void Lane::end() {
  counters_.store(nullptr, std::memory_order_release);
  idle_timer_.reset();
  server_.reset();
  api_.reset();
  service_.reset();
  dialer_.reset();
}

void Lane::accept(int fd) {
  arriving_.fetch_add(1, std::memory_order_relaxed);
  // Owned until the server takes it: a job that is never run must not leak it.
  struct Descriptor {
    explicit Descriptor(int number) : fd(number) {}
    Descriptor(Descriptor&& other) noexcept : fd(std::exchange(other.fd, -1)) {}
    Descriptor& operator=(Descriptor&&) = delete;
    ~Descriptor() {
      if (fd >= 0) {
        close(fd);
      }
    }
    int fd;
  };
  reactor_.post([this, descriptor = Descriptor(fd)]() mutable {
    server_->accept(std::exchange(descriptor.fd, -1));
    arriving_.fetch_sub(1, std::memory_order_relaxed);
  });
}

std::size_t Lane::load() const {
  const net::http::ServerCounters* counters = counters_.load(std::memory_order_acquire);
  return arriving_.load(std::memory_order_relaxed) +
         (counters ? counters->connections_open.load(std::memory_order_relaxed) : 0);
}

void Lane::set_fleet(std::shared_ptr<const fleet::Fleet> fleet, std::function<void()> on_taken) {
  reactor_.post([this, fleet = std::move(fleet), on_taken = std::move(on_taken)]() mutable {
    service_->set_fleet(std::move(fleet));
    on_taken();
  });
}

void Lane::set_kv_views(std::shared_ptr<const routing::KvViewMap> views) {
  reactor_.post(
      [this, views = std::move(views)]() mutable { service_->set_kv_views(std::move(views)); });
}

void Lane::set_assets(std::string name, std::shared_ptr<const serving::ModelContext> assets) {
  reactor_.post([this, name = std::move(name), assets = std::move(assets)]() mutable {
    service_->set_assets(std::move(name), std::move(assets));
  });
}

void Lane::drain(std::function<void()> on_idle) {
  reactor_.post([this, on_idle = std::move(on_idle)]() mutable {
    on_idle_ = std::move(on_idle);
    service_->set_draining();
    server_->drain();
    idle_timer_ = std::make_unique<net::Timer>([this] { check_idle(); });
    check_idle();
  });
}

void Lane::check_idle() {
  idle_checks_ = server_->in_flight() == 0 ? idle_checks_ + 1 : 0;
  const bool idle = idle_checks_ > 0 &&
                    (server_->connections() == 0 || idle_checks_ > kIdleChecksWithConnections);
  if (!idle) {
    idle_timer_->arm(kIdleCheck);
  } else if (on_idle_) {
    std::exchange(on_idle_, nullptr)();
  }
}

void Lane::fail_all(Error error) {
  reactor_.post([this, error = std::move(error)] { api_->fail_all(error); });
}

void Lane::join() {
  if (thread_.joinable()) {
    thread_.join();
  }
}

const net::http::ServerCounters* Lane::counters() const {
  return counters_.load(std::memory_order_acquire);
}

}  // namespace fairlead::cli
