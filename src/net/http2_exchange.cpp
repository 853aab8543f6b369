#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <utility>

#include "base/log.hpp"
#include "net/grpc_wire.hpp"
#include "net/http1_head.hpp"
#include "net/http2_server.hpp"

namespace fairlead::net::http {
namespace {

// Reserved on the word of a Content-Length; more only as bytes really come.
constexpr std::size_t kTrustedBody = 1024 * 1024;
// Requests being received on one connection may hold this many whole bodies together.
constexpr std::size_t kBodiesInParallel = 4;

bool has_no_body(int status) { return status == 204 || status == 304; }

// Control characters would end the field for the peer, or the connection.
std::string_view clean(std::string_view value, std::string& scratch) {
  const auto bad = [](char c) { return static_cast<unsigned char>(c) < ' ' && c != '\t'; };
  if (std::ranges::none_of(value, bad)) {
    return value;
  }
  scratch = value;
  std::ranges::replace_if(scratch, bad, ' ');
  return scratch;
}

}  // namespace

Http2Exchange::Http2Exchange(Http2Connection& connection) : connection_(connection) {
  output_ = &pending_;
  request_.http2 = true;
  request_.peer = connection.transport().peer();
  deadline_ = connection.reactor().now() + connection.context_.limits.header_timeout;
}

void Http2Exchange::on_header(std::string_view name, std::string_view value) {
  if (head_done_ || refused_) {
    return;  // trailers say nothing to a handler
  }
  if (name.starts_with(':')) {
    add_pseudo(name, value);
    return;
  }
  if (name == "content-length") {
    std::from_chars(value.data(), value.data() + value.size(), content_length_);
  }
  // HTTP/2 clients may send each cookie as a field of its own (RFC 9113 section 8.2.3).
  if (name == "cookie") {
    cookies_.append(cookies_.empty() ? "" : "; ").append(value);
    return;
  }
  request_.headers.add(std::string(name), std::string(value));
}

void Http2Exchange::add_pseudo(std::string_view name, std::string_view value) {
  if (name == ":method") {
    request_.method = value;
  } else if (name == ":path") {
    target_ = value;
  } else if (name == ":authority") {
    authority_ = value;
  }
}

void Http2Exchange::on_headers(bool too_large, bool end_stream) {
  remote_ended_ = end_stream;
  if (std::exchange(head_done_, true) || refused_) {
    return;
  }
  if (!cookies_.empty()) {
    request_.headers.add("cookie", std::move(cookies_));
  }
  if (!authority_.empty() && !request_.headers.find("host")) {
    request_.headers.add("host", std::move(authority_));
  }
  if (too_large) {
    refuse(431, "the request's header fields are above the limit");
  } else if (request_.method == "CONNECT" || !split_target(target_, request_)) {
    refuse(400, "malformed request target");
  } else {
    begin_body();
  }
}

bool Http2Exchange::is_grpc() const {
  const auto type = request_.headers.find("content-type");
  return type && grpc::is_grpc_content_type(*type);
}

void Http2Exchange::begin_body() {
  const ServerLimits& limits = connection_.context_.limits;
  // A gRPC client learns of its message's size below, from the message itself.
  if (content_length_ > limits.body_bytes && !is_grpc()) {
    refuse_body(content_length_);
    return;
  }
  if (!connection_.share_.has_room(content_length_)) {
    refuse_for_room();
    return;
  }
  if (content_length_ > 0) {
    const auto expect = request_.headers.find("expect");
    if (expect && *expect == "100-continue") {
      const http2::Field field{":status", "100"};
      session()->send_interim(*this, {&field, 1});
    }
    request_.body.reserve(std::min<std::uint64_t>(content_length_, kTrustedBody) + kBodyPadding);
  }
  deadline_ = connection_.reactor().now() + limits.body_timeout;
}

void Http2Exchange::on_data(std::string_view bytes) {
  if (!receiving_) {
    return;
  }
  const ServerLimits& limits = connection_.context_.limits;
  std::string& body = request_.body;
  body.append(bytes);
  connection_.body_bytes_ += bytes.size();
  deadline_ = limits.body_deadline(deadline_, bytes.size(), connection_.reactor().now());
  if (body.size() > limits.body_bytes) {
    refuse_body(body.size());
  } else if (connection_.body_bytes_ > kBodiesInParallel * limits.body_bytes) {
    refuse(503, "too many large requests at once on one connection");
  } else if (!connection_.share_.hold(connection_.body_bytes_)) {
    refuse_for_room();
  }
}

void Http2Exchange::on_remote_end() {
  remote_ended_ = true;
  if (receiving_) {
    end_receiving();
    dispatch();
  }
}

void Http2Exchange::end_receiving() {
  receiving_ = false;
  deadline_ = TimePoint::max();
  connection_.body_bytes_ -= std::min(connection_.body_bytes_, request_.body.size());
  connection_.share_.hold(connection_.body_bytes_);
}

void Http2Exchange::refuse_for_room() {
  bump(connection_.context_.counters.bodies_refused);
  refuse(503, kNoRoomText);
}

void Http2Exchange::refuse_body(std::uint64_t declared) {
  if (!is_grpc()) {
    refuse(413, body_too_large_text(connection_.context_.limits.body_bytes));
    return;
  }
  grpc::MessageReader reader(0);
  std::string_view input = request_.body;
  std::string_view message;
  reader.next(input, message);
  const std::uint64_t found = reader.length() > 0 ? reader.length() : declared;
  refuse(413, grpc::too_large_text(found, connection_.context_.limits.body_bytes));
}

// Answers without the handler; what still comes of the request is not wanted.
void Http2Exchange::refuse(int status, std::string_view message) {
  bump(connection_.context_.counters.bad_requests);
  end_receiving();
  refused_ = returned_ = true;
  connection_.set_paused(*this, true);
  std::string().swap(request_.body);
  if (is_grpc()) {
    const auto code = status == 408   ? grpc::StatusCode::Cancelled
                      : status == 400 ? grpc::StatusCode::Internal
                      : status == 503 ? grpc::StatusCode::Unavailable
                                      : grpc::StatusCode::ResourceExhausted;
    respond(200,
            {{"content-type", "application/grpc"},
             {"grpc-status", std::to_string(static_cast<int>(code))},
             {"grpc-message", grpc::percent_encode(message)}},
            {});
  } else {
    HeaderList headers = {{"content-type", "application/json"}};
    connection_.context_.add_retry_after(status, headers);
    respond(status, headers, connection_.context_.error_body(status, message));
  }
}

// Called when the answer to a refused request is on its way: the rest of the request is not read.
void Http2Exchange::stop_reading() {
  if (remote_ended_) {
    return;  // the stream closes by itself
  }
  connection_.reset(*this, http2::ErrorCode::NoError);
  over(false);
}

void Http2Exchange::dispatch() {
  ServerContext& context = connection_.context_;
  std::string& body = request_.body;
  if (body.capacity() < body.size() + kBodyPadding) {
    body.reserve(body.size() + kBodyPadding);
  }
  bump(context.counters.requests_total);
  ++connection_.in_flight_;
  running_ = run();
  running_.handle().resume();
}

Task<> Http2Exchange::run() {
  try {
    co_await connection_.context_.handler(*this);
  } catch (const std::exception& e) {
    log::error("a request handler ended with an exception: {}", e.what());
  } catch (...) {
    log::error("a request handler ended with an unknown exception");
  }
  handler_returned();
}

// Runs below the handler's coroutine, which therefore must not be destroyed here.
void Http2Exchange::handler_returned() {
  returned_ = true;
  --connection_.in_flight_;
  if (gone_) {
    connection_.bury(*this);
    return;
  }
  if (!started_) {
    respond(500, {{"content-type", "application/json"}},
            connection_.context_.error_body(500, "internal error"));
  } else if (!finished_) {
    gone_ = true;
    connection_.reset(*this, http2::ErrorCode::InternalError);
    connection_.bury(*this);
  }
}

void Http2Exchange::on_closed(http2::ErrorCode, std::string_view) { over(true); }

// The stream is gone. Never called below the handler.
void Http2Exchange::over(bool client_left) {
  gone_ = true;
  deadline_ = TimePoint::max();
  if (receiving_) {
    end_receiving();
    returned_ = true;
  } else if (!returned_ && !finished_) {
    if (client_left) {
      bump(connection_.context_.counters.clients_gone);
    }
    --connection_.in_flight_;
    returned_ = true;
    running_ = {};
  }
  if (returned_) {
    connection_.bury(*this);
  }
}

void Http2Exchange::cut(std::string_view why) {
  log::info("client {} cut: {}", request_.peer, why);
  bump(connection_.context_.counters.slow_readers_cut);
  connection_.reset(*this, http2::ErrorCode::Cancel);
  over(false);
}

void Http2Exchange::send_head(int status, const HeaderList& headers, bool end_stream,
                              std::optional<std::size_t> content_length) {
  const std::string status_text = std::to_string(status);
  const std::string length = content_length ? std::to_string(*content_length) : std::string();
  std::vector<std::string> cleaned(headers.size());
  std::vector<http2::Field> fields;
  fields.reserve(headers.size() + 3);
  fields.push_back({":status", status_text});
  std::size_t i = 0;
  for (const Header& header : headers) {
    std::string& scratch = cleaned[i++];
    if (!is_writers_field(header.name)) {
      fields.push_back({header.name, clean(header.value, scratch)});
    }
  }
  if (content_length) {
    fields.push_back({"content-length", length, true});
  }
  fields.push_back({"date", connection_.context_.date()});
  connection_.send_headers(*this, fields, end_stream);
}

void Http2Exchange::respond(int status, const HeaderList& headers, std::string_view body) {
  respond_with(status, headers, body, nullptr);
}

void Http2Exchange::respond_owned(int status, const HeaderList& headers, std::string body,
                                  std::shared_ptr<void> kept) {
  kept_ = std::move(kept);
  respond_with(status, headers, body, &body);
}

/// `owned` is null or what `body` looks at, and may be taken.
void Http2Exchange::respond_with(int status, const HeaderList& headers, std::string_view body,
                                 std::string* owned) {
  if (started_) {
    return;
  }
  started_ = finished_ = true;
  if (gone_) {
    return;
  }
  const bool with_body = !body.empty() && !has_no_body(status) && request_.method != "HEAD";
  const auto type = headers.find("content-type");
  const bool grpc = type && grpc::is_grpc_content_type(*type);
  std::optional<std::size_t> length;
  if (!has_no_body(status) && !grpc) {
    length = body.size();
  }
  if (with_body) {
    if (owned) {
      pending_ = std::move(*owned);
    } else {
      pending_ = body;
    }
    output_begin_ = 0;
    output_end_ = pending_.size();
  }
  output_closed_ = true;
  send_head(status, headers, !with_body, length);
  note_output();
}

void Http2Exchange::start(int status, const HeaderList& headers) {
  if (started_) {
    return;
  }
  started_ = true;
  without_body_ = has_no_body(status) || request_.method == "HEAD";
  if (!gone_) {
    send_head(status, headers, without_body_, std::nullopt);
  }
}

void Http2Exchange::commit() {
  if (!started_ || finished_) {
    return;
  }
  if (without_body_ || gone_) {
    pending_.clear();
    output_begin_ = output_end_ = 0;
    return;
  }
  output_end_ = pending_.size();
  connection_.commit(*this);
  note_output();
}

void Http2Exchange::finish(const HeaderList& trailers) {
  if (!started_ || finished_) {
    return;
  }
  finished_ = true;
  if (without_body_ || gone_) {
    return;
  }
  trailers_ = trailers;
  output_end_ = pending_.size();
  output_closed_ = true;
  connection_.commit(*this);
  note_output();
}

std::size_t Http2Exchange::unsent() const {
  return pending_.size() - std::min(output_begin_, pending_.size());
}

// Keeps the reader's deadline and the high mark after output was added.
void Http2Exchange::note_output() {
  const ServerLimits& limits = connection_.context_.limits;
  const std::size_t waiting = unsent();
  if (waiting == 0) {
    return;
  }
  if (deadline_ == TimePoint::max()) {
    deadline_ = connection_.reactor().now() + limits.slow_reader_timeout;
  }
  above_high_mark_ = above_high_mark_ || waiting > limits.high_mark_bytes;
  if (waiting > limits.max_unsent_bytes && !finished_) {
    connection_.check_unsent_ = true;  // looked at when the turn's output is on its way
  }
}

void Http2Exchange::on_output_taken() {
  const ServerLimits& limits = connection_.context_.limits;
  const std::size_t waiting = unsent();
  deadline_ =
      waiting == 0 ? TimePoint::max() : connection_.reactor().now() + limits.slow_reader_timeout;
  if (refused_ && waiting == 0) {
    stop_reading();
    return;
  }
  if (above_high_mark_ && waiting <= limits.low_mark_bytes) {
    above_high_mark_ = false;
    if (!finished_ && on_drain_) {
      auto callback = std::move(on_drain_);
      on_drain_ = nullptr;
      callback();
      if (!on_drain_) {
        on_drain_ = std::move(callback);
      }
    }
  }
}

}  // namespace fairlead::net::http
