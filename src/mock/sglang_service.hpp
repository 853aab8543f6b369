#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_set>

#include "mock/engine_service.hpp"
#include "mock/engine_state.hpp"
#include "mock/grpc_fault_gate.hpp"
#include "mock/sglang_bootstrap.hpp"
#include "mock/sglang_request.hpp"
#include "net/event.hpp"
#include "net/grpc.hpp"
#include "net/http.hpp"
#include "net/socket.hpp"

namespace fairlead::mock {

struct SglangCall;

/// SGLang's native gRPC interface, sglang.runtime.v1.SglangService, on one EngineState.
class SglangService final : public EngineService {
 public:
  /// The state must outlive the service.
  explicit SglangService(EngineState& state);
  SglangService(const SglangService&) = delete;
  SglangService& operator=(const SglangService&) = delete;

  net::http::Handler handler() override;
  /// Where decode engines find the prefill halves.
  BootstrapRooms& rooms() { return rooms_; }
  /// Tells those who watch the engine's state.
  void health_changed() override;
  std::string error_body(int status, std::string_view message) const override;

 private:
  struct Watcher : ListNode<Watcher> {
    net::Event changed;
  };

  void add_reports();
  void add_control();
  net::Task<> generate(net::grpc::ServerCall& call);
  net::Task<> run(SglangCall& call, const SglangRequest& request);
  net::Task<> run_prefill(SglangCall& call, const SglangRequest& request);
  net::Task<> run_decode(SglangCall& call, const SglangRequest& request);
  net::Task<> watch(net::grpc::ServerCall& call);
  net::grpc::Status abort(std::string_view rid, bool all);
  net::grpc::Status pause(const std::string& mode);
  void resume();
  void state_changed();
  std::string snapshot() const;

  EngineState& state_;
  net::grpc::Service service_;
  net::http::Handler inner_;
  GrpcFaultGate gate_;
  BootstrapRooms rooms_;
  net::TcpDialer dialer_;
  std::multiset<std::tuple<std::string, std::uint16_t, std::int64_t>> decode_rooms_;
  std::unordered_set<std::string> active_;  // ids of live requests
  std::uint64_t revision_ = 1;
  IntrusiveList<Watcher, Watcher> watchers_;
};

}  // namespace fairlead::mock
