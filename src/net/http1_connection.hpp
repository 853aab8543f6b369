#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/body_budget.hpp"
#include "net/http1_chunks.hpp"
#include "net/http1_parser.hpp"
#include "net/reactor.hpp"
#include "net/server_connection.hpp"
#include "net/stream.hpp"
#include "net/task.hpp"

namespace fairlead::net::http {

class Http1Connection;

/// The request that a connection is busy with, and the writer of its response. One object serves
/// the connection's requests one after another.
class Http1Exchange final : public Exchange {
 public:
  /// For `connection`, which owns this object.
  explicit Http1Exchange(Http1Connection& connection) : connection_(connection) {}

  void respond(int status, const HeaderList& headers, std::string_view body) override;
  void respond_owned(int status, const HeaderList& headers, std::string body,
                     std::shared_ptr<void> kept) override;
  void keep(std::shared_ptr<void> kept) override;
  void start(int status, const HeaderList& headers) override;
  void commit() override;
  void finish(const HeaderList& trailers) override;
  bool started() const override { return started_; }
  bool finished() const override { return finished_; }
  std::size_t unsent() const override;

 private:
  friend class Http1Connection;

  void reset();
  void respond_with(int status, const HeaderList& headers, std::string_view body,
                    std::string* owned);

  Http1Connection& connection_;
  std::size_t committed_ = 0;  // prefix of pending_ that may be sent
  bool started_ = false;
  bool finished_ = false;
  bool chunked_ = false;
  bool without_body_ = false;  // to HEAD, or a status that has none
  bool above_high_mark_ = false;
};

/// The server's side of one HTTP/1 connection: reads a request whole, runs its handler, writes the
/// response; keeps reading meanwhile so that a leaving client is noticed, and drops what is above a
/// bound.
class Http1Connection final : public ServerConnection, private StreamHandler, private Flushable {
 public:
  /// Takes the stream and the bytes read from it so far.
  Http1Connection(ServerContext& context, std::unique_ptr<Stream> stream, std::string received);
  ~Http1Connection() override;

  void start() override;
  void drain() override;
  std::size_t in_flight() const override {
    const bool undelivered = state_ != State::Closed && unsent() > 0;
    return (running_ && !returned_) || undelivered ? 1 : 0;
  }

 private:
  friend class Http1Exchange;

  enum class State : std::uint8_t {
    Idle,     // no byte of a request
    Head,     // some bytes of a head
    Body,     // inside a body of known length
    Chunked,  // inside a chunked body
    Busy,     // the handler runs, or its response makes the next request wait
    Closing,  // no more requests; what is unsent goes out
    Linger,   // our side is closed; input is discarded so that no RST overtakes the last response
    Closed,   // left the server; destroyed when the turn ends
  };

  void on_readable() override;
  void on_writable() override;
  void flush() override;

  // Reading.
  void read_some();
  bool may_read() const;
  void read_ended(const IoResult& result);
  void read_body();
  void received(std::string_view bytes);
  void process_input();
  std::size_t process(std::string_view bytes);
  std::size_t process_head(std::string_view bytes);
  std::size_t process_body(std::string_view bytes);
  std::size_t process_chunks(std::string_view bytes);
  void begin_body(std::size_t at_hand);
  void reserve_body(std::size_t bytes);
  void credit_body();
  void count_held();
  void overrun();
  void on_eof();
  void refuse(int status, std::string_view message);
  void refuse_for_room();

  // Running.
  void run_request();
  Task<> run();
  void handler_returned();
  bool try_next();

  // Writing.
  std::string_view connection_field(const HeaderList& headers);
  void write_refusal(int status, std::string_view message);
  void write_out();
  bool write_once();
  void consume_output(std::size_t written, std::string_view chunk_head);
  std::size_t unsent() const { return output_.size() - output_offset_ + exchange_.committed_; }
  void check_marks();

  // Ending.
  void begin_close();
  void begin_linger();
  void cut(std::string_view why);
  void broken(int error);
  void close();

  // Time.
  void set_state_deadline(Duration delay);
  void arm();
  void on_timer();

  ServerContext& context_;
  Reactor& reactor_;
  std::unique_ptr<Stream> stream_;
  State state_ = State::Idle;
  bool readable_ = false;  // the last read did not say WouldBlock
  bool blocked_ = false;   // the last write said WouldBlock
  bool peer_eof_ = false;
  bool overrun_ = false;    // too much was pipelined: what comes is dropped
  bool keep_alive_ = true;  // of the response in flight
  bool returned_ = false;   // the handler's coroutine has ended
  std::string input_;       // what was read and is not processed
  HeadScanner scanner_;
  RequestFraming framing_;
  std::uint64_t body_remaining_ = 0;
  std::size_t credited_ = 0;  // bytes of the body that have moved its deadline
  std::optional<ChunkedDecoder> decoder_;
  std::string output_;
  std::vector<std::shared_ptr<void>> kept_;  // until the output is empty
  std::size_t output_offset_ = 0;
  TimePoint state_deadline_ = TimePoint::max();
  TimePoint write_deadline_ = TimePoint::max();
  TimePoint armed_for_ = TimePoint::max();
  Timer timer_;
  BodyShare share_;  // of input_ and the unfinished body
  Http1Exchange exchange_;
  Task<> running_;  // last: what it uses outlives it
};

}  // namespace fairlead::net::http
