#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "engine/client.hpp"
#include "engine/vllm_grpc/core.hpp"
#include "engine/vllm_grpc/response.hpp"
#include "net/grpc.hpp"

namespace fairlead::engine::vllm_grpc {

/// One GenerateStream call: hands what arrives to the sink until the terminal message or an error.
/// Destroying it before resets the stream and aborts on the engine, unless it was never sent.
class GenerateCall final : public net::grpc::CallObserver {
 public:
  /// Both must outlive it; the sink only until the call is finished.
  GenerateCall(Core& core, const GenerateRequest& request, TokenSink& sink);
  ~GenerateCall() override;

  /// Sends the request. Errors say what is wrong with it; nothing was sent then.
  Result<> start(const GenerateRequest& request);
  /// Stops reading.
  void pause();
  /// Goes on reading.
  void resume();
  /// True while the terminal message came and the status did not.
  bool awaits_end() const { return done_ && call_ != nullptr && !ended_; }
  /// The core owns it from now on and is told when it ends.
  void set_lingering() { lingering_ = true; }
  /// False: tokens come one by one.
  static bool silent_until_done() { return false; }

  void on_message(std::string_view message) override;
  void on_unfinished(std::size_t bytes) override;
  void on_end(const net::grpc::Status& status) override;

 private:
  void fail_stream(Error error);
  void drop_call();
  bool retry_older_service();

  Core& core_;
  TokenSink& sink_;
  ResponseTranslator translator_;
  std::string request_id_;
  // Kept only while the dialect is unknown: the request may have to be sent to the older service.
  std::unique_ptr<GenerateRequest> undecided_;
  std::unique_ptr<net::grpc::Call> call_;
  net::TimePoint started_at_;
  bool done_ = false;   // the sink has had its last call
  bool ended_ = false;  // the call has had its status
  bool lingering_ = false;
  bool refused_ = false;          // by the sink, which will destroy this
  bool told_unfinished_ = false;  // the sink counts bytes of a message
};

}  // namespace fairlead::engine::vllm_grpc
