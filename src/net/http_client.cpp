#include "net/http_client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/intrusive_list.hpp"
#include "net/event.hpp"
#include "net/http1_head.hpp"
#include "net/http1_response_reader.hpp"

namespace fairlead::net::http {
namespace {

constexpr std::size_t kReadBuffer = 64 * 1024;
// Bytes read from one connection before others get their turn.
constexpr std::size_t kReadBudget = 1024 * 1024;

bool is_visible(std::string_view text) {
  return !text.empty() && std::ranges::none_of(text, [](char c) {
    return static_cast<unsigned char>(c) <= ' ' || c == '\x7f';
  });
}

// Cannot be taken apart into something that was not meant.
bool is_safe(const ClientRequest& request) {
  return is_visible(request.method) && is_visible(request.target) &&
         std::ranges::all_of(request.headers, [](const Header& header) {
           return is_visible(header.name) && !header.name.contains(':');
         });
}

std::string request_head(const ClientRequest& request, std::string_view host) {
  std::string out;
  out.reserve(512);
  out.append(request.method).append(" ").append(request.target).append(" HTTP/1.1\r\n");
  append_field(out, "host", host);
  for (const Header& header : request.headers) {
    if (!is_writers_field(header.name) && header.name != "host") {
      append_field(out, header.name, header.value);
    }
  }
  if (!request.body.empty() || (request.method != "GET" && request.method != "HEAD")) {
    append_field(out, "content-length", fmt::format_int(request.body.size()).c_str());
  }
  return out.append("\r\n");
}

// One connection to the server, in use by one task or parked in the pool.
class Connection final : public StreamHandler, public Flushable {
 public:
  explicit Connection(std::unique_ptr<Stream> connected) : stream(std::move(connected)) {
    stream->set_handler(this);
  }

  void on_readable() override {
    if (on_parked) {
      on_parked(*this);  // destroys this object
    } else {
      ready.set();
    }
  }
  void on_writable() override { ready.set(); }
  void flush() override { ready.set(); }

  std::unique_ptr<Stream> stream;
  Event ready;
  TimePoint parked_at;
  std::function<void(Connection&)> on_parked;  // set while parked
};

}  // namespace

class Client::Impl {
 public:
  Impl(Dialer& dialer, std::string host, std::vector<Address> addresses, ClientLimits limits)
      : dialer_(dialer),
        host_(std::move(host)),
        addresses_(std::move(addresses)),
        limits_(limits),
        sweep_([this] { drop_expired(); }) {}

  Task<Result<ClientResponse>> send(ClientRequest request, TimePoint deadline,
                                    ResponseReader::OnBody on_body, BodyGate* gate);
  std::uint64_t dials() const { return dials_; }
  void set_addresses(std::vector<Address> addresses) {
    addresses_ = std::move(addresses);
    parked_.clear();
  }

 private:
  // Lets a gate wake the connection that is read through it.
  struct GateLink {
    GateLink(BodyGate* g, Event& ready) : gate(g) {
      if (gate) {
        gate->reader_ = &ready;
      }
    }
    ~GateLink() {
      if (gate) {
        gate->reader_ = nullptr;
      }
    }
    GateLink(const GateLink&) = delete;
    GateLink& operator=(const GateLink&) = delete;
    BodyGate* gate;
  };

  // A place among the connections that are being established, or in the line for one.
  class DialTurn final : public ListNode<DialTurn> {
   public:
    explicit DialTurn(Impl& client) : client_(client) {
      if (client_.dialing_ < client_.limits_.dials_at_once) {
        grant();
      } else {
        client_.line_.push_back(*this);
      }
    }
    ~DialTurn() {
      if (granted_) {
        --client_.dialing_;
        if (!client_.line_.empty()) {
          client_.line_.pop_front().grant();
        }
      }
    }
    DialTurn(const DialTurn&) = delete;
    DialTurn& operator=(const DialTurn&) = delete;

    Task<bool> wait(TimePoint deadline);

   private:
    void grant() {
      ++client_.dialing_;
      granted_ = true;
      ready_.set();
    }

    Impl& client_;
    Event ready_;
    bool granted_ = false;
  };

  Task<Result<std::unique_ptr<Connection>>> connect(TimePoint deadline, bool reuse, bool& reused);
  Task<Result<std::unique_ptr<Connection>>> dial(TimePoint deadline);
  Task<Result<>> exchange(Connection& connection, const ClientRequest& request,
                          ResponseReader& reader, bool& sent, TimePoint deadline, BodyGate* gate);
  // What stopped a pass over a connection; a paused gate counts as blocked.
  enum class Pass : std::uint8_t { Blocked, OutOfBudget, Done };
  Result<Pass> read(Connection& connection, ResponseReader& reader, const BodyGate* gate);
  Result<Pass> read_into(Connection& connection, ResponseReader& reader, std::span<char> buffer,
                         const BodyGate* gate);
  std::unique_ptr<Connection> take_parked();
  void park(std::unique_ptr<Connection> connection);
  void drop(Connection& connection);
  void drop_expired();
  std::unexpected<Error> late() const {
    return fail(ErrorCode::EngineSilent, fmt::format("{} did not answer in time", host_));
  }

