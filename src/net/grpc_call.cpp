#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/log.hpp"
#include "net/grpc_client.hpp"

namespace fairlead::net::grpc {
namespace {

constexpr std::string_view kUserAgent = "fairlead";

// The observer is told of larger ones while they arrive.
constexpr std::size_t kSmallMessage = std::size_t{64} * 1024;

bool is_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  });
}

bool is_ascii_value(std::string_view value) {
  return std::ranges::all_of(value, [](char c) { return c >= ' ' && c <= '~'; });
}

// Fields of a request, and the encoded values they point into.
struct RequestFields {
  std::vector<http2::Field> fields;
  std::vector<std::string> encoded;

  void add(const Metadata& metadata) {
    encoded.reserve(metadata.size());  // views into it must stay valid
    for (const auto& [name, value] : metadata) {
      const bool binary = name.ends_with("-bin");
      if (!is_name(name) || name.starts_with("grpc-") || (!binary && !is_ascii_value(value))) {
        log::debug("metadata `{}` cannot be sent and is dropped", name);
        continue;
      }
      if (binary) {
        encoded.push_back(base64_encode(value));
      }
      fields.push_back({name, binary ? std::string_view(encoded.back()) : value, true});
    }
  }
};

}  // namespace

ClientCall::ClientCall(ChannelCore& channel, std::string_view request, CallObserver& observer,
                       const ChannelOptions& options)
    : channel_(&channel), observer_(observer), reader_(options.max_message_bytes) {
  request_.reserve(kPrefixBytes + request.size());
  append_message(request_, request);
  output_ = &request_;
  output_end_ = request_.size();
  output_closed_ = true;
}

ClientCall::~ClientCall() {
  if (session()) {
    session()->reset(*this, http2::ErrorCode::Cancel);
  }
  if (channel_ && !ended_) {
    channel_->call_gone(*this);
  }
}

void ClientCall::forsake() {
  channel_ = nullptr;
  client_ = nullptr;
  ended_ = true;
  waiting = false;
  held_.clear();
  timer_.reset();
}

void ClientCall::keep(std::string_view path, const Metadata& metadata) {
  path_ = path;
  metadata_ = metadata;
}

void ClientCall::set_deadline(TimePoint deadline) {
  deadline_ = deadline;
  timer_.emplace(
      [this] { end({StatusCode::DeadlineExceeded, "deadline exceeded", Status::Origin::Client}); });
  timer_->arm_at(deadline);
}

bool ClientCall::begin(ClientSession& session, std::string_view path, const Metadata& metadata) {
  RequestFields out;
  out.fields = {{":method", "POST"},       {":scheme", "http"},
                {":path", path},           {":authority", channel_->authority()},
                {"te", "trailers"},        {"content-type", "application/grpc"},
                {"user-agent", kUserAgent}};
  std::string timeout;
  if (timer_) {
    timeout = format_timeout(deadline_ - Reactor::current()->now());
    out.fields.push_back({"grpc-timeout", timeout, true});
  }
  out.add(metadata);
  const bool quiet = session.quiet();
  if (!session.open(*this, out.fields)) {
    return false;
  }
  client_ = &session;
  if (quiet) {
    prepare_repeat(path, metadata);
  }
  session.call_began(quiet);
  if (paused_) {
    session.set_paused(*this, true);
  }
  return true;
}

void ClientCall::prepare_repeat(std::string_view path, const Metadata& metadata) {
  repeat_ = request_;
  begun_at_ = Reactor::current()->now();
  if (&metadata != &metadata_) {
    keep(path, metadata);
  }
}

void ClientCall::rewind() {
  request_ = std::exchange(repeat_, {});
  output_begin_ = 0;
  output_end_ = request_.size();
  sent_at_ = 0;
}

void ClientCall::pause() {
  paused_ = true;
  if (client_) {
    client_->set_paused(*this, true);
  }
}

void ClientCall::resume() {
  paused_ = false;
  if (!held_.empty()) {
    Reactor::current()->flush_later(redelivery_);  // the window stays closed until all is handed on
  } else if (client_) {
    client_->set_paused(*this, false);
  }
}

void ClientCall::on_header(std::string_view name, std::string_view value) {
  if (ended_) {
    return;
  }
  if (name == ":status") {
    http_status_ = 0;
    std::from_chars(value.data(), value.data() + value.size(), http_status_);
  } else if (name == "content-type") {
    content_type_ok_ = is_grpc_content_type(value);
  } else if (name == "grpc-status") {
    status_ = parse_status(value);
  } else if (name == "grpc-message") {
    status_message_ = percent_decode(value);
  }
}

void ClientCall::on_headers(bool too_large, bool end_stream) {
  if (ended_) {
    return;
  }
  client_->data_seen();
  std::string().swap(repeat_);
  if (too_large) {
    end({StatusCode::ResourceExhausted, "the response's header fields are above the limit",
         Status::Origin::Client});
    return;
  }
  if (answered_ || end_stream) {
    return;  // trailers: on_remote_end follows
  }
  if (http_status_ >= 100 && http_status_ < 200) {
    return;
  }
  answered_ = true;
  if (http_status_ != 200 || !content_type_ok_) {
    end(final_status());
    return;
  }
  // Only the trailers may say how the call ends.
  status_.reset();
  status_message_.clear();
}

