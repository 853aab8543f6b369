#pragma once

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/event.hpp"
#include "net/http_server.hpp"
#include "net/stream.hpp"
#include "net/testing.hpp"

namespace fairlead::net::testing {

/// The bytes of one end of a stream: sends what it is told, collects what comes.
class BytePeer final : public StreamHandler {
 public:
  explicit BytePeer(std::unique_ptr<Stream> stream) : stream_(std::move(stream)) {
    stream_->set_handler(this);
  }

  void send(std::string_view bytes) {
    unsent_.append(bytes);
    write();
  }
  /// Ends our direction behind everything that was sent.
  void shutdown() {
    shutting_ = true;
    write();
  }
  void close() { stream_.reset(); }
  void reset() {
    stream_->set_abortive();
    stream_.reset();
  }
  /// While paused nothing is read.
  void pause() { paused_ = true; }
  void resume() {
    paused_ = false;
    on_readable();
  }

  /// Reads at most `count` bytes although paused.
  void read_once(std::size_t count) {
    std::array<char, 1024> buffer;
    const IoResult result = stream_->read(std::span(buffer).first(count));
    text.append(buffer.data(), result.bytes);
  }
  /// Bytes that the stream has not taken yet.
  std::size_t unsent() const { return unsent_.size(); }

  void on_readable() override {
    std::array<char, 64 * 1024> buffer;
    while (stream_ && !paused_ && !ended) {
      const IoResult result = stream_->read(buffer);
      if (result.status == IoResult::Status::Ok) {
        text.append(buffer.data(), result.bytes);
      } else if (result.status == IoResult::Status::WouldBlock) {
        return;
      } else {
        ended = true;
        failed = result.status == IoResult::Status::Failed;
      }
    }
  }
  void on_writable() override { write(); }

  std::string text;
  bool ended = false;   // by EOF or an error
  bool failed = false;  // by an error

 private:
  void write() {
    while (stream_ && !unsent_.empty()) {
      const iovec piece{unsent_.data(), unsent_.size()};
      const IoResult result = stream_->write({&piece, 1});
      if (result.status == IoResult::Status::Failed) {
        unsent_.clear();
      } else if (result.status != IoResult::Status::Ok) {
        return;
      }
      unsent_.erase(0, result.bytes);
    }
    if (stream_ && std::exchange(shutting_, false)) {
      stream_->shutdown_write();
    }
  }

  std::unique_ptr<Stream> stream_;
  std::string unsent_;
  bool paused_ = false;
  bool shutting_ = false;
};

/// Removes the Date fields, which differ from run to run.
inline std::string without_dates(std::string text) {
  for (std::size_t at = 0; (at = text.find("date: ", at)) != std::string::npos;) {
    const std::size_t end = text.find("\r\n", at);
    text.erase(at, end == std::string::npos ? end : end + 2 - at);
  }
  return text;
}

/// How often `part` occurs in `text`.
inline std::size_t count_of(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; ++at) {
    ++count;
  }
  return count;
}

inline std::string plain_error(int status, std::string_view message) {
  return std::to_string(status) + " " + std::string(message);
}

/// A server whose clients are the other ends of pipes, in one reactor.
class PipeServer {
 public:
  explicit PipeServer(http::Handler handler, const http::ServerLimits& limits = {}) {
    server.emplace(std::move(handler), limits, plain_error);
  }
  ~PipeServer() {
    in_turn(reactor, [&] {
      server.reset();
      peers.clear();
    });
    reactor.run_turn(Duration(0));
  }
  PipeServer(const PipeServer&) = delete;
  PipeServer& operator=(const PipeServer&) = delete;

  BytePeer& connect(std::size_t max_read = 0, std::size_t capacity = 64 * 1024) {
    in_turn(reactor, [&] {
      auto [ours, theirs] = make_pipe(max_read, capacity);
      peers.push_back(std::make_unique<BytePeer>(std::move(ours)));
      server->accept(std::move(theirs));
    });
    return *peers.back();
  }
  void send(BytePeer& peer, std::string_view text) {
    in_turn(reactor, [&] { peer.send(text); });
  }
  /// Runs turns until `done`.
  bool until(const std::function<bool()>& done) { return run_until(reactor, done); }
  /// Runs enough turns for bytes on their way to arrive and to be answered.
  void settle() {
    for (int i = 0; i < 8; ++i) {
      reactor.run_turn(Duration(0));
    }
  }
  /// Sends the parts, each in turns of its own, then ends the request direction; what the server
  /// answered until it closed. Needs `allow_half_close`.
  std::string talk(const std::vector<std::string_view>& parts, std::size_t max_read = 0) {
    BytePeer& peer = connect(max_read);
    for (const std::string_view part : parts) {
      send(peer, part);
      settle();
    }
    in_turn(reactor, [&] { peer.shutdown(); });
    EXPECT_TRUE(until([&] { return peer.ended; })) << parts.front();
    EXPECT_FALSE(peer.failed);
    std::string answer = without_dates(std::move(peer.text));
    in_turn(reactor, [&] { peers.pop_back(); });
    return answer;
  }

  Reactor reactor;
  std::optional<http::Server> server;
  std::vector<std::unique_ptr<BytePeer>> peers;
};

}  // namespace fairlead::net::testing
