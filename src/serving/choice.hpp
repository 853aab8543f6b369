#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/event.hpp"
#include "serving/generation.hpp"
#include "serving/hand_off.hpp"
#include "serving/leg.hpp"
#include "serving/output_processor.hpp"
#include "serving/waiting_place.hpp"
#include "serving/worker_choice.hpp"

namespace fairlead::serving {

/// One sequence of a generation. Finds a worker, or a prefill and a decode worker, and runs on it;
/// after failures that say nothing about the request it goes to others: from the beginning as long
/// as nothing was output, else, as often as the options allow, from where the output stands.
class Generation::Choice final : public engine::TokenSink {
 public:
  Choice(Generation& owner, std::uint32_t index, engine::GenerateRequest request);
  ~Choice() override;

  /// To the end, which the owner is told.
  net::Task<> run();
  /// Aborts what still runs on engines.
  void abandon();
  void pause();
  void resume();
  /// Fails when an engine has been silent for too long.
  void check_silence(net::TimePoint now);
  const Usage& usage() const { return usage_; }

  // What the engine that generates says.
  void on_prompt(const engine::PromptInfo& info) override;
  void on_tokens(const engine::TokenChunk& chunk) override;
  bool on_unfinished(std::size_t bytes) override;
  void on_error(Error error) override;

 private:
  /// Hears the prefill leg.
  class PrefillSink final : public engine::TokenSink {
   public:
    explicit PrefillSink(Choice& choice) : choice_(choice) {}
    void on_prompt(const engine::PromptInfo& info) override;
    void on_tokens(const engine::TokenChunk& chunk) override;
    void on_error(Error error) override;

   private:
    Choice& choice_;
  };
  /// Who does an attempt.
  struct Plan {
    BookedWorker main;                    // generates
    std::optional<BookedWorker> prefill;  // computes the prompt, if not the same
  };
  /// Why an attempt failed, and on whom; nobody when there was none to try.
  struct Failure {
    Error error;
    std::shared_ptr<const fleet::Worker> worker;
  };
  Result<bool> make_plan();
  bool bypass(const std::shared_ptr<const fleet::WorkerSet>& decode_set,
              const std::shared_ptr<const fleet::WorkerSet>& prefill_set, ChoiceContext& main);
  ChoiceContext context();
  net::Task<std::optional<Failure>> attempt();
  std::optional<Failure> start();
  std::optional<Failure> start_main();
  std::optional<Failure> start_prefill(engine::GenerateRequest request);
  std::optional<Failure> start_together();
  std::optional<Failure> start_decode();
  std::optional<Failure> failure();
  void begin_attempt();
  void end_attempt(bool failed);
  void leave_decode();
  bool may_try_again(const Failure& failure);
  bool may_migrate();
  void prepare_continuation();
  net::Duration pause_before_retry();
  void moving(observe::MigrationType type);
  void moved(observe::MigrationOutcome outcome);
  void report(const Failure& failure);
  void report_served(const Leg* leg);
  void on_prefilled(const engine::Finish& finish);
  std::optional<Error> take_prompt(const engine::PromptInfo& info);
  void keep(std::span<const engine::TokenId> ids);
  static std::optional<std::uint32_t> rank_for(const BookedWorker& booked,
                                               std::optional<std::uint32_t> named);
  std::optional<Error> check_logprobs(const engine::TokenChunk& chunk) const;
  void set_unfinished(std::size_t bytes);
  void count_missing(std::span<const engine::TokenLogprob> logprobs);
  void note_remote_kv(const engine::Finish& finish);
  void take_cached(const engine::Finish& finish, const Leg& leg);
  void drop_output(const engine::TokenChunk& chunk);
  std::chrono::duration<double> whole_answer_limit(const Leg& leg) const;
  void count_hit_rate(const BookedWorker& booked);
  void log_pair() const;

  Generation& owner_;
  std::uint32_t index_;
  engine::GenerateRequest request_;
  const std::optional<std::uint32_t> named_rank_;  // by the client
  const bool wants_prompt_logprobs_;
  OutputProcessor processor_;
  Usage usage_;
  std::string text_;
  std::vector<std::uint64_t> excluded_;  // workers that failed this request
  std::uint32_t attempts_ = 0;           // before any output
  std::uint32_t migrations_ = 0;         // behind it
  std::uint32_t delivered_before_ = 0;   // tokens that are part of this attempt's prompt
  bool keeps_prompt_ = false;            // since it may have to go on elsewhere
  std::optional<Plan> plan_;             // of this attempt; bookings leave it with their legs
  HandOff hand_off_ = HandOff::AfterPrefill;
  bool in_pair_ = false;  // this attempt's output comes from a decode engine
  // A cache that a prefill engine keeps for a decode engine that has not come for it yet.
  json::Value held_;
  std::uint32_t held_uses_ = 0;  // decode engines that failed to take it
  bool prompt_seen_ = false;     // with its log-probabilities, in this attempt
  std::size_t unfinished_ = 0;   // bytes of a message, in this attempt
  bool ended_ = false;           // the generating leg, in this attempt
  std::optional<Error> error_;   // of that leg
  bool prefilled_ = false;       // the prefill leg has ended well
  std::optional<Error> prefill_error_;
  net::Event event_;  // any of these changed
  net::TimePoint begun_;
  net::TimePoint last_message_;
  std::optional<net::TimePoint> moving_since_;  // a failed attempt's end, until output goes on
  observe::MigrationType moving_ = observe::MigrationType::NewRequest;
  std::unique_ptr<WaitingPlace> place_;  // in the queue; the same in all attempts
  PrefillSink prefill_sink_;
  std::unique_ptr<Leg> prefill_;
  std::unique_ptr<Leg> main_;
};

}  // namespace fairlead::serving
