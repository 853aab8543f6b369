#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "engine/client.hpp"
#include "engine/grpc_core.hpp"
#include "net/grpc.hpp"

namespace fairlead::engine {

/// One streamed generation over gRPC: hands what arrives to the sink until the terminal message or
/// an error. Destroying it before resets the stream and aborts on the engine, unless it was never
/// sent. What the messages mean is the wire's.
class GrpcCall : public net::grpc::CallObserver {
 public:
  ~GrpcCall() override;

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

  void on_message(std::string_view message) final;
  void on_unfinished(std::size_t bytes) final;
  void on_end(const net::grpc::Status& status) final;

 protected:
  /// Both must outlive it; the sink only until the call is finished.
  GrpcCall(GrpcCore& core, TokenSink& sink, std::string request_id)
      : core_(core), sink_(sink), request_id_(std::move(request_id)) {}

  /// Starts the call, or starts it anew.
  void send(std::string_view path, const net::grpc::Metadata& metadata, std::string_view message);
  /// Ends it with an error.
  void fail_stream(Error error);

  /// Handles one message; an error ends the call, which is aborted on the engine unless it is
  /// finished.
  virtual Result<> feed(std::string_view message, TokenSink& sink) = 0;
  /// True after the terminal message.
  virtual bool finished() const = 0;
  /// True after any message that was understood.
  virtual bool started() const = 0;
  /// The name of the method, for errors.
  virtual std::string_view rpc() const = 0;
  /// What a status other than OK means.
  virtual Error end_error(const net::grpc::Status& status) const;
  /// The server has no such method: true when the call was sent another way, or failed by that.
  virtual bool retry_unimplemented() { return false; }
  /// The kept call has ended; its owner destroys it later.
  virtual void release() = 0;

 private:
  void drop_call();

  GrpcCore& core_;
  TokenSink& sink_;
  std::string request_id_;
  std::unique_ptr<net::grpc::Call> call_;
  net::TimePoint started_at_;
  bool done_ = false;   // the sink has had its last call
  bool ended_ = false;  // the call has had its status
  bool lingering_ = false;
  bool refused_ = false;          // by the sink, which will destroy this
  bool told_unfinished_ = false;  // the sink counts bytes of a message
};

}  // namespace fairlead::engine
