#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/intrusive_list.hpp"
#include "net/event.hpp"
#include "net/grpc.hpp"
#include "net/grpc_wire.hpp"
#include "net/http2.hpp"
#include "net/task_group.hpp"

// The parts of a gRPC channel; internal to net.

namespace fairlead::net::grpc {

class ChannelCore;
class ClientSession;

/// One call: waits for a connection, then is a stream of it. Owned by the caller.
class ClientCall final : public Call, public http2::SessionStream, public ListNode<ClientCall> {
 public:
  /// Begins with `begin`; the channel lists it.
  ClientCall(ChannelCore& channel, std::string_view request, CallObserver& observer,
             const ChannelOptions& options);
  ~ClientCall() override;

  void pause() override;
  void resume() override;
  void give_up() override;

  /// Keeps what `begin` needs, for a call that has to wait.
  void keep(std::string_view path, const Metadata& metadata);
  /// Begins with what was kept. False when the session takes no stream any more.
  bool begin(ClientSession& session) { return begin(session, path_, metadata_); }
  /// Begins the stream.
  bool begin(ClientSession& session, std::string_view path, const Metadata& metadata);
  /// Back to where it was before it began, for another connection.
  void rewind();
  /// Ends the call with DEADLINE_EXCEEDED at `deadline`.
  void set_deadline(TimePoint deadline);
  /// The request's header block ends at this offset of the session's output.
  void set_sent_at(std::uint64_t offset) { sent_at_ = offset; }
  /// Remembers how the call will end, in `end_failed`.
  void set_failure(Status status) { failure_ = std::move(status); }
  /// Ends the call as `set_failure` said.
  void end_failed() { end(failure_); }
  /// The channel is gone: no event any more.
  void forsake();

  bool waiting = false;  ///< In the channel's queue of calls without a connection.

 private:
  void on_header(std::string_view name, std::string_view value) override;
  void on_headers(bool too_large, bool end_stream) override;
  void on_data(std::string_view bytes) override;
  void on_remote_end() override;
  void on_closed(http2::ErrorCode code, std::string_view lost) override;
  void on_output_taken() override;

  /// Hands the held bytes on at the end of the turn in which the call was resumed.
  struct Redelivery final : Flushable {
    explicit Redelivery(ClientCall& owner) : call(owner) {}
    void flush() override { call.deliver_held(); }
    ClientCall& call;
  };

  void consume(std::string_view bytes);
  void deliver_held();
  Status final_status() const;
  bool leave(bool reset);
  void prepare_repeat(std::string_view path, const Metadata& metadata);
  void end(const Status& status);

  ChannelCore* channel_;
  ClientSession* client_ = nullptr;
  CallObserver& observer_;
  MessageReader reader_;
  std::string request_;
  std::string repeat_;  // the request again, until something came back on a quiet connection
  TimePoint begun_at_{};
  std::string path_;
  Metadata metadata_;
  std::optional<Timer> timer_;
  TimePoint deadline_{};
  std::uint64_t sent_at_ = 0;
  Status failure_;
  bool ended_ = false;
  bool answered_ = false;  // the first final header block has come
  bool paused_ = false;
  std::string held_;  // received while paused; the stream's window bounds it
  bool remote_ended_ = false;
  bool closed_ = false;  // with `failure_`
  Redelivery redelivery_{*this};
  int http_status_ = 0;
  bool content_type_ok_ = false;
  std::optional<StatusCode> status_;
  std::string status_message_;
};

/// One connection of a channel.
class ClientSession final : public http2::Session {
 public:
  /// Takes a connected stream.
  ClientSession(ChannelCore& channel, std::unique_ptr<Stream> stream,
                const ChannelOptions& options);

