#include "engine/vllm_http/generate_call.hpp"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "engine/vllm_http/request.hpp"
#include "engine/vllm_http/status.hpp"

namespace fairlead::engine::vllm_http {
namespace {

constexpr std::string_view kCall = "generate";

/// The longest that a finish waits for the event behind it, which has its usage and is sent in the
/// same moment: the client's answer does not depend on an engine that falls silent between them.
constexpr net::Duration kUsageWait = std::chrono::seconds(1);

/// Most bytes of an answer that comes as a whole.
constexpr std::size_t kMaxAnswer = std::size_t{64} * 1024 * 1024;
/// The sink is told of larger ones.
constexpr std::size_t kSmallAnswer = std::size_t{16} * 1024;

bool is_event_stream(const net::http::ClientResponse& answer) {
  return answer.headers.find("content-type").value_or("").starts_with("text/event-stream");
}

}  // namespace

GenerateCall::GenerateCall(Core& core, const GenerateRequest& request, TokenSink& sink)
    : core_(core),
      sink_(sink),
      translator_(request),
      streamed_(is_streamed(request)),
      usage_wait_([this] { forgo_usage(); }) {}

GenerateCall::~GenerateCall() = default;

Result<> GenerateCall::start(const GenerateRequest& request) {
  Result<std::string> body = write_request(request, core_.dialect, core_.model);
  if (!body) {
    return std::unexpected(std::move(body.error()));
  }
  request_.method = "POST";
  request_.target = kGeneratePath;
  request_.headers = request_headers(request);
  request_.body = std::move(*body);
  net::Reactor::current()->flush_later(*this);
  return {};
}

/// The end of the turn in which the call was opened, resumed or failed.
void GenerateCall::flush() {
  if (!std::exchange(began_, true)) {
    tasks_ = std::make_unique<net::TaskGroup>();
    tasks_->spawn(run());
  } else if (closing_) {
    tasks_.reset();
  } else {
    deliver_held();
  }
}

net::Task<> GenerateCall::run() {
  constexpr net::TimePoint kNever = net::TimePoint::max();
  answer_ = co_await core_.http.stream(
      std::move(request_), kNever,
      [this](std::string_view bytes) { streamed_ ? on_body(bytes) : gather(bytes); }, &gate_);
  if (lingering_) {
    core_.lingering.release(*this);
  } else if (!holding()) {
    take_answer();
  }
}

void GenerateCall::pause() {
  paused_ = true;
  gate_.pause();
}

void GenerateCall::resume() {
  if (std::exchange(paused_, false)) {
    // The connection is read again once everything that was held has been delivered.
    net::Reactor::current()->flush_later(*this);
  }
}

void GenerateCall::set_lingering() {
  lingering_ = true;
  held_.clear();
  gate_.resume();
}

void GenerateCall::on_body(std::string_view bytes) {
  if (done_) {
    return;
  }
  const bool fits =
      sse_.feed(bytes, [this](std::string_view, std::string_view data) { on_event(data); });
  if (!fits) {
    finish_with(fail(ErrorCode::EngineProtocol, fmt::format("{}: an event is too large", kCall)));
  }
  await_usage();
}

/// A part of an answer that comes as a whole.
void GenerateCall::gather(std::string_view bytes) {
  if (done_) {
    return;
  }
  if (document_.size() + bytes.size() > kMaxAnswer) {
    finish_with(fail(ErrorCode::EngineProtocol,
                     fmt::format("{}: the answer is above {} bytes", kCall, kMaxAnswer)));
    return;
  }
  document_ += bytes;
  if (document_.size() > kSmallAnswer && !sink_.on_unfinished(document_.size())) {
    done_ = true;
    std::string().swap(document_);
    gate_.pause();
    close_later();
  }
}

void GenerateCall::on_event(std::string_view data) {
  if (holding()) {
    held_.emplace_back(data);
  } else {
    take(data);
  }
}

void GenerateCall::deliver_held() {
  while (!paused_ && !held_.empty()) {
    const std::string data = std::move(held_.front());
    held_.pop_front();
    take(data);
  }
  if (paused_) {
    return;
  }
  gate_.resume();
  if (answer_) {
    take_answer();
  } else {
    await_usage();
  }
}

/// Everything that has arrived was delivered. When the finish is the last of it, its tokens need
/// not wait.
void GenerateCall::await_usage() {
  if (done_ || holding() || !translator_.decided()) {
    return;
  }
  translator_.release_tokens(sink_);
  if (!usage_wait_.armed()) {
    usage_wait_.arm(kUsageWait);
  }
}

/// A paused stream waits anew when it is resumed: the usage may have arrived meanwhile.
void GenerateCall::forgo_usage() {
  if (!holding()) {
    finish_with(translator_.end(sink_));
    close_later();
  }
}

void GenerateCall::take(std::string_view data) {
  if (!done_) {
    finish_with(translator_.feed_event(core_.scratch, data, sink_));
  }
}

/// The response has ended and everything of it was delivered.
void GenerateCall::take_answer() {
  if (done_) {
    return;
  }
  if (!*answer_) {
    finish_with(translator_.decided() ? translator_.end(sink_)
                                      : Result<>(std::unexpected((*answer_).error())));
    return;
  }
  const net::http::ClientResponse& answer = **answer_;
  if (answer.status != 200) {
    finish_with(std::unexpected(status_error(kCall, answer.status, answer.body)));
  } else if (!streamed_) {
    finish_with(translator_.feed_answer(core_.scratch, std::move(document_), sink_));
  } else if (!translator_.started() && !is_event_stream(answer)) {
    finish_with(fail(ErrorCode::EngineProtocol,
                     fmt::format("{}: the answer is no event stream but `{}`", kCall,
                                 answer.headers.find("content-type").value_or(""))));
  } else {
    finish_with(translator_.end(sink_));
  }
}

void GenerateCall::finish_with(Result<> result) {
  if (result) {
    done_ = done_ || translator_.finished();
    if (done_) {
      usage_wait_.cancel();
    }
  } else if (!done_) {
    fail_stream(std::move(result.error()));
  }
}

void GenerateCall::fail_stream(Error error) {
  done_ = true;
  usage_wait_.cancel();
  held_.clear();
  close_later();
  sink_.on_error(std::move(error));
}

/// Closes the connection, which aborts the generation, at the end of the turn: its task may be on
/// the stack.
void GenerateCall::close_later() {
  closing_ = true;
  net::Reactor::current()->flush_later(*this);
}

}  // namespace fairlead::engine::vllm_http
