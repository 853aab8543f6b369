#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "net/grpc_client.hpp"

namespace fairlead::net::grpc {

ChannelCore::ChannelCore(Dialer& dialer, std::string authority, std::vector<Address> addresses,
                         ChannelOptions options)
    : dialer_(dialer),
      authority_(std::move(authority)),
      addresses_(std::move(addresses)),
      options_(options),
      random_(static_cast<std::uint64_t>(Clock::now().time_since_epoch().count()) | 1),
      redial_([this] { pump(); }) {}

ChannelCore::~ChannelCore() { abandon(); }

void ChannelCore::abandon() {
  if (std::exchange(abandoned_, true)) {
    return;
  }
  tasks_.cancel();
  redial_.cancel();
  Flushable::unlink();
  while (!calls_.empty()) {
    ClientCall& call = calls_.pop_front();
    if (!call.session()) {
      call.SessionStream::unlink();
    }
    call.forsake();
  }
  for (auto& session : sessions_) {
    session->forsake();
    if (Reactor* const reactor = Reactor::current()) {
      reactor->destroy_later(std::move(session));  // it may be on the stack
    }
  }
  sessions_.clear();
}

std::unique_ptr<Call> ChannelCore::start(std::string_view path, const Metadata& metadata,
                                         std::string_view request, CallObserver& observer,
                                         std::optional<TimePoint> deadline) {
  auto call = std::make_unique<ClientCall>(*this, request, observer, options_);
  calls_.push_back(*call);
  ++call_count_;
  if (request.size() > options_.max_message_bytes) {
    fail_later(*call, {StatusCode::ResourceExhausted,
                       fmt::format("the request has {} bytes, the limit is {}", request.size(),
                                   options_.max_message_bytes),
                       Status::Origin::Client});
    return call;
  }
  if (deadline) {
    if (*deadline <= Reactor::current()->now()) {
      fail_later(*call,
                 {StatusCode::DeadlineExceeded, "deadline exceeded", Status::Origin::Client});
      return call;
    }
    call->set_deadline(*deadline);
  }
  while (ClientSession* const session = pick()) {
    if (call->begin(*session, path, metadata)) {
      return call;
    }
  }
  if (backing_off() && usable_sessions() == 0) {
    fail_later(*call, {StatusCode::Unavailable, last_problem_, Status::Origin::Connect});
  } else if (waiting_count_ >= options_.max_waiting) {
    fail_later(*call, {StatusCode::ResourceExhausted, "too many calls wait for a connection",
                       Status::Origin::Connect});
  } else {
    call->keep(path, metadata);
    call->waiting = true;
    ++waiting_count_;
    waiting_.push_back(*call);
    pump();
  }
  return call;
}

void ChannelCore::set_addresses(std::vector<Address> addresses) {
  if (addresses_ != addresses) {
    addresses_ = std::move(addresses);
    backoff_until_ = {};
    backoff_ = Duration(0);
    pump();
  }
}

std::size_t ChannelCore::connections() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(sessions_, [](const auto& session) { return session->ready(); }));
}

std::size_t ChannelCore::usable_sessions() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(sessions_, [](const auto& session) { return session->usable(); }));
}

void ChannelCore::call_gone(ClientCall& call) {
  call.ListNode<ClientCall>::unlink();
  --call_count_;
  if (!call.session()) {
    call.SessionStream::unlink();  // from the waiting or the failed ones
  }
  if (std::exchange(call.waiting, false)) {
    --waiting_count_;
  }
}

bool ChannelCore::begin_again(ClientCall& call) {
  if (abandoned_ || waiting_count_ >= options_.max_waiting) {
    return false;
  }
  call.rewind();
  call.waiting = true;
  ++waiting_count_;
  waiting_.push_back(call);
  Reactor::current()->flush_later(*this);  // the dead connection is still listed
  return true;
}

void ChannelCore::room_made() {
  if (waiting_count_ > 0) {
    Reactor::current()->flush_later(*this);
  }
}

void ChannelCore::session_ready(ClientSession& session) {
  if (handshaking_ == &session) {
    handshaking_ = nullptr;
    handshake_ok_ = true;
    handshake_.set();
  }
}

void ChannelCore::session_lost(ClientSession& session, std::string_view reason) {
  if (handshaking_ == &session) {
    handshaking_ = nullptr;
    handshake_problem_ = reason;
    handshake_.set();
  }
  drop(session);
  room_made();
}

void ChannelCore::drop(ClientSession& session) {
  const auto found = std::ranges::find_if(
      sessions_, [&](const auto& candidate) { return candidate.get() == &session; });
  if (found != sessions_.end()) {
    Reactor::current()->destroy_later(std::move(*found));
    sessions_.erase(found);
  }
}

ClientSession* ChannelCore::pick() {
  const auto found =
      std::ranges::find_if(sessions_, [](const auto& session) { return session->has_room(); });
  return found == sessions_.end() ? nullptr : found->get();
}

bool ChannelCore::backing_off() const {
  return !dialing_ && Reactor::current()->now() < backoff_until_;
}

void ChannelCore::fail_later(ClientCall& call, Status status) {
  if (std::exchange(call.waiting, false)) {
    --waiting_count_;
  }
  call.SessionStream::unlink();
  call.set_failure(std::move(status));
  failed_.push_back(call);
  Reactor::current()->flush_later(*this);
}

