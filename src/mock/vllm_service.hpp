#pragma once

#include <string>
#include <string_view>

#include "mock/engine_service.hpp"
#include "mock/engine_state.hpp"
#include "mock/grpc_fault_gate.hpp"
#include "net/event.hpp"
#include "net/grpc.hpp"
#include "net/http.hpp"

namespace fairlead::mock {

/// vLLM's native gRPC interface: vllm.Inference and vllm.Control (or the first servers' single
/// vllm.Generate) and grpc.health.v1.Health, on one EngineState.
class VllmService final : public EngineService {
 public:
  /// The state must outlive the service.
  explicit VllmService(EngineState& state);
  VllmService(const VllmService&) = delete;
  VllmService& operator=(const VllmService&) = delete;

  net::http::Handler handler() override;
  /// Tells health watchers.
  void health_changed() override;
  std::string error_body(int status, std::string_view message) const override;

 private:
  struct Watcher : ListNode<Watcher> {
    net::Event changed;
  };

  void add_inference();
  void add_control();
  void add_health();
  net::Task<> generate(net::grpc::ServerCall& call, bool streaming);
  net::Task<> check(net::grpc::ServerCall& call);
  net::Task<> watch(net::grpc::ServerCall& call);
  bool is_registered(std::string_view service) const;
  std::string health_message() const;

  EngineState& state_;
  net::grpc::Service service_;
  net::http::Handler inner_;
  GrpcFaultGate gate_;
  IntrusiveList<Watcher, Watcher> watchers_;
};

/// Adds the methods of vllm.Control.
void add_control_methods(net::grpc::Service& service, EngineState& state);

}  // namespace fairlead::mock
