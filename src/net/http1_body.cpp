#include <algorithm>

#include "base/log.hpp"
#include "net/http1_connection.hpp"

// Request bodies of an HTTP/1 connection, and the bounds on what it holds of unfinished requests.

namespace fairlead::net::http {
namespace {

// A body of known length is read straight into its place, in pieces of at most this.
constexpr std::size_t kBodyPiece = 256 * 1024;
// What a Content-Length alone makes us reserve.
constexpr std::size_t kTrustedBody = 1024 * 1024;

}  // namespace

// `at_hand` bytes behind the head have been read: a body that is whole needs no room.
void Http1Connection::begin_body(std::size_t at_hand) {
  const ServerLimits& limits = context_.limits;
  if (framing_.content_length > limits.body_bytes) {
    refuse(413, body_too_large_text(context_.limits.body_bytes));
    return;
  }
  if (!framing_.chunked && framing_.content_length == 0) {
    run_request();
    return;
  }
  if (framing_.content_length > at_hand && !share_.has_room(framing_.content_length)) {
    refuse_for_room();
    return;
  }
  if (framing_.expect_continue) {
    output_.append("HTTP/1.1 100 Continue\r\n\r\n");
    reactor_.flush_later(*this);
  }
  credited_ = 0;
  state_deadline_ = reactor_.now() + limits.body_timeout;  // armed when more has to come
  if (framing_.chunked) {
    decoder_.emplace(limits.body_bytes, limits.header_bytes, limits.header_count);
    state_ = State::Chunked;
  } else {
    body_remaining_ = framing_.content_length;
    reserve_body(std::min<std::uint64_t>(body_remaining_, kTrustedBody));
    state_ = State::Body;
  }
}

void Http1Connection::reserve_body(std::size_t bytes) {
  std::string& body = exchange_.request_.body;
  const std::size_t needed = bytes + kBodyPadding;
  if (body.capacity() < needed) {
    const std::size_t whole = framing_.content_length + kBodyPadding;
    body.reserve(std::max(needed, std::min(whole, 2 * body.capacity())));
  }
}

void Http1Connection::read_body() {
  std::string& body = exchange_.request_.body;
  const std::size_t size = body.size();
  const std::size_t wanted = std::min<std::uint64_t>(body_remaining_, kBodyPiece);
  reserve_body(size + wanted);
  IoResult result;
  body.resize_and_overwrite(size + wanted, [&](char* data, std::size_t) {
    result = stream_->read({data + size, wanted});
    return size + (result.status == IoResult::Status::Ok ? result.bytes : 0);
  });
  if (result.status != IoResult::Status::Ok) {
    read_ended(result);
    return;
  }
  body_remaining_ -= result.bytes;
  if (body_remaining_ == 0) {
    run_request();
  } else {
    credit_body();
  }
  count_held();
}

std::size_t Http1Connection::process_body(std::string_view bytes) {
  const std::size_t count = std::min<std::uint64_t>(body_remaining_, bytes.size());
  std::string& body = exchange_.request_.body;
  reserve_body(body.size() + count);
  body.append(bytes.substr(0, count));
  body_remaining_ -= count;
  if (body_remaining_ == 0) {
    run_request();
  }
  return count;
}

std::size_t Http1Connection::process_chunks(std::string_view bytes) {
  std::size_t consumed = 0;
  switch (decoder_->feed(bytes, consumed, exchange_.request_.body)) {
    case ChunkedDecoder::Status::NeedMore: return consumed;
    case ChunkedDecoder::Status::Complete: run_request(); return consumed;
    case ChunkedDecoder::Status::BodyTooLarge:
      refuse(413, body_too_large_text(context_.limits.body_bytes));
      return bytes.size();
    case ChunkedDecoder::Status::HeadsTooLarge:
      refuse(431, "the request's chunk heads or trailers are too large");
      return bytes.size();
    case ChunkedDecoder::Status::Malformed: break;
  }
  refuse(400, "malformed chunked body");
  return bytes.size();
}

// Only bytes of the body itself buy time: chunk heads, extensions and trailers are not progress.
void Http1Connection::credit_body() {
  const std::size_t size = exchange_.request_.body.size();
  state_deadline_ =
      context_.limits.body_deadline(state_deadline_, size - credited_, reactor_.now());
  credited_ = size;
  arm();
}

// Books what this connection holds of requests that are not complete, or not begun.
void Http1Connection::count_held() {
  if (state_ >= State::Closing) {
    share_.hold(0);
    return;
  }
  const bool inside = state_ == State::Body || state_ == State::Chunked;
  const std::size_t body = inside ? exchange_.request_.body.size() : 0;
  if (share_.hold(input_.size() + body)) {
    return;
  }
  if (state_ == State::Busy) {
    overrun();
    input_ = std::string();
    share_.hold(0);
  } else {
    refuse_for_room();
  }
}

// The client is too far ahead of its running request. Nothing more of it is kept, but reading goes
// on: its leave stands behind those bytes. It is answered what was kept whole, then closed.
void Http1Connection::overrun() {
  log::info("client {} sent too much ahead of its running request; the rest is dropped",
            stream_->peer());
  overrun_ = true;
}

void Http1Connection::refuse_for_room() {
  bump(context_.counters.bodies_refused);
  refuse(503, kNoRoomText);
}

}  // namespace fairlead::net::http