  Dialer& dialer_;
  std::string host_;
  std::vector<Address> addresses_;
  ClientLimits limits_;
  std::uint64_t dials_ = 0;
  std::size_t dialing_ = 0;
  IntrusiveList<DialTurn, DialTurn> line_;
  TimePoint last_dialed_{};                          // when a connection was established last
  std::unique_ptr<char[]> buffer_;                   // lent to one pass at a time
  std::vector<std::unique_ptr<Connection>> parked_;  // longest parked first
  Timer sweep_;
};

// True once it is this one's turn; false when time ran out or no other gets anywhere.
Task<bool> Client::Impl::DialTurn::wait(TimePoint deadline) {
  const TimePoint since = Reactor::current()->now();
  const auto limit = [&] {
    return std::min(deadline,
                    std::max(since, client_.last_dialed_) + client_.limits_.connect_timeout);
  };
  while (!granted_) {
    if (!co_await ready_.wait_until(limit()) && Reactor::current()->now() >= limit()) {
      co_return granted_;
    }
  }
  co_return true;
}

// A new connection or, if `reuse` allows, one that became idle during the wait for a turn.
Task<Result<std::unique_ptr<Connection>>> Client::Impl::connect(TimePoint deadline, bool reuse,
                                                                bool& reused) {
  DialTurn turn(*this);
  if (!co_await turn.wait(deadline)) {
    co_return fail(
        ErrorCode::EngineConnectTimeout,
        fmt::format("{} takes no connections: {} are being established", host_, dialing_));
  }
  if (auto parked = reuse ? take_parked() : nullptr) {
    reused = true;
    co_return std::move(parked);
  }
  co_return co_await dial(deadline);
}

Task<Result<std::unique_ptr<Connection>>> Client::Impl::dial(TimePoint deadline) {
  Error last{ErrorCode::EngineUnreachable, fmt::format("{} has no address", host_), {}};
  deadline = std::min(deadline, Reactor::current()->now() + limits_.connect_timeout);
  const std::vector<Address> addresses = addresses_;  // may be replaced meanwhile
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    // Each address gets its share of the time that is left, so that a dead one costs no more.
    const TimePoint now = Reactor::current()->now();
    const auto left = static_cast<Duration::rep>(addresses.size() - i);
    auto stream = co_await dialer_.connect(addresses[i], now + (deadline - now) / left);
    if (stream) {
      ++dials_;
      last_dialed_ = Reactor::current()->now();
      co_return std::make_unique<Connection>(std::move(*stream));
    }
    last = std::move(stream.error());
  }
  co_return std::unexpected(std::move(last));
}

Task<Result<ClientResponse>> Client::Impl::send(ClientRequest request, TimePoint deadline,
                                                ResponseReader::OnBody on_body, BodyGate* gate) {
  if (!is_safe(request)) {
    co_return fail(ErrorCode::Internal, "a request line or header name holds a control character");
  }
  std::unique_ptr<Connection> connection = take_parked();
  bool reused = connection != nullptr;
  bool stale = false;
  while (true) {
    if (!connection) {
      auto dialed = co_await connect(deadline, !stale, reused);
      if (!dialed) {
        co_return std::unexpected(std::move(dialed.error()));
      }
      connection = std::move(*dialed);
    }
    ResponseReader reader(limits_, request.method == "HEAD", on_body ? &on_body : nullptr);
    bool sent = false;
    auto result = co_await exchange(*connection, request, reader, sent, deadline, gate);
    if (result) {
      if (sent && reader.reusable()) {
        park(std::move(connection));
      }
      co_return std::move(reader.response());
    }
    connection.reset();
    if (!reused || reader.begun() || result.error().code != ErrorCode::EngineDisconnected) {
      co_return std::unexpected(std::move(result.error()));
    }
    // The server has closed a connection that was idle; that says nothing about the request.
    reused = false;
    stale = true;
  }
}

Task<Result<>> Client::Impl::exchange(Connection& connection, const ClientRequest& request,
                                      ResponseReader& reader, bool& sent, TimePoint deadline,
                                      BodyGate* gate) {
  const GateLink link(gate, connection.ready);
  const std::string head = request_head(request, host_);
  const std::size_t total = head.size() + request.body.size();
  std::size_t offset = 0;
  int write_error = 0;
  while (true) {
    connection.ready.reset();
    while (offset < total && write_error == 0) {
      std::array<iovec, 2> pieces;
      std::size_t count = 0;
      if (offset < head.size()) {
        pieces[count++] = {const_cast<char*>(head.data()) + offset, head.size() - offset};
      }
      const std::size_t body_offset = offset - std::min(offset, head.size());
      if (body_offset < request.body.size()) {
        pieces[count++] = {const_cast<char*>(request.body.data()) + body_offset,
                           request.body.size() - body_offset};
      }
      const IoResult result = connection.stream->write({pieces.data(), count});
      if (result.status == IoResult::Status::Failed) {
        write_error = result.error;  // an answer may have arrived all the same
      } else if (result.status != IoResult::Status::Ok || result.bytes == 0) {
        break;
      } else {
        offset += result.bytes;
      }
    }
    sent = offset == total;
    const auto pass = read(connection, reader, gate);
    if (!pass) {
      co_return std::unexpected(pass.error());
    }
    if (*pass == Pass::Done) {
      co_return Result<>();
    }
    if (write_error != 0) {
      co_return fail(ErrorCode::EngineDisconnected,
                     fmt::format("sending to {} failed: {}", host_, std::strerror(write_error)));
    }
    if (Reactor::current()->now() >= deadline) {
      co_return late();
    }
    if (*pass == Pass::OutOfBudget) {
      connection.ready.reset();
      Reactor::current()->flush_later(connection);
    }
    if (!co_await connection.ready.wait_until(deadline)) {
      co_return late();
    }
  }
}

