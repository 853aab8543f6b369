#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "net/reactor.hpp"
#include "net/socket.hpp"
#include "net/stream.hpp"

namespace fairlead::loadgen {

/// What one request gave.
struct Outcome {
  bool ok = false;             ///< 200, complete, and ended as it must.
  std::string problem;         ///< Why not.
  std::string text;            ///< Joined content.
  int chunks = 0;              ///< Content chunks.
  net::TimePoint sent;         ///< When the request left.
  net::TimePoint first;        ///< First content.
  net::TimePoint done;         ///< End of the answer.
  std::vector<float> gaps_ms;  ///< Times between content chunks.
};

/// One keep-alive HTTP/1.1 connection with one request at a time. Parses just what a well-behaved
/// server sends and treats everything else as a failed request.
class Connection final : private net::StreamHandler {
 public:
  using OnDone = std::function<void(Connection&, Outcome)>;

  /// Takes a connected stream.
  Connection(std::unique_ptr<net::Stream> stream, bool sse, OnDone on_done);

  /// Sends a request; the former one must have ended.
  void send(const std::string& bytes);
  /// False once the server closed or the answer was broken.
  bool usable() const { return usable_; }

 private:
  void on_readable() override;
  void on_writable() override { write_some(); }
  void write_some();
  void parse();
  bool parse_head();
  bool parse_body();
  void take_body(std::string_view bytes);
  void take_event(std::string_view data);
  void finish(std::string problem);

  std::unique_ptr<net::Stream> stream_;
  bool sse_;
  OnDone on_done_;
  bool usable_ = true;
  bool running_ = false;
  std::string output_;
  std::size_t written_ = 0;
  std::string input_;
  std::size_t pos_ = 0;
  bool in_head_ = true;
  bool chunked_ = false;
  std::size_t remaining_ = 0;  // of the chunk, or of the whole body
  bool in_chunk_ = false;
  bool done_seen_ = false;
  bool finish_seen_ = false;
  int status_ = 0;
  std::string body_;  // unparsed body bytes: an incomplete SSE line, or the whole JSON
  net::TimePoint last_;
  Outcome outcome_;
};

}  // namespace fairlead::loadgen
