#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "mock/engine_state.hpp"
#include "mock/stop_strings.hpp"
#include "mock/vllm_output.hpp"
#include "mock/vllm_request.hpp"
#include "net/event.hpp"
#include "net/grpc.hpp"

namespace fairlead::mock {

/// One running Generate call: queued in its constructor, answers until it ends, and takes its
/// sequence out when destroyed before that (the client has cancelled). Lives in its handler's
/// frame.
class VllmGeneration final : public AbortableRequest, private SequenceObserver {
 public:
  /// `reset` is what a `reset-after` fault sets; null when none can fire.
  VllmGeneration(EngineState& state, EngineCore& core, GenerateSpec spec,
                 net::grpc::ServerCall& call, bool streaming, net::Event* reset);
  ~VllmGeneration() override;

  /// Set when the call has ended.
  net::Event& ended() { return ended_; }
  const std::string& request_id() const override { return spec_.request_id; }
  void abort() override;

 private:
  void choose_fault();
  void prepare_sequence();
  void on_output(Sequence& sequence, const StepOutput& output) override;
  void write_prompt_info();
  void write(std::string_view message);
  void finish(FinishFacts facts, std::optional<TokenId> token, std::string_view text);
  void end(const net::grpc::Status& status, std::uint64_t& counter);
  bool apply_fault();
  void update_pause();

  EngineState& state_;
  EngineCore& core_;
  GenerateSpec spec_;
  net::grpc::ServerCall& call_;
  bool streaming_;
  net::Event* reset_;
  Sequence sequence_;
  OutputEncoder encoder_;
  std::optional<StopStrings> stop_strings_;
  std::optional<Fault> fault_;  // the one that fires first
  std::size_t prompt_blocks_ = 0;
  bool prompt_info_written_ = false;
  bool stalled_ = false;
  bool over_ = false;
  net::Event ended_;
};

}  // namespace fairlead::mock