Result<Client::Impl::Pass> Client::Impl::read(Connection& connection, ResponseReader& reader,
                                              const BodyGate* gate) {
  // A body callback may start another request on this stack; that one finds no buffer here.
  auto buffer = buffer_ ? std::move(buffer_) : std::make_unique<char[]>(kReadBuffer);
  auto pass = read_into(connection, reader, {buffer.get(), kReadBuffer}, gate);
  buffer_ = std::move(buffer);
  return pass;
}

Result<Client::Impl::Pass> Client::Impl::read_into(Connection& connection, ResponseReader& reader,
                                                   std::span<char> buffer, const BodyGate* gate) {
  std::size_t budget = kReadBudget;
  while (budget > 0) {
    if (gate && gate->paused()) {
      return Pass::Blocked;  // `resume` brings the next pass
    }
    const IoResult result = connection.stream->read(buffer);
    switch (result.status) {
      case IoResult::Status::Ok:
        budget -= std::min(budget, result.bytes);
        if (auto fed = reader.feed({buffer.data(), result.bytes}); !fed) {
          return std::unexpected(std::move(fed.error()));
        }
        break;
      case IoResult::Status::WouldBlock: return Pass::Blocked;
      case IoResult::Status::Eof:
        if (auto ended = reader.end(); !ended) {
          return std::unexpected(std::move(ended.error()));
        }
        break;
      case IoResult::Status::Failed:
        return fail(ErrorCode::EngineDisconnected, fmt::format("the connection to {} broke: {}",
                                                               host_, std::strerror(result.error)));
    }
    if (reader.done()) {
      return Pass::Done;
    }
  }
  return Pass::OutOfBudget;
}

std::unique_ptr<Connection> Client::Impl::take_parked() {
  drop_expired();
  if (parked_.empty()) {
    return nullptr;
  }
  auto connection = std::move(parked_.back());
  parked_.pop_back();
  connection->on_parked = nullptr;
  return connection;
}

void Client::Impl::park(std::unique_ptr<Connection> connection) {
  char byte = 0;
  if (parked_.size() >= limits_.idle_connections ||
      connection->stream->read({&byte, 1}).status != IoResult::Status::WouldBlock) {
    return;  // the end has arrived already, and its edge is gone
  }
  connection->parked_at = Reactor::current()->now();
  connection->on_parked = [this](Connection& gone) { drop(gone); };
  parked_.push_back(std::move(connection));
  if (!sweep_.armed()) {
    sweep_.arm(limits_.idle_timeout);
  }
}

void Client::Impl::drop(Connection& connection) {
  const auto place = std::ranges::find(parked_, &connection, &std::unique_ptr<Connection>::get);
  if (place != parked_.end()) {
    // Its callback is on the stack.
    Reactor::current()->destroy_later(std::move(*place));
    parked_.erase(place);
  }
}

void Client::Impl::drop_expired() {
  const TimePoint limit = Reactor::current()->now() - limits_.idle_timeout;
  const auto kept = std::ranges::find_if(
      parked_, [&](const auto& connection) { return connection->parked_at > limit; });
  parked_.erase(parked_.begin(), kept);
  if (parked_.empty()) {
    sweep_.cancel();
  } else {
    sweep_.arm_at(parked_.front()->parked_at + limits_.idle_timeout);
  }
}

Client::Client(Dialer& dialer, std::string host, std::vector<Address> addresses,
               ClientLimits limits)
    : impl_(std::make_unique<Impl>(dialer, std::move(host), std::move(addresses), limits)) {}

Client::~Client() = default;

void Client::set_addresses(std::vector<Address> addresses) {
  impl_->set_addresses(std::move(addresses));
}

std::uint64_t Client::dials() const { return impl_->dials(); }

Task<Result<ClientResponse>> Client::send(ClientRequest request, TimePoint deadline) {
  return impl_->send(std::move(request), deadline, {}, nullptr);
}

Task<Result<ClientResponse>> Client::stream(ClientRequest request, TimePoint deadline,
                                            std::function<void(std::string_view)> on_body,
                                            BodyGate* gate) {
  return impl_->send(std::move(request), deadline, std::move(on_body), gate);
}

}  // namespace fairlead::net::http
