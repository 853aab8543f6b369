#include "engine/grpc_call.hpp"

#include <fmt/format.h>

#include <utility>

#include "engine/grpc_status.hpp"

namespace fairlead::engine {

GrpcCall::~GrpcCall() {
  if (done_ || !call_) {
    return;
  }
  // A call of this very turn, or without any connection, never left. Without a running reactor the
  // program is ending and nothing can be sent any more.
  const net::Reactor* reactor = net::Reactor::current();
  const bool sent = reactor && reactor->now() != started_at_ && core_.channel.connections() > 0;
  call_.reset();
  if (sent) {
    core_.abort(request_id_);
  }
}

void GrpcCall::send(std::string_view path, const net::grpc::Metadata& metadata,
                    std::string_view message) {
  drop_call();
  ended_ = false;
  started_at_ = net::Reactor::current()->now();
  call_ = core_.channel.start(path, metadata, message, *this);
}

void GrpcCall::pause() {
  if (call_ && !ended_) {
    call_->pause();
  }
}

void GrpcCall::resume() {
  if (call_ && !ended_ && !refused_) {
    call_->resume();
  }
}

void GrpcCall::on_unfinished(std::size_t bytes) {
  if (done_ || refused_) {
    return;
  }
  told_unfinished_ = true;
  if (!sink_.on_unfinished(bytes)) {
    refused_ = true;
    call_->pause();  // until it is destroyed, which aborts
  }
}

void GrpcCall::on_message(std::string_view message) {
  if (done_ || refused_) {
    return;
  }
  if (std::exchange(told_unfinished_, false)) [[unlikely]] {
    sink_.on_unfinished(0);
  }
  if (Result<> fed = feed(message, sink_); !fed) [[unlikely]] {
    if (!finished()) {
      drop_call();
      core_.abort(request_id_);
    }
    fail_stream(std::move(fed.error()));
    return;
  }
  done_ = finished();
}

void GrpcCall::on_end(const net::grpc::Status& status) {
  ended_ = true;
  if (lingering_) {
    release();
    return;
  }
  if (done_ || refused_) {
    return;
  }
  if (status.code == net::grpc::StatusCode::Unimplemented && !started() && retry_unimplemented()) {
    return;
  }
  // OK, or no status at all behind proper messages: the stream was cut short.
  const bool no_status = status.code == net::grpc::StatusCode::Unknown &&
                         status.origin == net::grpc::Status::Origin::Client;
  if (status.ok() || (no_status && started())) {
    fail_stream(Error{ErrorCode::EngineDisconnected,
                      fmt::format("{}: the stream ended before its terminal message (OK)", rpc()),
                      {}});
  } else {
    fail_stream(end_error(status));
  }
}

Error GrpcCall::end_error(const net::grpc::Status& status) const {
  return status_error(rpc(), status);
}

void GrpcCall::fail_stream(Error error) {
  done_ = true;
  sink_.on_error(std::move(error));
}

/// Resets the call; it may be on the stack, so it is destroyed at the end of the turn, perhaps
/// after this, its observer.
void GrpcCall::drop_call() {
  if (call_) {
    call_->give_up();
    net::Reactor::current()->destroy_later(std::move(call_));
  }
}

}  // namespace fairlead::engine
