#include "net/http2_server.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.hpp"

namespace fairlead::net::http {
namespace {

constexpr Duration kSweep = std::chrono::seconds(1);
// How long a peer may take to answer the notice of a shutdown.
constexpr Duration kShutdownGrace = std::chrono::seconds(1);
// How long input is discarded after our side was closed.
constexpr Duration kLingerTime = std::chrono::seconds(2);

http2::SessionOptions session_options(const ServerLimits& limits) {
  http2::SessionOptions out;
  out.server = true;
  out.max_streams = limits.max_streams;
  out.header_bytes = limits.header_bytes;
  out.header_count = limits.header_count;
  return out;
}

}  // namespace

// A connection whose session is over and whose side is closed. What the peer still sends, such as
// the windows it returns while it reads the end of an answer, is discarded: a closed socket would
// answer with an RST, which overtakes that end.
class Http2Connection::Linger final : private StreamHandler {
 public:
  explicit Linger(Http2Connection& connection)
      : connection_(connection), timer_([this] { end(); }) {}
  ~Linger() override { connection_.transport().set_handler(nullptr); }

  void begin() {
    connection_.transport().shutdown_write();
    timer_.arm(kLingerTime);
    connection_.transport().set_handler(this);
    on_readable();
  }

 private:
  void on_readable() override {
    IoResult result{IoResult::Status::Ok, 0, 0};
    while (result.status == IoResult::Status::Ok && !ended_) {
      result = connection_.transport().read(connection_.context_.read_buffer);
    }
    if (result.status != IoResult::Status::WouldBlock) {
      end();
    }
  }

  void on_writable() override {}

  void end() {
    if (!std::exchange(ended_, true)) {
      timer_.cancel();
      connection_.transport().set_handler(nullptr);
      connection_.context_.closed(connection_);
    }
  }

  Http2Connection& connection_;
  bool ended_ = false;
  Timer timer_;
};

Http2Connection::Http2Connection(ServerContext& context, std::unique_ptr<Stream> stream,
                                 std::string received)
    : Session(std::move(stream), session_options(context.limits)),
      context_(context),
      received_(std::move(received)),
      share_(context.limits.bodies),
      idle_since_(reactor().now()),
      progress_at_(reactor().now()),
      timer_([this] { sweep(); }) {}

Http2Connection::~Http2Connection() {
  abandon();
  while (!exchanges_.empty()) {
    const std::unique_ptr<Http2Exchange> exchange(&exchanges_.pop_front());
    exchange->running_ = {};
  }
}

void Http2Connection::start() {
  arm();
  begin(std::exchange(received_, {}));
}

std::size_t Http2Connection::in_flight() const {
  std::size_t undelivered = blocked() && !closed() ? 1 : 0;
  exchanges_.for_each([&](const Http2Exchange& exchange) {
    undelivered += exchange.returned_ && !exchange.gone_ && exchange.unsent() > 0 ? 1 : 0;
  });
  return in_flight_ + undelivered;
}

void Http2Connection::drain() {
  if (!closed() && !std::exchange(draining_, true)) {
    shut_down();
    idle_since_ = reactor().now();
    timer_.cancel();
    arm();
  }
}

http2::SessionStream* Http2Connection::on_stream(std::int32_t) {
  if (context_.draining) {
    drain();
  }
  // Streams that are over do not count for HTTP/2, but their handlers may still run.
  if (exchange_count_ >= 2 * std::size_t{context_.limits.max_streams}) {
    return nullptr;
  }
  auto exchange = std::make_unique<Http2Exchange>(*this);
  exchanges_.push_back(*exchange);
  if (++exchange_count_ == 1) {
    progress_at_ = reactor().now();
    timer_.cancel();
    arm();
  }
  return exchange.release();
}

void Http2Connection::on_headers_sent(http2::SessionStream& stream) {
  auto& exchange = static_cast<Http2Exchange&>(stream);
  if (exchange.refused_ && exchange.output_left() == 0) {
    exchange.stop_reading();
  }
}

void Http2Connection::on_lost(std::string_view reason) {
  log::debug("HTTP/2 client {} left: {}", transport().peer(), reason);
  timer_.cancel();
  if (!draining_ || abortive_) {
    context_.closed(*this);
    return;
  }
  linger_ = std::make_unique<Linger>(*this);
  linger_->begin();
}

void Http2Connection::bury(Http2Exchange& exchange) {
  exchange.ListNode<Http2Exchange>::unlink();
  reactor().destroy_later(std::unique_ptr<Http2Exchange>(&exchange));
  if (--exchange_count_ == 0) {
    idle_since_ = reactor().now();
  }
}

void Http2Connection::arm() {
  if (exchange_count_ == 0) {
    timer_.arm_at(idle_since_ + (draining_ ? kShutdownGrace : context_.limits.idle_timeout));
    return;
  }
  const Duration step =
      std::min({kSweep, context_.limits.body_timeout, context_.limits.header_timeout,
                context_.limits.slow_reader_timeout});
  timer_.arm(step);
}

void Http2Connection::sweep() {
  const TimePoint now = reactor().now();
  if (exchange_count_ == 0) {
    if (now >= idle_since_ + (draining_ ? kShutdownGrace : context_.limits.idle_timeout)) {
      if (draining_) {
        close("drained");
        return;
      }
      drain();
    }
    arm();
    return;
  }
  if (!blocked() || written() != progress_) {
    progress_ = written();
    progress_at_ = now;
  } else if (now >= progress_at_ + context_.limits.slow_reader_timeout) {
    bump(context_.counters.slow_readers_cut);
    transport().set_abortive();
    abortive_ = true;
    close("it does not read");
    return;
  }
  std::vector<Http2Exchange*> late;
  exchanges_.for_each([&](Http2Exchange& exchange) {
    if (exchange.deadline_ <= now && !exchange.gone_) {
      late.push_back(&exchange);
    }
  });
  for (Http2Exchange* const exchange : late) {
    if (!exchange->head_done_) {
      bump(context_.counters.bad_requests);
      close("a header block was not completed in time");  // nothing else can follow before it
      return;
    }
    if (exchange->receiving_) {
      exchange->refuse(408, "the request was not completed in time");
    } else {
      exchange->cut("it does not read");
    }
  }
  arm();
}

void Http2Connection::flush() {
  Session::flush();
  if (closed() || !std::exchange(check_unsent_, false)) {
    return;
  }
  exchanges_.for_each([&](Http2Exchange& exchange) {
    if (!exchange.gone_ && exchange.unsent() > context_.limits.max_unsent_bytes &&
        !exchange.finished_) {
      exchange.cut("it reads too slowly");
    }
  });
}

std::unique_ptr<ServerConnection> make_http2_connection(ServerContext& context,
                                                        std::unique_ptr<Stream> stream,
                                                        std::string received) {
  return std::make_unique<Http2Connection>(context, std::move(stream), std::move(received));
}

}  // namespace fairlead::net::http
