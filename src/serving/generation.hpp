#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.hpp"
#include "fleet/fleet.hpp"
#include "net/task_group.hpp"
#include "observe/metrics.hpp"
#include "routing/kv_route.hpp"
#include "routing/kv_waiter.hpp"
#include "serving/output_processor.hpp"
#include "serving/response_encoder.hpp"
#include "serving/service.hpp"

namespace fairlead::serving {

/// One API request, ready to run: every prompt × every of its `n` sequences becomes one choice.
struct GenerationSpec {
  std::shared_ptr<const fleet::Model> model;          ///< Chosen by name from the snapshot.
  std::shared_ptr<const ModelContext> assets;         ///< Tokenizer and kin of that model.
  engine::GenerateRequest request;                    ///< All but id, prompt and per-choice seed.
  std::vector<std::vector<engine::TokenId>> prompts;  ///< At least one, none empty.
  std::uint32_t n = 1;                                ///< Sequences per prompt.
  std::string request_id;                             ///< Choices beyond the first get `-INDEX`.
  std::vector<engine::TokenId>
      user_stop_token_ids;                 ///< Reported as matched when they end a choice.
  std::vector<std::string> stop_strings;   ///< Found here, at most 32.
  bool include_stop = false;               ///< Keep the matched stop in the text.
  bool skip_special_tokens = true;         ///< Leave special tokens out of the text.
  bool detokenize = true;                  ///< False: ids only, no text.
  bool offsets = false;                    ///< Deltas tell where each token's text begins.
  bool prompt_only = false;                ///< Only the prompt is wanted: output is dropped.
  bool prompt_logprobs_once = false;       ///< Asked for by the first sequence of each prompt only.
  std::optional<std::uint64_t> worker_id;  ///< Pinned by the client; of two it is the one that
                                           ///< generates.
  std::optional<std::uint64_t> prefill_worker_id;  ///< Pinned likewise, when there are two.
  std::optional<std::uint32_t> prefill_rank;       ///< Its data-parallel rank.
  std::string session;                      ///< Of the client; its requests stay at one worker when
                                            ///< sessions are bound. Empty = none.
  routing::RoutingConstraints constraints;  ///< Labels of workers that it requires or likes.
  routing::QueueHints queue;                ///< Its place when it has to wait for a worker.
  std::optional<std::uint32_t> expected_output;  ///< Tokens it will generate; a guess.
};

/// Runs the spec to its end and feeds the encoder. Owned by the handler's task: destroying it (the
/// client left) aborts every stream on its engine and gives every reservation back.
///
/// Error before any output: nothing was given to the encoder, the caller may still answer with a
/// status. Error after output: the caller reports it in-band. Failures of a worker are reported to
/// the fleet, and the choice goes on elsewhere where it can.
class Generation {
 public:
  /// All arguments outlive the generation.
  Generation(Service& service, GenerationSpec spec, ResponseEncoder& encoder,
             observe::RequestScope& scope);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  /// Runs all choices; the result is the usage of the whole request.
  net::Task<Result<Usage>> run();

 private:
  class Choice;
  friend class Choice;
  void start_choices();
  void fail_all(Error error);
  void choice_done();
  void check_encoder();
  void logprobs_missing(std::size_t count);
  void apply_pressure();
  void resume();
  void tick(net::TimePoint now);

  Service& service_;
  GenerationSpec spec_;
  ResponseEncoder& encoder_;
  observe::RequestScope& scope_;
  observe::ModelShard& shard_;
  OutputRules rules_;
  net::Event done_;
  std::optional<Error> error_;
  std::size_t running_ = 0;
  std::size_t unfinished_ = 0;  // bytes of messages, of all choices
  bool paused_ = false;
  bool warned_missing_ = false;
  net::TimePoint last_output_;
  std::vector<std::unique_ptr<Choice>> choices_;
  Sweep sweep_;
  net::TaskGroup tasks_;
};

}  // namespace fairlead::serving
