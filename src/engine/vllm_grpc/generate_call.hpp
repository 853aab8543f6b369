#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/client.hpp"
#include "engine/vllm_grpc/core.hpp"
#include "engine/vllm_grpc/response.hpp"
#include "net/grpc.hpp"

namespace fairlead::engine::vllm_grpc {

/// One GenerateStream call: hands what arrives to the sink until the terminal message or an error.
class GenerateCall final : public net::grpc::CallObserver {
 public:
  /// Both must outlive it; the sink only until the call is finished.
  GenerateCall(Core& core, const GenerateRequest& request, TokenSink& sink);
  ~GenerateCall() override;

  /// Sends the request. Errors say what is wrong with it; nothing was sent then.
  Result<> start(const GenerateRequest& request);
  /// Resets the stream and aborts on the engine unless the call is over or was never sent.
  void cancel();
  /// True while the terminal message came and the status did not.
  bool awaits_status() const { return done_ && call_ != nullptr && !ended_; }
  /// The core owns it from now on and is told when it ends.
  void set_lingering() { lingering_ = true; }
  /// The running call below; null when it is over.
  net::grpc::Call* call() { return ended_ ? nullptr : call_.get(); }

  void on_message(std::string_view message) override;
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
};

}  // namespace fairlead::engine::vllm_grpc
