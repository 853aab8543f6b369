#include <array>

#include "net/http1_connection.hpp"
#include "net/http1_head.hpp"

namespace fairlead::net::http {
namespace {

// Buffers that grew beyond this are not kept: an idle stream must stay small.
constexpr std::size_t kKeptOutput = 2048;
constexpr std::size_t kKeptPending = 4096;
constexpr std::size_t kKeptBody = 4096;
constexpr std::size_t kKeptFields = 32;
// Sent bytes in front of unsent ones are given back from here on.
constexpr std::size_t kCompactFrom = 64 * 1024;
constexpr std::size_t kUsualHead = 512;
constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kLastChunk = "0\r\n\r\n";

void clear(std::string& buffer, std::size_t kept) {
  if (buffer.capacity() > kept) {
    buffer = std::string();
  } else {
    buffer.clear();
  }
}

bool has_no_body(int status) { return status / 100 == 1 || status == 204 || status == 304; }

iovec piece(std::string_view text) {
  return {const_cast<char*>(text.data()), text.size()};  // never written to
}

}  // namespace

void Http1Exchange::respond(int status, const HeaderList& headers, std::string_view body) {
  respond_with(status, headers, body, nullptr);
}

void Http1Exchange::respond_owned(int status, const HeaderList& headers, std::string body,
                                  std::shared_ptr<void> kept) {
  if (started_) {
    return;
  }
  respond_with(status, headers, body, &body);
  keep(std::move(kept));
}

void Http1Exchange::keep(std::shared_ptr<void> kept) {
  if (kept && connection_.state_ != Http1Connection::State::Closed) {
    connection_.kept_.push_back(std::move(kept));
  }
}

/// `owned` is null or what `body` looks at, and may be taken.
void Http1Exchange::respond_with(int status, const HeaderList& headers, std::string_view body,
                                 std::string* owned) {
  if (started_) {
    return;
  }
  started_ = finished_ = true;
  if (connection_.state_ == Http1Connection::State::Closed) {
    return;
  }
  ResponseHeadOptions options;
  options.date = connection_.context_.date();
  options.connection = connection_.connection_field(headers);
  if (!has_no_body(status)) {
    options.content_length = body.size();
  }
  std::string& output = connection_.output_;
  const bool with_body = !has_no_body(status) && request_.method != "HEAD";
  if (owned && with_body && output.empty()) {
    std::string head;
    append_response_head(head, status, headers, options);
    owned->insert(0, head);
    output = std::move(*owned);
  } else {
    output.reserve(output.size() + kUsualHead + (with_body ? body.size() : 0));
    append_response_head(output, status, headers, options);
    if (with_body) {
      output.append(body);
    }
  }
  connection_.reactor_.flush_later(connection_);
}

void Http1Exchange::start(int status, const HeaderList& headers) {
  if (started_) {
    return;
  }
  started_ = true;
  if (connection_.state_ == Http1Connection::State::Closed) {
    return;
  }
  without_body_ = has_no_body(status) || request_.method == "HEAD";
  chunked_ = connection_.framing_.http11 && !has_no_body(status);
  if (!chunked_ && !without_body_) {
    connection_.keep_alive_ = false;  // only the end of the connection ends this body
  }
  ResponseHeadOptions options;
  options.date = connection_.context_.date();
  options.connection = connection_.connection_field(headers);
  options.chunked = chunked_;
  append_response_head(connection_.output_, status, headers, options);
  connection_.reactor_.flush_later(connection_);
}

void Http1Exchange::commit() {
  if (!started_ || finished_) {
    return;
  }
  if (without_body_ || connection_.state_ == Http1Connection::State::Closed) {
    pending_.clear();
    return;
  }
  committed_ = pending_.size();
  if (committed_ > 0) {
    // The source pauses at what it sees now, even if the socket takes all of it at the next flush.
    above_high_mark_ =
        above_high_mark_ || connection_.unsent() > connection_.context_.limits.high_mark_bytes;
    connection_.reactor_.flush_later(connection_);
  }
}

void Http1Exchange::finish(const HeaderList&) {
  if (!started_ || finished_) {
    return;
  }
  finished_ = true;
  committed_ = 0;
  if (connection_.state_ == Http1Connection::State::Closed) {
    return;
  }
  if (!without_body_) {
    std::string& output = connection_.output_;
    if (!pending_.empty() && chunked_) {
      char head[kChunkHeadBytes];
      output.append(write_chunk_head(head, pending_.size())).append(pending_).append(kLineEnd);
    } else {
      output.append(pending_);
    }
    if (chunked_) {
      output.append(kLastChunk);
    }
  }
  clear(pending_, kKeptPending);
  connection_.reactor_.flush_later(connection_);
}

std::size_t Http1Exchange::unsent() const { return connection_.unsent(); }

void Http1Exchange::reset() {
  request_.method.clear();
  request_.path.clear();
  request_.query.clear();
  clear(request_.body, kKeptBody);
  if (request_.headers.size() > kKeptFields) {
    request_.headers = HeaderList();
  } else {
    request_.headers.clear();
  }
  clear(pending_, kKeptPending);
  on_drain_ = nullptr;
  committed_ = 0;
  started_ = finished_ = chunked_ = without_body_ = above_high_mark_ = false;
}

std::string_view Http1Connection::connection_field(const HeaderList& headers) {
  const auto asked = headers.find("connection");
  if (context_.draining || (asked && *asked == "close") ||
      (peer_eof_ && !context_.limits.allow_half_close)) {
    keep_alive_ = false;
  }
  if (!keep_alive_) {
    return "close";
  }
  return framing_.http11 ? "" : "keep-alive";
}

void Http1Connection::write_refusal(int status, std::string_view message) {
  const std::string body = context_.error_body(status, message);
  ResponseHeadOptions options;
  options.date = context_.date();
  options.connection = "close";
  options.content_length = body.size();
  HeaderList headers = {{"content-type", "application/json"}};
  context_.add_retry_after(status, headers);
  append_response_head(output_, status, headers, options);
  output_.append(body);
}

void Http1Connection::write_out() {
  while (!blocked_ && write_once()) {
  }
  if (state_ != State::Closed) {
    check_marks();
  }
}

// True when there is more to write and the stream may take it.
bool Http1Connection::write_once() {
  std::array<iovec, 4> pieces;
  std::size_t count = 0;
  std::size_t total = 0;
  const auto add = [&](std::string_view text) {
    pieces[count++] = piece(text);
    total += text.size();
  };
  if (state_ == State::Closed) {
    return false;
  }
  if (output_offset_ < output_.size()) {
    add(std::string_view(output_).substr(output_offset_));
  }
  char head_buffer[kChunkHeadBytes];
  std::string_view chunk_head;
  if (exchange_.committed_ > 0) {
    if (exchange_.chunked_) {
      chunk_head = write_chunk_head(head_buffer, exchange_.committed_);
      add(chunk_head);
    }
    add(std::string_view(exchange_.pending_).substr(0, exchange_.committed_));
    if (exchange_.chunked_) {
      add(kLineEnd);
    }
  }
  if (count == 0) {
    return false;
  }
  const IoResult result = stream_->write({pieces.data(), count});
  if (result.status == IoResult::Status::Ok && result.bytes > 0) {
    consume_output(result.bytes, chunk_head);
    write_deadline_ = TimePoint::max();
    return result.bytes < total;
  }
  if (result.status == IoResult::Status::Failed) {
    broken(result.error);
  } else {
    blocked_ = true;
  }
  return false;
}

// Forgets what was written. A chunk that was begun is fixed: its rest moves to the output, and what
// is committed from now on goes into another chunk.
void Http1Connection::consume_output(std::size_t written, std::string_view chunk_head) {
  const std::size_t waiting = output_.size() - output_offset_;
  if (written < waiting) {
    output_offset_ += written;
    if (output_offset_ >= kCompactFrom && output_offset_ >= output_.size() / 2) {
      output_.erase(0, output_offset_);
      output_offset_ = 0;
    }
    return;
  }
  written -= waiting;
  clear(output_, kKeptOutput);
  kept_.clear();
  output_offset_ = 0;
  if (written == 0) {
    return;
  }
  std::string& pending = exchange_.pending_;
  for (const std::string_view part :
       {chunk_head, std::string_view(pending).substr(0, exchange_.committed_),
        exchange_.chunked_ ? kLineEnd : std::string_view()}) {
    const std::size_t gone = std::min(written, part.size());
    written -= gone;
    output_.append(part.substr(gone));
  }
  if (exchange_.committed_ == pending.size()) {
    clear(pending, kKeptPending);
  } else {
    pending.erase(0, exchange_.committed_);
  }
  exchange_.committed_ = 0;
}

void Http1Connection::check_marks() {
  const std::size_t waiting = unsent();
  const ServerLimits& limits = context_.limits;
  if (waiting == 0) {
    write_deadline_ = TimePoint::max();
  } else if (write_deadline_ == TimePoint::max()) {
    write_deadline_ = reactor_.now() + limits.slow_reader_timeout;
    arm();
  }
  const bool streaming = state_ == State::Busy && exchange_.started_ && !exchange_.finished_;
  if (!streaming) {
    return;
  }
  if (waiting > limits.max_unsent_bytes) {
    bump(context_.counters.slow_readers_cut);
    cut("it reads too slowly");
  } else if (waiting > limits.high_mark_bytes) {
    exchange_.above_high_mark_ = true;
  } else if (exchange_.above_high_mark_ && waiting <= limits.low_mark_bytes) {
    exchange_.above_high_mark_ = false;
    auto callback = std::move(exchange_.on_drain_);
    exchange_.on_drain_ = nullptr;
    if (callback) {
      callback();
      if (!exchange_.on_drain_) {
        exchange_.on_drain_ = std::move(callback);
      }
    }
  }
}

}  // namespace fairlead::net::http
