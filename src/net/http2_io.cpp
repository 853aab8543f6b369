#include <nghttp2/nghttp2.h>

#include <cstring>
#include <memory>
#include <utility>

#include "net/http2.hpp"

// The bytes of a session: what is read goes through nghttp2, what a turn submitted leaves in few
// writes.

namespace fairlead::net::http2 {
namespace {

constexpr std::size_t kReadBytes = 256 * 1024;
// Full reads of one connection per turn, so that a fast peer does not starve the others.
constexpr int kReadsPerTurn = 4;
// Buffers that grew beyond this are given back once they are empty: idle streams must stay small.
constexpr std::size_t kKeptBytes = 4096;

// One per thread: what is read is consumed before the next read.
std::span<char> read_buffer() {
  thread_local const std::unique_ptr<char[]> buffer(new char[kReadBytes]);
  return {buffer.get(), kReadBytes};
}

std::string& batch_buffer() {
  thread_local std::string batch;
  return batch;
}

}  // namespace

void Session::on_readable() { read_some(); }

void Session::on_writable() {
  if (blocked_) {
    blocked_ = false;
    reactor_.flush_later(*this);
  }
}

void Session::flush() {
  if (read_more_) {
    read_some();
  }
  if (closed_) {
    return;
  }
  for (const std::int32_t id : dirty_) {
    nghttp2_session_resume_data(session_, id);  // fails only when the stream is gone
  }
  dirty_.clear();
  send();
  if (!closed_ && unsent_.empty() && nghttp2_session_want_read(session_) == 0 &&
      nghttp2_session_want_write(session_) == 0) {
    close("the connection was shut down");
  }
}

void Session::read_some() {
  read_more_ = false;
  const std::span<char> buffer = read_buffer();
  for (int i = 0; i < kReadsPerTurn; ++i) {
    const IoResult result = stream_->read(buffer);
    switch (result.status) {
      case IoResult::Status::Ok:
        if (!feed({buffer.data(), result.bytes})) {
          return;
        }
        break;
      case IoResult::Status::WouldBlock: return;
      case IoResult::Status::Eof: close("the peer closed the connection"); return;
      case IoResult::Status::Failed: close(std::strerror(result.error)); return;
    }
  }
  read_more_ = true;
  reactor_.flush_later(*this);
}

bool Session::feed(std::string_view bytes) {
  last_received_ = reactor_.now();
  received_ = 0;
  const ssize_t count = nghttp2_session_mem_recv(
      session_, reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  if (closed_) {
    return false;
  }
  if (count < 0) {
    send();  // the GOAWAY, if there is one
    close(nghttp2_strerror(static_cast<int>(count)));
    return false;
  }
  if (received_ > 0) {
    nghttp2_session_consume_connection(session_, received_);
  }
  if (nghttp2_session_want_write(session_) != 0 || nghttp2_session_want_read(session_) == 0) {
    reactor_.flush_later(*this);
  }
  return true;
}

std::size_t Session::write(std::string_view bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const iovec piece{const_cast<char*>(bytes.data()) + done, bytes.size() - done};
    const IoResult result = stream_->write({&piece, 1});
    if (result.status == IoResult::Status::Ok) {
      done += result.bytes;
      written_ += result.bytes;
    } else if (result.status == IoResult::Status::WouldBlock) {
      blocked_ = true;
      break;
    } else {
      // What the peer sent before it left says more than the failed write.
      blocked_ = true;
      do {
        read_some();
      } while (!closed_ && read_more_);
      close(std::strerror(result.error));
      break;
    }
  }
  return done;
}

bool Session::write_unsent() {
  if (!unsent_.empty()) {
    unsent_.erase(0, write(unsent_));
    if (unsent_.empty() && unsent_.capacity() > kKeptBytes) {
      std::string().swap(unsent_);
    }
  }
  return !blocked_ && !closed_;
}

bool Session::collect(std::string& batch) {
  batch_ = &batch;
  batch_full_ = false;
  while (!batch_full_) {
    const std::size_t before = batch.size();
    const std::uint8_t* data = nullptr;
    const ssize_t count = nghttp2_session_mem_send(session_, &data);
    if (count > 0) {
      batch.append(reinterpret_cast<const char*>(data), static_cast<std::size_t>(count));
      batch_full_ = batch.size() >= kWriteBytes;
    }
    collected_ += batch.size() - before;
    if (count < 0 || closed_) {
      batch_ = nullptr;
      close(count < 0 ? nghttp2_strerror(static_cast<int>(count)) : "closed");
      return false;
    }
    if (count == 0 && batch.size() == before) {
      break;
    }
  }
  batch_ = nullptr;
  return batch_full_;
}

void Session::send() {
  if (blocked_ || closed_ || !write_unsent()) {
    return;
  }
  std::string& batch = batch_buffer();
  bool more = true;
  while (more && !blocked_ && !closed_) {
    batch.clear();
    more = collect(batch);
    if (closed_ || batch.empty()) {
      break;
    }
    const std::size_t done = write(batch);
    if (!closed_) {
      unsent_.assign(batch, done);
    }
  }
  report_taken();
}

void Session::report_taken() {
  for (std::size_t i = 0; i < taken_.size() && !closed_; ++i) {
    SessionStream* const stream =
        static_cast<SessionStream*>(nghttp2_session_get_stream_user_data(session_, taken_[i]));
    if (!stream) {
      continue;
    }
    stream->taken_ = false;
    std::string& output = *stream->output_;
    if (stream->output_begin_ == output.size()) {
      if (output.capacity() > kKeptBytes) {
        std::string().swap(output);
      }
      output.clear();
      stream->output_begin_ = stream->output_end_ = 0;
    } else if (stream->output_begin_ >= kWriteBytes && stream->output_begin_ >= output.size() / 2) {
      output.erase(0, stream->output_begin_);
      stream->output_end_ -= stream->output_begin_;
      stream->output_begin_ = 0;
    }
    stream->on_output_taken();
  }
  taken_.clear();
}

}  // namespace fairlead::net::http2
