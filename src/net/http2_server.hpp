#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/intrusive_list.hpp"
#include "net/http2.hpp"
#include "net/reactor.hpp"
#include "net/server_connection.hpp"
#include "net/task.hpp"

namespace fairlead::net::http {

class Http2Connection;

/// One request on an HTTP/2 connection and the writer of its response. Lives until its handler has
/// returned and its stream is over; a client that leaves ends both.
class Http2Exchange final : public Exchange,
                            public http2::SessionStream,
                            public ListNode<Http2Exchange> {
 public:
  /// For `connection`, which owns this object.
  explicit Http2Exchange(Http2Connection& connection);

  void respond(int status, const HeaderList& headers, std::string_view body) override;
  void respond_owned(int status, const HeaderList& headers, std::string body,
                     std::shared_ptr<void> kept) override;
  void keep(std::shared_ptr<void> kept) override { kept_ = std::move(kept); }
  void start(int status, const HeaderList& headers) override;
  void commit() override;
  void finish(const HeaderList& trailers) override;
  bool started() const override { return started_; }
  bool finished() const override { return finished_; }
  std::size_t unsent() const override;

 private:
  friend class Http2Connection;

  void on_header(std::string_view name, std::string_view value) override;
  void on_headers(bool too_large, bool end_stream) override;
  void on_data(std::string_view bytes) override;
  void on_remote_end() override;
  void on_closed(http2::ErrorCode code, std::string_view lost) override;
  void on_output_taken() override;

  void begin_body();
  void end_receiving();
  void add_pseudo(std::string_view name, std::string_view value);
  bool is_grpc() const;
  void send_head(int status, const HeaderList& headers, bool end_stream,
                 std::optional<std::size_t> content_length);
  void refuse(int status, std::string_view message);
  void refuse_body(std::uint64_t declared);
  void refuse_for_room();
  void stop_reading();
  void dispatch();
  Task<> run();
  void handler_returned();
  void cut(std::string_view why);
  void over(bool client_left);
  void note_output();

  void respond_with(int status, const HeaderList& headers, std::string_view body,
                    std::string* owned);

  Http2Connection& connection_;
  std::shared_ptr<void> kept_;  // to the end of the stream
  std::string target_;
  std::string authority_;
  std::string cookies_;
  std::uint64_t content_length_ = 0;
  bool head_done_ = false;  // the request's header block is complete
  bool remote_ended_ = false;
  bool receiving_ = true;  // the request is not complete, nor refused
  bool refused_ = false;   // answered without the handler
  bool returned_ = false;  // the handler's coroutine has ended
  bool gone_ = false;      // the stream is over
  bool started_ = false;
  bool finished_ = false;
  bool without_body_ = false;
  bool above_high_mark_ = false;
  TimePoint deadline_ = TimePoint::max();  // of the request's next bytes, or of the reader
  Task<> running_;
};

/// The server's side of one HTTP/2 connection.
class Http2Connection final : public ServerConnection, public http2::Session {
 public:
  /// Takes the stream and the bytes read from it so far.
  Http2Connection(ServerContext& context, std::unique_ptr<Stream> stream, std::string received);
  ~Http2Connection() override;

  void start() override;
  void drain() override;
  std::size_t in_flight() const override;

 private:
  friend class Http2Exchange;
  class Linger;

  void flush() override;
  http2::SessionStream* on_stream(std::int32_t id) override;
  void on_headers_sent(http2::SessionStream& stream) override;
  void on_lost(std::string_view reason) override;

  void bury(Http2Exchange& exchange);
  void sweep();
  void arm();

  ServerContext& context_;
  std::string received_;
  mutable IntrusiveList<Http2Exchange, Http2Exchange> exchanges_;  // visiting them is not const
  std::size_t exchange_count_ = 0;
  std::size_t in_flight_ = 0;
  std::size_t body_bytes_ = 0;  // of requests that are still being received
  BodyShare share_;             // of body_bytes_
  TimePoint idle_since_;
  TimePoint progress_at_;
  std::uint64_t progress_ = 0;  // bytes written at progress_at_
  bool draining_ = false;
  bool check_unsent_ = false;  // some stream may be above the bound of unsent bytes
  bool abortive_ = false;      // it ends without a goodbye
  Timer timer_;
  std::unique_ptr<Linger> linger_;  // after the session's end
};

}  // namespace fairlead::net::http
