#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/client.hpp"
#include "engine/vllm_http/core.hpp"
#include "engine/vllm_http/response.hpp"
#include "net/http_client.hpp"
#include "net/reactor.hpp"
#include "net/task_group.hpp"

namespace fairlead::engine::vllm_http {

/// One request to the token route: hands what arrives to the sink until the terminal chunk or an
/// error. Destroying it closes the connection unless the response has ended, which aborts the
/// generation on the engine.
class GenerateCall final : private net::Flushable {
 public:
  /// Both must outlive it; the sink only until the call is finished.
  GenerateCall(Core& core, const GenerateRequest& request, TokenSink& sink);
  ~GenerateCall() override;

  /// Sends the request at the end of this turn. Errors say what is wrong with it.
  Result<> start(const GenerateRequest& request);
  /// Holds everything back, also what has arrived already.
  void pause();
  /// Goes on, in the end of this turn at the earliest.
  void resume();
  /// True when the answer comes as a whole.
  bool silent_until_done() const { return !streamed_; }
  /// True while the terminal chunk came and the response did not end.
  bool awaits_end() const { return done_ && !closing_ && tasks_ && !answer_; }
  /// The core owns it from now on and is told when it ends.
  void set_lingering();

 private:
  void flush() override;
  net::Task<> run();
  void on_body(std::string_view bytes);
  void gather(std::string_view bytes);
  void on_event(std::string_view data);
  void deliver_held();
  void await_usage();
  void forgo_usage();
  void take(std::string_view data);
  void take_answer();
  void fail_stream(Error error);
  void close_later();
  void finish_with(Result<> result);
  bool holding() const { return paused_ || !held_.empty(); }

  Core& core_;
  TokenSink& sink_;
  ResponseTranslator translator_;
  net::http::ClientRequest request_;
  bool streamed_;
  net::http::SseReader sse_;
  std::string document_;  // of an answer that is not streamed
  net::http::BodyGate gate_;
  std::deque<std::string> held_;  // events received while paused: of one read, which bounds them
  std::optional<Result<net::http::ClientResponse>> answer_;  // the response has ended
  bool began_ = false;
  bool paused_ = false;
  bool done_ = false;     // the sink has had its last call
  bool closing_ = false;  // the connection is of no use any more
  bool lingering_ = false;
  net::Timer usage_wait_;                  // runs while a finish waits for the event behind it
  std::unique_ptr<net::TaskGroup> tasks_;  // last: the task uses the rest
};

}  // namespace fairlead::engine::vllm_http
