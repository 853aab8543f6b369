#pragma once

#include <memory>
#include <utility>

#include "base/error.hpp"
#include "engine/client.hpp"
#include "net/reactor.hpp"

namespace fairlead::engine {

/// A running call as its user holds it. `Core` has the `lingering` calls of a client; `Call` is one
/// wire's: it can `start`, `pause` and `resume`, and aborts on the engine when it is destroyed
/// before its end.
template <class Core, class Call>
class CallStream final : public EngineStream {
 public:
  /// Starts a call. Errors say what is wrong with the request; nothing was sent then.
  static Result<std::unique_ptr<EngineStream>> open(Core& core, const GenerateRequest& request,
                                                    TokenSink& sink) {
    auto call = std::make_unique<Call>(core, request, sink);
    if (Result<> started = call->start(request); !started) {
      return std::unexpected(std::move(started.error()));
    }
    return std::make_unique<CallStream>(core, std::move(call));
  }

  /// Takes a started call.
  CallStream(Core& core, std::unique_ptr<Call> call) : core_(core), call_(std::move(call)) {}
  ~CallStream() override {
    if (call_->awaits_end() && net::Reactor::current()) {
      core_.lingering.keep(std::move(call_));
    }
  }
  void pause() override { call_->pause(); }
  void resume() override { call_->resume(); }
  bool silent_until_done() const override { return call_->silent_until_done(); }

 private:
  Core& core_;
  std::unique_ptr<Call> call_;
};

}  // namespace fairlead::engine
