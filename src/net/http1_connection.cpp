#include "net/http1_connection.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.hpp"

namespace fairlead::net::http {
namespace {

// Bytes read from one connection before others get their turn.
constexpr std::size_t kReadBudget = 1024 * 1024;
// Buffers that grew beyond this are not kept.
constexpr std::size_t kKeptBuffer = 4096;
// How long input is discarded after our side was closed.
constexpr Duration kLingerTime = std::chrono::seconds(2);

}  // namespace

Http1Connection::Http1Connection(ServerContext& context, std::unique_ptr<Stream> stream,
                                 std::string received)
    : context_(context),
      reactor_(*Reactor::current()),
      stream_(std::move(stream)),
      input_(std::move(received)),
      timer_([this] { on_timer(); }),
      share_(context.limits.bodies),
      exchange_(*this) {
  exchange_.request_.peer = stream_->peer();
}

Http1Connection::~Http1Connection() {
  state_ = State::Closed;  // what the handler's destructors still write goes nowhere
}

void Http1Connection::start() {
  stream_->set_handler(this);
  set_state_deadline(context_.limits.idle_timeout);
  readable_ = true;
  process_input();
  read_some();
}

void Http1Connection::drain() {
  if (state_ != State::Idle) {
    return;
  }
  if (unsent() == 0) {
    close();
  } else {
    begin_close();
  }
}

void Http1Connection::on_readable() {
  readable_ = true;
  read_some();
}

void Http1Connection::on_writable() {
  if (blocked_) {
    blocked_ = false;
    reactor_.flush_later(*this);
  }
}

void Http1Connection::flush() {
  write_out();
  if (state_ == State::Busy) {
    try_next();
  }
  process_input();
  read_some();
  if ((peer_eof_ || overrun_) && state_ < State::Busy) {
    begin_close();
  }
  if (state_ == State::Closing && unsent() == 0) {
    begin_linger();
  }
}

// While a handler runs the client's leave must be seen, whatever stands before it. A response that
// only waits for its reader keeps nothing alive, so that more requests may wait unread.
bool Http1Connection::may_read() const {
  switch (state_) {
    case State::Busy:
      return overrun_ || !exchange_.finished_ || input_.size() < context_.limits.read_ahead_bytes;
    case State::Closed: return false;
    default: return true;
  }
}

void Http1Connection::read_some() {
  std::size_t budget = kReadBudget;
  while (readable_ && may_read()) {
    if (budget == 0) {
      reactor_.flush_later(*this);
      return;
    }
    if (state_ == State::Body && input_.empty() && !overrun_) {
      const std::uint64_t before = body_remaining_;
      read_body();
      budget -= std::min<std::size_t>(budget, before - body_remaining_);
      continue;
    }
    const std::span<char> buffer = context_.read_buffer;
    const IoResult result = stream_->read(buffer);
    if (result.status == IoResult::Status::Ok) {
      budget -= std::min(budget, result.bytes);
      received({buffer.data(), result.bytes});
    } else {
      read_ended(result);
    }
  }
}

void Http1Connection::read_ended(const IoResult& result) {
  readable_ = false;
  if (result.status == IoResult::Status::Eof) {
    on_eof();
  } else if (result.status == IoResult::Status::Failed) {
    broken(result.error);
  }
}

void Http1Connection::received(std::string_view bytes) {
  if (state_ >= State::Closing || overrun_) {
    return;
  }
  if (input_.empty()) {
    const std::size_t consumed = process(bytes);
    input_.assign(bytes.substr(consumed));
    count_held();
  } else {
    input_.append(bytes);
    process_input();
  }
  if (state_ == State::Busy && !exchange_.finished_ && !overrun_ &&
      input_.size() > context_.limits.read_ahead_bytes) {
    overrun();
  }
}

void Http1Connection::process_input() {
  if (state_ < State::Closing && !input_.empty()) {
    input_.erase(0, process(input_));
  }
  if (state_ >= State::Closing || (input_.empty() && input_.capacity() > kKeptBuffer)) {
    input_ = std::string();
  }
  count_held();
}

// The result is how many bytes were used. The rest is part of something that is processed as a
// whole, or waits for the request in flight.
std::size_t Http1Connection::process(std::string_view bytes) {
  std::size_t done = 0;
  std::size_t step = 1;
  while (step > 0 && done < bytes.size()) {
    const std::string_view rest = bytes.substr(done);
    switch (state_) {
      case State::Idle:
        step = rest.starts_with("\r\n") ? 2 : rest == "\r" ? 0 : process_head(rest);
        break;
      case State::Head: step = process_head(rest); break;
      case State::Body: step = process_body(rest); break;
      case State::Chunked: step = process_chunks(rest); break;
      case State::Busy:
        if (!try_next()) {
          step = 0;
        }
        continue;
      default: return bytes.size();
    }
    done += step;
  }
  if (state_ == State::Body || state_ == State::Chunked) {
    credit_body();
  }
  return done;
}

std::size_t Http1Connection::process_head(std::string_view bytes) {
  const ServerLimits& limits = context_.limits;
  const auto status = scanner_.scan(bytes, limits.header_bytes, limits.header_count);
  switch (status) {
    case HeadScanner::Status::NeedMore:
      if (state_ == State::Idle) {
        state_ = State::Head;
        set_state_deadline(limits.header_timeout);
      }
      return 0;
    case HeadScanner::Status::Complete: break;
    case HeadScanner::Status::TooLarge:
      refuse(431, "the request head is too large");
      return bytes.size();
    case HeadScanner::Status::TooManyFields:
      refuse(431, "the request has too many header fields");
      return bytes.size();
    case HeadScanner::Status::Malformed: refuse(400, "malformed HTTP request"); return bytes.size();
  }
  const std::size_t size = scanner_.size();
  scanner_.reset();
  const auto framing = parse_request_head(bytes.substr(0, size), exchange_.request_);
  if (!framing) {
    refuse(framing.error().status, framing.error().message);
    return bytes.size();
  }
  framing_ = *framing;
  begin_body(bytes.size() - size);
  return size;
}

void Http1Connection::run_request() {
  state_ = State::Busy;
  state_deadline_ = TimePoint::max();
  decoder_.reset();
  reserve_body(exchange_.request_.body.size());
  keep_alive_ = framing_.keep_alive;
  returned_ = false;
  bump(context_.counters.requests_total);
  running_ = run();
  running_.handle().resume();
}

Task<> Http1Connection::run() {
  try {
    co_await context_.handler(exchange_);
  } catch (const std::exception& e) {
    log::error("a request handler ended with an exception: {}", e.what());
  } catch (...) {
    log::error("a request handler ended with an unknown exception");
  }
  handler_returned();
}

// Runs below the handler's coroutine, which therefore must not be destroyed here.
void Http1Connection::handler_returned() {
  returned_ = true;
  if (state_ == State::Closed) {
    return;
  }
  if (!exchange_.started_) {
    exchange_.respond(500, {{"content-type", "application/json"}},
                      context_.error_body(500, "internal error"));
  } else if (!exchange_.finished_) {
    cut("its response was given up");
    return;
  }
  reactor_.flush_later(*this);
}

// Gets ready for the next request when the last one is over. Never called below a handler.
bool Http1Connection::try_next() {
  if (!returned_ || !exchange_.finished_) {
    return false;
  }
  running_ = {};
  if (!keep_alive_ || context_.draining || (peer_eof_ && !context_.limits.allow_half_close)) {
    begin_close();
    return false;
  }
  if (unsent() > context_.limits.high_mark_bytes) {
    return false;
  }
  exchange_.reset();
  state_ = State::Idle;
  set_state_deadline(context_.limits.idle_timeout);
  return true;
}

void Http1Connection::on_eof() {
  peer_eof_ = true;
  switch (state_) {
    case State::Busy:
      if (!exchange_.finished_ && !context_.limits.allow_half_close) {
        bump(context_.counters.clients_gone);
        log::debug("client {} left during its request", stream_->peer());
        close();
      }
      break;
    case State::Linger:
    case State::Closed: close(); break;
    default: begin_close();
  }
}

void Http1Connection::refuse(int status, std::string_view message) {
  bump(context_.counters.bad_requests);
  keep_alive_ = false;
  write_refusal(status, message);
  exchange_.request_.body = std::string();
  share_.hold(0);
  begin_close();
}

void Http1Connection::begin_close() {
  if (state_ == State::Closed) {
    return;
  }
  state_ = State::Closing;
  state_deadline_ = TimePoint::max();
  reactor_.flush_later(*this);
}

void Http1Connection::begin_linger() {
  if (peer_eof_) {
    close();
    return;
  }
  stream_->shutdown_write();
  state_ = State::Linger;
  set_state_deadline(kLingerTime);
  read_some();
}

void Http1Connection::cut(std::string_view why) {
  log::info("client {} cut: {}", stream_->peer(), why);
  stream_->set_abortive();
  close();
}

void Http1Connection::broken(int error) {
  if (state_ == State::Busy && !exchange_.finished_) {
    bump(context_.counters.clients_gone);
    // A client that cancels with unread bytes resets the connection; that is no trouble.
    const bool usual = error == ECONNRESET || error == EPIPE;
    log::write(usual ? log::Level::Debug : log::Level::Info,
               "client {} left during its request: {}", stream_->peer(), std::strerror(error));
  }
  close();
}

void Http1Connection::close() {
  if (state_ == State::Closed) {
    return;
  }
  state_ = State::Closed;
  stream_->set_handler(nullptr);
  timer_.cancel();
  context_.closed(*this);
}

void Http1Connection::set_state_deadline(Duration delay) {
  state_deadline_ = reactor_.now() + delay;
  arm();
}

// Deadlines move at every request; the timer is only touched when it would fire too late.
void Http1Connection::arm() {
  const TimePoint next = std::min(state_deadline_, write_deadline_);
  if (next != TimePoint::max() && (!timer_.armed() || next < armed_for_)) {
    armed_for_ = next;
    timer_.arm_at(next);
  }
}

void Http1Connection::on_timer() {
  const TimePoint now = reactor_.now();
  if (write_deadline_ <= now) {
    bump(context_.counters.slow_readers_cut);
    cut("it does not read");
    return;
  }
  if (state_deadline_ <= now) {
    state_deadline_ = TimePoint::max();
    switch (state_) {
      case State::Idle:
      case State::Linger: close(); return;
      case State::Head:
      case State::Body:
      case State::Chunked: refuse(408, "the request was not completed in time"); break;
      default: break;
    }
  }
  arm();
}

std::unique_ptr<ServerConnection> make_http1_connection(ServerContext& context,
                                                        std::unique_ptr<Stream> stream,
                                                        std::string received) {
  return std::make_unique<Http1Connection>(context, std::move(stream), std::move(received));
}

}  // namespace fairlead::net::http
