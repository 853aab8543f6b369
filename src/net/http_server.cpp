#include "net/http_server.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>
#include <vector>

#include "net/server_connection.hpp"

namespace fairlead::net::http {
namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr std::size_t kReadBuffer = 64 * 1024;
constexpr std::size_t kBodiesByDefault = std::size_t{1} << 30;

std::string format_date(std::time_t seconds) {
  static constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm time{};
  gmtime_r(&seconds, &time);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT",
                     kDays[static_cast<std::size_t>(time.tm_wday)], time.tm_mday,
                     kMonths[static_cast<std::size_t>(time.tm_mon)], time.tm_year + 1900,
                     time.tm_hour, time.tm_min, time.tm_sec);
}

}  // namespace

TimePoint ServerLimits::body_deadline(TimePoint deadline, std::size_t bytes, TimePoint now) const {
  if (bytes == 0) {
    return deadline;
  }
  const TimePoint latest = now + body_timeout;
  if (body_min_rate == 0) {
    return latest;
  }
  const std::chrono::duration<double> bought(static_cast<double>(bytes) /
                                             static_cast<double>(body_min_rate));
  return bought >= body_timeout
             ? latest
             : std::min(latest, deadline + std::chrono::duration_cast<Duration>(bought));
}

std::string_view ServerContext::date() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  if (now.tv_sec != date_second_) {
    date_second_ = now.tv_sec;
    date_ = format_date(now.tv_sec);
  }
  return date_;
}

// Owns the connections. Those that are over wait in `dead_` for the end of the turn, since their
// handlers may be on the stack; they are this object's all the same, so that none outlives it.
class Server::Impl {
 public:
  Impl(Handler handler, ServerLimits limits, ErrorBody error_body)
      : buffer_(std::make_unique<char[]>(kReadBuffer)), alive_(std::make_shared<Impl*>(this)) {
    context.handler = std::move(handler);
    context.limits = std::move(limits);
    if (!context.limits.bodies) {
      context.limits.bodies = std::make_shared<BodyBudget>(kBodiesByDefault);
    }
    context.error_body = std::move(error_body);
    context.closed = [this](ServerConnection& connection) { closed(connection); };
    context.read_buffer = {buffer_.get(), kReadBuffer};
  }

  ~Impl() {
    *alive_ = nullptr;
    while (!open_.empty()) {
      const std::unique_ptr<ServerConnection> connection(&open_.pop_front());
    }
  }

  void open(std::unique_ptr<Stream> stream);
  void chosen(ServerConnection& sniffer, std::unique_ptr<Stream> stream, std::string received,
              bool http2);

  void closed(ServerConnection& connection) {
    bury(connection);
    --count;
    bump(context.counters.connections_open, -1);
  }

  template <class F>
  void for_each(F&& visit) {
    open_.for_each(visit);
  }

  ServerContext context;
  std::size_t count = 0;

 private:
  struct Reaper {
    std::shared_ptr<Impl*> server;
    ~Reaper() {
      if (*server) {
        const auto dead = std::exchange((*server)->dead_, {});
      }
    }
  };

  void take(std::unique_ptr<ServerConnection> connection) {
    ServerConnection& added = *connection;
    open_.push_back(*connection.release());
    added.start();
  }

  void bury(ServerConnection& connection) {
    connection.unlink();
    if (dead_.empty()) {
      Reactor::current()->destroy_later(std::make_unique<Reaper>(alive_));
    }
    dead_.emplace_back(&connection);
  }

  std::unique_ptr<char[]> buffer_;
  std::shared_ptr<Impl*> alive_;
  std::vector<std::unique_ptr<ServerConnection>> dead_;
  IntrusiveList<ServerConnection, ServerConnection> open_;
};

namespace {

// A connection whose protocol is not known yet: HTTP/2 when it begins with the preface.
template <class Owner>
class Sniffer final : public ServerConnection, private StreamHandler {
 public:
  Sniffer(Owner& owner, std::unique_ptr<Stream> stream)
      : owner_(owner), stream_(std::move(stream)), timer_([this] { close(); }) {}

  void start() override {
    timer_.arm(owner_.context.limits.idle_timeout);
    stream_->set_handler(this);
    on_readable();
  }

  void drain() override {
    if (received_.empty()) {
      close();
    }
  }

  std::size_t in_flight() const override { return 0; }

 private:
  void on_readable() override {
    while (stream_) {
      const std::span<char> buffer = owner_.context.read_buffer;
      const IoResult result = stream_->read(buffer);
      if (result.status == IoResult::Status::WouldBlock) {
        return;
      }
      if (result.status != IoResult::Status::Ok) {
        close();
        return;
      }
      look_at({buffer.data(), result.bytes});
    }
  }

  void look_at(std::string_view bytes) {
    if (received_.empty()) {
      timer_.arm(owner_.context.limits.header_timeout);
    }
    received_.append(bytes);
    const bool http2 = received_.starts_with(kPreface);
    if (http2 || !kPreface.starts_with(received_)) {
      timer_.cancel();
      stream_->set_handler(nullptr);
      owner_.chosen(*this, std::move(stream_), std::move(received_), http2);
    }
  }

  void on_writable() override {}

  void close() {
    timer_.cancel();
    stream_.reset();
    owner_.context.closed(*this);
  }

  Owner& owner_;
  std::unique_ptr<Stream> stream_;
  std::string received_;
  Timer timer_;
};

}  // namespace

void Server::Impl::open(std::unique_ptr<Stream> stream) {
  ++count;
  bump(context.counters.connections_total);
  bump(context.counters.connections_open);
  take(std::make_unique<Sniffer<Impl>>(*this, std::move(stream)));
}

void Server::Impl::chosen(ServerConnection& sniffer, std::unique_ptr<Stream> stream,
                          std::string received, bool http2) {
  bury(sniffer);
  const auto make = http2 ? make_http2_connection : make_http1_connection;
  take(make(context, std::move(stream), std::move(received)));
}

Server::Server(Handler handler, ServerLimits limits, ErrorBody error_body)
    : impl_(std::make_unique<Impl>(std::move(handler), std::move(limits), std::move(error_body))) {}

Server::~Server() = default;

void Server::accept(int fd) { accept(make_socket_stream(fd, impl_->context.limits.socket)); }

void Server::accept(std::unique_ptr<Stream> stream) { impl_->open(std::move(stream)); }

void Server::drain() {
  impl_->context.draining = true;
  impl_->for_each([](ServerConnection& connection) { connection.drain(); });
}

std::size_t Server::connections() const { return impl_->count; }

std::size_t Server::in_flight() const {
  std::size_t out = 0;
  impl_->for_each([&](ServerConnection& connection) { out += connection.in_flight(); });
  return out;
}

const ServerCounters& Server::counters() const { return impl_->context.counters; }

}  // namespace fairlead::net::http
