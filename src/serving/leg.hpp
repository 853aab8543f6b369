#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string_view>

#include "engine/client.hpp"
#include "serving/dispatch.hpp"
#include "serving/service.hpp"
#include "serving/worker_choice.hpp"

namespace fairlead::serving {

/// What one engine does of a generation: its booking and its stream, owned together. Destroying an
/// unfinished one aborts it on the engine and gives the booking back. Belongs to one reactor.
class Leg final : public engine::TokenSink {
 public:
  /// `to` is told what the engine says, and outlives the leg or detaches it.
  Leg(BookedWorker booked, engine::TokenSink& to);
  ~Leg() override;
  Leg(const Leg&) = delete;
  Leg& operator=(const Leg&) = delete;

  /// Sends the request through the gate and binds `session`, if any, to the worker. Errors are
  /// those of `dispatch`; nothing was sent then.
  Result<> start(Service& service, const engine::GenerateRequest& request,
                 std::string_view session);
  /// The worker.
  const fleet::Worker& worker() const { return booked_.reservation.worker(); }
  /// The booking.
  const BookedWorker& booked() const { return booked_; }
  /// The leg failed, or ended well: `down` drops the binding of its session.
  void end_session(bool down) { booked_.session.end(down); }
  /// Stops and goes on reading.
  void pause();
  /// See `pause`.
  void resume();
  /// See EngineStream.
  bool silent_until_done() const { return stream_ && stream_->silent_until_done(); }
  /// When its request was sent.
  net::TimePoint started_at() const { return started_at_; }
  /// True while the engine has sent no token and has not ended.
  bool before_first_token() const { return stream_ && !tokens_seen_ && !ended_; }
  /// Nobody is told any more; `freed` is called once when the first token or the end has come.
  void detach(std::move_only_function<void()> freed);

  void on_prompt(const engine::PromptInfo& info) override;
  void on_tokens(const engine::TokenChunk& chunk) override;
  bool on_unfinished(std::size_t bytes) override;
  void on_error(Error error) override;

 private:
  void told_free();

  BookedWorker booked_;
  engine::TokenSink* to_;
  std::move_only_function<void()> freed_;
  net::TimePoint started_at_;
  bool tokens_seen_ = false;
  bool ended_ = false;
  fleet::Activity::Request activity_;
  std::shared_ptr<engine::EngineClient> client_;  // before the stream, which uses it to the end
  std::unique_ptr<engine::EngineStream> stream_;
};

/// Legs of pairs whose client left when they could not be aborted yet. A decode leg of vLLM that
/// still pulls the prompt's KV cache: aborted at once, the pull would never come to its end and the
/// prefill engine would keep the blocks until a timeout of minutes. A leg of SGLang that was just
/// sent: an abort may overtake it inside the engine, which then waits minutes for the other leg. So
/// each is read on, unheard, until its first token or for a time, and aborted then. Belongs to one
/// reactor.
class PendingReleases {
 public:
  /// Beyond this many the oldest is aborted.
  static constexpr std::size_t kMax = 1024;

  /// Time after which a request has surely arrived inside its engine.
  static constexpr net::Duration kArrival = std::chrono::seconds(1);

  /// No leg is kept longer than `limit`; 0 keeps none.
  explicit PendingReleases(net::Duration limit);
  PendingReleases(const PendingReleases&) = delete;
  PendingReleases& operator=(const PendingReleases&) = delete;

  /// Takes a leg that is before its first token; `shard` counts what becomes of it.
  void adopt(std::unique_ptr<Leg> leg, observe::ModelShard& shard) {
    keep(std::move(leg), shard, net::Reactor::current()->now() + limit_,
         observe::ReleaseOutcome::Timeout);
  }
  /// Takes such a leg only until it has surely arrived.
  void settle(std::unique_ptr<Leg> leg, observe::ModelShard& shard) {
    const net::TimePoint arrived = leg->started_at() + std::min(kArrival, limit_);
    keep(std::move(leg), shard, arrived, observe::ReleaseOutcome::Settled);
  }
  /// Legs that are kept.
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::unique_ptr<Leg> leg;
    observe::ModelShard* shard;
    net::TimePoint deadline;
    observe::ReleaseOutcome then;  // at the deadline
  };
  void keep(std::unique_ptr<Leg> leg, observe::ModelShard& shard, net::TimePoint deadline,
            observe::ReleaseOutcome then);
  void release(std::size_t at, observe::ReleaseOutcome outcome);
  void freed(const Leg* leg);
  void arm();
  void sweep();

  net::Duration limit_;
  std::vector<Entry> entries_;
  net::Timer timer_;
};

}  // namespace fairlead::serving
