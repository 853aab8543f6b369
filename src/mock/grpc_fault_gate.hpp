#pragma once

#include <unordered_map>

#include "mock/engine_state.hpp"
#include "net/event.hpp"
#include "net/http.hpp"
#include "net/task.hpp"

namespace fairlead::mock {

/// The faults that concern whole calls of a gRPC interface: `stall-open:all` and `reset-after`.
class GrpcFaultGate {
 public:
  /// The state must outlive the gate.
  explicit GrpcFaultGate(EngineState& state) : state_(state) {}
  GrpcFaultGate(const GrpcFaultGate&) = delete;
  GrpcFaultGate& operator=(const GrpcFaultGate&) = delete;

  /// Answers one call with `inner`, unless a fault has its way.
  net::Task<> serve(net::http::Handler& inner, net::http::Exchange& exchange);
  /// Cuts a call that `serve` runs, once what was written has left; returns at once, without having
  /// done anything, when the fault was not switched on as the call began.
  net::Task<> cut(net::http::Exchange& exchange);

 private:
  net::Task<> serve_until_reset(net::http::Handler& inner, net::http::Exchange& exchange);

  EngineState& state_;
  // Calls that may be cut.
  std::unordered_map<const net::http::Exchange*, net::Event*> resets_;
};

}  // namespace fairlead::mock
