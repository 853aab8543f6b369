#include "engine/vllm_grpc/generate_call.hpp"

#include <utility>

#include "engine/vllm_grpc/status.hpp"

namespace fairlead::engine::vllm_grpc {
namespace {

constexpr std::string_view kRpc = "GenerateStream";

}  // namespace

GenerateCall::GenerateCall(Core& core, const GenerateRequest& request, TokenSink& sink)
    : core_(core), sink_(sink), translator_(request), request_id_(request.request_id) {}

GenerateCall::~GenerateCall() {
  if (done_ || !call_) {
    return;
  }
  // A call of this very turn, or without any connection, never left. Without a running reactor the
  // program is ending and nothing can be sent any more.
  const net::Reactor* reactor = net::Reactor::current();
  const bool sent = reactor && reactor->now() != started_at_ && core_.channel.connections() > 0;
  call_.reset();
  if (sent) {
    core_.abort(std::move(request_id_));
  }
}

Result<> GenerateCall::start(const GenerateRequest& request) {
  const Result<std::string_view> message = core_.writer.write(request, core_.dialect, core_.model);
  if (!message) {
    return std::unexpected(message.error());
  }
  if (core_.dialect == Dialect::Unknown) {
    undecided_ = std::make_unique<GenerateRequest>(request);
  }
  started_at_ = net::Reactor::current()->now();
  call_ = core_.channel.start(generate_stream_path(core_.dialect), request_metadata(request),
                              *message, *this);
  core_.writer.trim();
  return {};
}

void GenerateCall::pause() {
  if (call_ && !ended_) {
    call_->pause();
  }
}

void GenerateCall::resume() {
  if (call_ && !ended_ && !refused_) {
    call_->resume();
  }
}

void GenerateCall::on_unfinished(std::size_t bytes) {
  if (done_ || refused_) {
    return;
  }
  told_unfinished_ = true;
  if (!sink_.on_unfinished(bytes)) {
    refused_ = true;
    call_->pause();  // until it is destroyed, which aborts
  }
}

void GenerateCall::on_message(std::string_view message) {
  if (done_ || refused_) {
    return;
  }
  if (std::exchange(told_unfinished_, false)) [[unlikely]] {
    sink_.on_unfinished(0);
  }
  if (Result<> fed = translator_.feed(core_.scratch, message, sink_); !fed) [[unlikely]] {
    drop_call();
    core_.abort(request_id_);
    fail_stream(std::move(fed.error()));
    return;
  }
  done_ = translator_.finished();
}

void GenerateCall::on_end(const net::grpc::Status& status) {
  ended_ = true;
  if (lingering_) {
    core_.lingering.release(*this);
    return;
  }
  if (done_ || refused_) {
    return;
  }
  if (status.code == net::grpc::StatusCode::Unimplemented && !translator_.started() &&
      retry_older_service()) {
    return;
  }
  // OK, or no status at all behind proper messages: the stream was cut short.
  const bool no_status = status.code == net::grpc::StatusCode::Unknown &&
                         status.origin == net::grpc::Status::Origin::Client;
  if (status.ok() || (no_status && translator_.started())) {
    fail_stream(Error{ErrorCode::EngineDisconnected,
                      "GenerateStream: the stream ended before its terminal message (OK)",
                      {}});
  } else {
    fail_stream(status_error(kRpc, status));
  }
}

void GenerateCall::fail_stream(Error error) {
  done_ = true;
  sink_.on_error(std::move(error));
}

/// Resets the call; it may be on the stack, so it is destroyed at the end of the turn, perhaps
/// after this, its observer.
void GenerateCall::drop_call() {
  if (call_) {
    call_->give_up();
    net::Reactor::current()->destroy_later(std::move(call_));
  }
}

/// Sends the request to `vllm.Generate` when it is not known that the server has `vllm.Inference`.
bool GenerateCall::retry_older_service() {
  if (!undecided_) {
    // The server was replaced by another generation: find out anew with the next request.
    core_.dialect = Dialect::Unknown;
    return false;
  }
  const std::unique_ptr<GenerateRequest> request = std::move(undecided_);
  const Result<std::string_view> message =
      core_.writer.write(*request, Dialect::Generate, core_.model);
  if (!message) {
    fail_stream(message.error());
    return true;
  }
  drop_call();
  core_.dialect = Dialect::Generate;
  ended_ = false;
  call_ = core_.channel.start(generate_stream_path(Dialect::Generate), {}, *message, *this);
  core_.writer.trim();
  return true;
}

}  // namespace fairlead::engine::vllm_grpc