  /// The peer has sent its SETTINGS.
  bool ready() const { return ready_; }
  /// Takes further calls, now or when running ones have ended.
  bool usable() const { return ready_ && !refuses_streams(); }
  /// Another call fits now.
  bool has_room() const { return usable() && streams() < peer_max_streams(); }
  /// It has no calls and has received nothing for so long that it may have died unseen.
  bool quiet() const;
  /// A call began: keep-alive runs while there are calls, from now on when it `was_quiet`.
  void call_began(bool was_quiet);
  /// A call received something: the peer's patience with pings starts anew.
  void data_seen() { pings_without_data_ = 0; }
  /// The channel is gone.
  void forsake();

 private:
  http2::SessionStream* on_stream(std::int32_t) override { return nullptr; }
  void on_settings() override;
  void on_goaway(http2::ErrorCode code) override;
  void on_headers_sent(http2::SessionStream& stream) override;
  void on_stream_gone() override;
  void on_lost(std::string_view reason) override;
  void keep_alive();
  void ping_for(Duration timeout);
  Duration ping_interval() const;

  ChannelCore* channel_;
  Duration interval_;
  Duration timeout_;
  Duration quiet_after_;
  Duration quiet_timeout_;
  Timer keepalive_;
  bool ready_ = false;
  bool ping_sent_ = false;
  TimePoint ping_sent_at_{};
  int pings_without_data_ = 0;
};

/// A channel's connections and the calls that wait for one.
class ChannelCore final : private Flushable {
 public:
  /// As Channel.
  ChannelCore(Dialer& dialer, std::string authority, std::vector<Address> addresses,
              ChannelOptions options);
  ~ChannelCore() override;

  /// See Channel::start.
  std::unique_ptr<Call> start(std::string_view path, const Metadata& metadata,
                              std::string_view request, CallObserver& observer,
                              std::optional<TimePoint> deadline);
  /// See Channel::set_addresses.
  void set_addresses(std::vector<Address> addresses);
  /// Ends everything without events.
  void abandon();

  /// Sent as `:authority`.
  const std::string& authority() const { return authority_; }
  /// Settings.
  const ChannelOptions& options() const { return options_; }
  /// Ready connections.
  std::size_t connections() const;
  /// Running calls.
  std::size_t calls() const { return call_count_; }

  /// A call has ended or was destroyed before its end.
  void call_gone(ClientCall& call);
  /// Begins a call on another connection, since its own was dead. False when too many calls wait.
  bool begin_again(ClientCall& call);
  /// A connection may take another call.
  void room_made();
  /// The handshake is complete.
  void session_ready(ClientSession& session);
  /// The connection is over.
  void session_lost(ClientSession& session, std::string_view reason);
  /// The peer answered pings with GOAWAY: later connections ping less often.
  void slow_pings() { options_.ping_interval *= 2; }

 private:
  using CallQueue = IntrusiveList<http2::SessionStream, http2::SessionStream>;

  void flush() override;
  ClientSession* pick();
  std::size_t usable_sessions() const;
  bool backing_off() const;
  void fail_later(ClientCall& call, Status status);
  void pump();
  Task<> dial();
  Task<bool> connect(const Address& address, std::string& problem);
  void back_off(const std::string& problem);
  void drop(ClientSession& session);

  Dialer& dialer_;
  std::string authority_;
  std::vector<Address> addresses_;
  ChannelOptions options_;
  std::vector<std::unique_ptr<ClientSession>> sessions_;
  IntrusiveList<ClientCall, ClientCall> calls_;
  std::size_t call_count_ = 0;
  CallQueue waiting_;
  std::size_t waiting_count_ = 0;
  CallQueue failed_;
  bool abandoned_ = false;
  bool dialing_ = false;
  ClientSession* handshaking_ = nullptr;
  bool handshake_ok_ = false;
  std::string handshake_problem_;
  Event handshake_;
  Duration backoff_{0};
  TimePoint backoff_until_{};
  std::string last_problem_;
  std::uint64_t random_;
  Timer redial_;
  TaskGroup tasks_;
};

}  // namespace fairlead::net::grpc
