#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mock/engine_state.hpp"
#include "mock/generate_spec.hpp"
#include "mock/stop_strings.hpp"
#include "net/event.hpp"
#include "net/http.hpp"
#include "net/task.hpp"

namespace fairlead::mock {

/// How a generation ended.
struct FinishFacts {
  /// Why; the values are those of the gRPC interface's enum.
  enum class Reason : std::uint8_t { Length = 1, Stop = 2, Aborted = 3 };
  Reason reason = Reason::Length;          ///< Why.
  std::uint32_t output_tokens = 0;         ///< Total.
  std::uint32_t cached_tokens = 0;         ///< Prompt tokens from the cache.
  std::optional<TokenId> stop_token;       ///< At most one of these three.
  std::optional<TokenId> eos_token;        ///< The primary EOS.
  std::optional<std::string> stop_string;  ///< The matching string.
  std::string_view hand_off_engine;        ///< Not empty: transfer parameters go with it.
  std::size_t hand_off_blocks = 0;         ///< Blocks that they list.
  std::string_view hand_off_host;          ///< Where they can be fetched; empty = nowhere.
  std::uint16_t hand_off_port = 0;         ///< Likewise; 0 = nowhere.
};

/// Puts what a generation yields into the words of one interface.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  /// Works for a moment on what can be known before the first step; called again, in later turns,
  /// while the result is true. An answer that ends before goes without it.
  virtual bool prepare() = 0;
  /// Once, before anything below but `break_off`. `cached` counts the prompt's tokens that were
  /// found in the cache.
  virtual void begin(std::uint32_t cached) = 0;
  /// What one step gave, unless it was the last. `token` may be absent.
  virtual void step(std::optional<TokenId> token, std::string_view text) = 0;
  /// The last step, and with it the end of the answer.
  virtual void finish(std::optional<TokenId> token, std::string_view text,
                      const FinishFacts& facts) = 0;
  /// Ends the answer where it is: in good order (`end-after`) or with an error (`error-after`).
  virtual void break_off(const Fault& fault) = 0;
};

/// One running request: queued in its constructor, scheduled once its writer is prepared, answers
/// until it ends, and takes its sequence out when destroyed before that (the client has left).
/// Lives in its handler's frame.
class Generation final : public AbortableRequest, private SequenceObserver {
 public:
  /// Everything must outlive the generation; `exchange` is the one that `writer` answers.
  Generation(EngineState& state, EngineCore& core, const GenerateSpec& spec, AnswerWriter& writer,
             net::http::Exchange& exchange);
  ~Generation() override;

  /// Returns when the answer has ended, or is to be cut.
  net::Task<> run();
  /// Ends the wait of a request that awaits its peer.
  void start();
  /// Set once a request that awaits its KV cache has the blocks for it.
  net::Event& admitted() { return admitted_; }
  /// The KV cache is there; `first` is what the answer begins with, if that is known.
  void kv_arrived(std::optional<TokenId> first);
  /// The KV cache will not arrive: the prompt is computed here.
  void recompute();
  /// Ends without another word of the writer: someone else has said why.
  void give_up();
  /// The blocks of a finished request that was to keep them; their release is the caller's.
  std::vector<BlockId> take_blocks() { return std::move(sequence_.kept); }
  /// True when a `reset-after` fault wants the answer cut where it is.
  bool was_reset() const { return reset_; }
  /// The client has taken what was written: for exchanges that several generations answer.
  void on_drain() { update_pause(); }
  const std::string& request_id() const override { return spec_.request_id; }
  void abort() override;

 private:
  void choose_fault();
  void prepare_sequence();
  void on_output(Sequence& sequence, const StepOutput& output) override;
  void on_admitted(Sequence& sequence) override;
  net::Task<> fetch();
  void begin();
  void finish(FinishFacts facts, std::optional<TokenId> token, std::string_view text);
  void end(std::uint64_t& counter);
  bool apply_fault();
  void update_pause();

  EngineState& state_;
  EngineCore& core_;
  const GenerateSpec& spec_;
  AnswerWriter& writer_;
  net::http::Exchange& exchange_;
  Sequence sequence_;
  std::optional<StopStrings> stop_strings_;
  std::optional<Fault> fault_;  // the one that fires first
  std::size_t prompt_blocks_ = 0;
  bool preparing_ = true;
  bool awaiting_peer_ = false;
  bool begun_ = false;
  bool stalled_ = false;
  bool over_ = false;
  bool reset_ = false;
  net::Event admitted_;
  net::Event ended_;
};

/// How long the KV cache of so many tokens takes from engine to engine.
Nanos transfer_time(const MockOptions& options, std::size_t tokens);

/// Waits until what was written before a cut has left, or its reader does not take it.
net::Task<> drain_before_reset(net::http::Exchange& exchange);

}  // namespace fairlead::mock