void ChannelCore::flush() {
  // Only those of now: an observer may start another call that fails at once.
  for (std::size_t left = call_count_; left > 0 && !failed_.empty(); --left) {
    static_cast<ClientCall&>(failed_.pop_front()).end_failed();
    if (abandoned_) {
      return;
    }
  }
  if (!failed_.empty()) {
    Reactor::current()->flush_later(*this);
  }
  pump();
}

void ChannelCore::pump() {
  while (waiting_count_ > 0) {
    ClientSession* const session = pick();
    if (!session) {
      break;
    }
    auto& call = static_cast<ClientCall&>(waiting_.pop_front());
    if (call.begin(*session)) {
      call.waiting = false;
      --waiting_count_;
    } else {
      waiting_.push_back(call);
    }
  }
  // Connections that only finish what they carry do not count.
  if (waiting_count_ == 0 || dialing_ || usable_sessions() >= options_.max_connections) {
    return;
  }
  if (backing_off()) {
    redial_.arm_at(backoff_until_);
    return;
  }
  dialing_ = true;
  tasks_.spawn(dial());
}

Task<bool> ChannelCore::connect(const Address& address, std::string& problem) {
  const TimePoint deadline = Reactor::current()->now() + options_.connect_timeout;
  auto stream = co_await dialer_.connect(address, deadline);
  if (!stream) {
    problem = std::move(stream.error().message);
    co_return false;
  }
  // A server that accepts connections and is no HTTP/2 server, or is dying, sends no SETTINGS.
  auto owned = std::make_unique<ClientSession>(*this, std::move(*stream), options_);
  ClientSession& session = *owned;
  sessions_.push_back(std::move(owned));
  handshake_.reset();
  handshake_ok_ = false;
  handshaking_ = &session;
  session.begin();
  if (!co_await handshake_.wait_until(deadline)) {
    problem = fmt::format("{} accepted the connection but does not speak HTTP/2 within the time",
                          address.to_string());
    handshaking_ = nullptr;
    session.forsake();
    drop(session);
    co_return false;
  }
  if (!handshake_ok_) {
    problem =
        fmt::format("{} ended the connection at once: {}", address.to_string(), handshake_problem_);
  }
  co_return handshake_ok_;
}

Task<> ChannelCore::dial() {
  const std::vector<Address> addresses = addresses_;
  std::string problem = fmt::format("no address is known for {}", authority_);
  for (const Address& address : addresses) {
    const bool connected = co_await connect(address, problem);
    if (connected) {
      dialing_ = false;
      backoff_ = Duration(0);
      backoff_until_ = {};
      Reactor::current()->flush_later(*this);
      co_return;
    }
  }
  dialing_ = false;
  back_off(problem);
}

void ChannelCore::back_off(const std::string& problem) {
  if (problem != last_problem_) {
    log::debug("connecting to {} failed: {}", authority_, problem);
  }
  last_problem_ = problem;
  backoff_ = std::clamp(backoff_ * 2, options_.min_backoff, options_.max_backoff);
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  // Between 80 and 120 hundredths.
  backoff_until_ = Reactor::current()->now() + backoff_ * static_cast<int>(80 + random_ % 41) / 100;
  if (usable_sessions() > 0) {
    pump();  // the running connections may free a place first
    return;
  }
  while (!waiting_.empty()) {
    fail_later(static_cast<ClientCall&>(waiting_.front()),
               {StatusCode::Unavailable, problem, Status::Origin::Connect});
  }
}

Channel::Channel(Dialer& dialer, std::string authority, std::vector<Address> addresses,
                 ChannelOptions options)
    : core_(std::make_unique<ChannelCore>(dialer, std::move(authority), std::move(addresses),
                                          options)) {}

Channel::~Channel() {
  core_->abandon();
  if (Reactor* const reactor = Reactor::current()) {
    reactor->destroy_later(std::move(core_));  // an event of one of its calls may be on the stack
  }
}

std::unique_ptr<Call> Channel::start(std::string_view path, const Metadata& metadata,
                                     std::string_view request, CallObserver& observer,
                                     std::optional<TimePoint> deadline) {
  return core_->start(path, metadata, request, observer, deadline);
}

void Channel::set_addresses(std::vector<Address> addresses) {
  core_->set_addresses(std::move(addresses));
}

std::size_t Channel::connections() const { return core_->connections(); }

std::size_t Channel::calls() const { return core_->calls(); }

namespace {

// Collects the one message of a unary call.
struct UnaryObserver final : CallObserver {
  void on_message(std::string_view bytes) override {
    if (++messages == 1) {
      message = bytes;
    }
  }
  void on_end(const Status& ended) override {
    status = ended;
    done.set();
  }

  std::string message;
  int messages = 0;
  Status status;
  Event done;
};

Task<std::expected<std::string, Status>> run_unary(ChannelCore& core, std::string path,
                                                   Metadata metadata, std::string request,
                                                   TimePoint deadline) {
  UnaryObserver observer;
  const auto call = core.start(path, metadata, request, observer, deadline);
  co_await observer.done.wait();
  if (!observer.status.ok()) {
    co_return std::unexpected(std::move(observer.status));
  }
  if (observer.messages != 1) {
    co_return std::unexpected(
        Status{StatusCode::Internal,
               fmt::format("the server sent {} messages instead of one", observer.messages),
               Status::Origin::Client});
  }
  co_return std::move(observer.message);
}

}  // namespace

Task<std::expected<std::string, Status>> Channel::unary(std::string_view path,
                                                        const Metadata& metadata,
                                                        std::string request, TimePoint deadline) {
  return run_unary(*core_, std::string(path), metadata, std::move(request), deadline);
}

}  // namespace fairlead::net::grpc