void ClientCall::on_data(std::string_view bytes) {
  if (ended_) {
    return;
  }
  client_->data_seen();
  if (held_.empty()) {
    consume(bytes);
  } else {
    held_ += bytes;
  }
}

// An observer may pause the call from inside a message: the rest waits here.
void ClientCall::consume(std::string_view bytes) {
  std::string_view message;
  while (!ended_) {
    if (paused_) {
      held_ += bytes;
      return;
    }
    switch (reader_.next(bytes, message)) {
      case MessageReader::Status::NeedMore:
        if (reader_.unfinished() > kSmallMessage) [[unlikely]] {
          observer_.on_unfinished(reader_.unfinished());
        }
        return;
      case MessageReader::Status::Message: observer_.on_message(message); break;
      case MessageReader::Status::Compressed:
        end({StatusCode::Internal, "the server sent a compressed message, which was not offered",
             Status::Origin::Client});
        return;
      case MessageReader::Status::TooLarge:
        end({StatusCode::ResourceExhausted,
             too_large_text(reader_.length(), channel_->options().max_message_bytes),
             Status::Origin::Client});
        return;
    }
  }
}

void ClientCall::on_output_taken() {
  if (output_left() == 0) {
    std::string().swap(request_);
  }
}

void ClientCall::deliver_held() {
  const std::string bytes = std::exchange(held_, {});
  consume(bytes);
  if (!held_.empty() || ended_) {
    return;
  }
  if (remote_ended_) {
    end(final_status());
  } else if (closed_) {
    end(failure_);
  } else if (client_ && !paused_) {
    client_->set_paused(*this, false);
  }
}

Status ClientCall::final_status() const {
  if (http_status_ != 200 && !status_) {
    return {status_of_http(http_status_), fmt::format("the server answered HTTP {}", http_status_),
            Status::Origin::Server};
  }
  if (!answered_ && !content_type_ok_ && !status_) {
    return {StatusCode::Unknown, "the answer's content type is not application/grpc",
            Status::Origin::Client};
  }
  if (answered_ && !content_type_ok_) {
    return {StatusCode::Unknown, "the answer's content type is not application/grpc",
            Status::Origin::Client};
  }
  if (!status_) {
    return {StatusCode::Unknown, "the stream ended without a status", Status::Origin::Client};
  }
  if (*status_ == StatusCode::Ok && !reader_.at_boundary()) {
    return {StatusCode::Internal, "the stream ended inside a message", Status::Origin::Client};
  }
  return {*status_, status_message_, Status::Origin::Server};
}

void ClientCall::on_remote_end() {
  if (ended_) {
    return;
  }
  remote_ended_ = true;
  if (held_.empty()) {
    end(final_status());
  }
}

void ClientCall::on_closed(http2::ErrorCode code, std::string_view lost) {
  ClientSession* const client = std::exchange(client_, nullptr);
  if (ended_ || remote_ended_) {
    return;
  }
  // Nothing came since the call began: the connection was dead before, and nobody has seen the
  // call.
  if (!lost.empty() && !repeat_.empty() && client && client->last_received() <= begun_at_ &&
      channel_->begin_again(*this)) {
    return;
  }
  if (!lost.empty()) {
    // Without its whole header block the server cannot have begun anything.
    const bool seen = sent_at_ != 0 && client && client->written() >= sent_at_;
    failure_ = {StatusCode::Unavailable, fmt::format("the connection was lost: {}", lost),
                seen ? Status::Origin::Connection : Status::Origin::Connect};
  } else {
    const bool refused = code == http2::ErrorCode::RefusedStream;
    failure_ = {status_of_reset(code),
                fmt::format("the server reset the stream: {}", error_name(code)),
                refused ? Status::Origin::Connect : Status::Origin::Connection};
  }
  closed_ = true;
  if (held_.empty()) {
    end(failure_);
  }
}

// Leaves the session and the channel; false when that was done before.
bool ClientCall::leave(bool reset) {
  if (std::exchange(ended_, true)) {
    return false;
  }
  if (timer_) {
    timer_->cancel();
  }
  client_ = nullptr;
  if (session() && reset) {
    session()->reset(*this, http2::ErrorCode::Cancel);
  }
  channel_->call_gone(*this);
  return true;
}

void ClientCall::give_up() {
  leave(true);
  held_.clear();
}

void ClientCall::end(const Status& status) {
  // After the server's own end the stream closes by itself, unless the request is still leaving.
  const bool server_ended = status.origin == Status::Origin::Server && output_left() == 0;
  if (leave(!server_ended)) {
    observer_.on_end(status);
  }
}

}  // namespace fairlead::net::grpc
