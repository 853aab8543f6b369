#include "mock/grpc_fault_gate.hpp"

#include "mock/generation.hpp"
#include "net/task_group.hpp"

namespace fairlead::mock {
namespace {

net::Task<> run_then_set(net::http::Handler& handler, net::http::Exchange& exchange,
                         net::Event& done) {
  co_await handler(exchange);
  done.set();
}

}  // namespace

net::Task<> GrpcFaultGate::serve(net::http::Handler& inner, net::http::Exchange& exchange) {
  if (const Fault* stall = state_.fault(FaultKind::StallOpen); stall && stall->all) {
    net::Event never;
    co_await never.wait();
  }
  if (state_.fault(FaultKind::ResetAfter)) {
    co_await serve_until_reset(inner, exchange);
  } else {
    co_await inner(exchange);
  }
}

// A handler that returns without having finished makes the server reset the stream.
net::Task<> GrpcFaultGate::serve_until_reset(net::http::Handler& inner,
                                             net::http::Exchange& exchange) {
  net::Event over;
  struct Entry {
    GrpcFaultGate& gate;
    const net::http::Exchange* key;
    ~Entry() { gate.resets_.erase(key); }
  } entry{*this, &exchange};
  resets_[&exchange] = &over;
  net::TaskGroup group;
  group.spawn(run_then_set(inner, exchange, over));
  co_await over.wait();
  if (!exchange.finished() && !exchange.started()) {
    exchange.start(200, {{"content-type", "application/grpc"}});
  }
  co_await drain_before_reset(exchange);
}

net::Task<> GrpcFaultGate::cut(net::http::Exchange& exchange) {
  if (const auto reset = resets_.find(&exchange); reset != resets_.end()) {
    reset->second->set();
    net::Event never;
    co_await never.wait();
  }
}

}  // namespace fairlead::mock
