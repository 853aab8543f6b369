#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/intrusive_list.hpp"
#include "mock/engine_core.hpp"
#include "mock/mock_engine.hpp"
#include "mock/options.hpp"
#include "mock/reply.hpp"
#include "mock/request_checks.hpp"
#include "net/event.hpp"
#include "net/http.hpp"

namespace fairlead::mock {

struct KvFetch;
struct RemoteKv;

/// A generation that Abort can find. Leaves its engine when destroyed.
class AbortableRequest : public ListNode<AbortableRequest> {
 public:
  virtual ~AbortableRequest() = default;
  /// The client's id; several live requests may share one.
  virtual const std::string& request_id() const = 0;
  /// Ends the generation as aborted, with a last message to the client.
  virtual void abort() = 0;
};

/// One call as it was received.
struct ReceivedRequest {
  std::string method;             ///< `/package.Service/Method`.
  net::http::HeaderList headers;  ///< All fields.
  std::string message;            ///< The serialized request.
};

/// What one request asked for, briefer than the request itself.
struct RequestRecord {
  std::string request_id;  ///< As sent, or made.
  std::string model;       ///< As sent; empty = none was named.
  std::string lora;        ///< Adapter; empty = base model.
  bool stream = false;     ///< A stream was wanted.
  std::string extra_args;  ///< JSON of the extra arguments that were taken; empty = none.
  std::string sampling;    ///< Sampling fields as received, in the interface's own form.
  std::string refusal;     ///< Why it was refused; empty = it was not.
};

/// A record's fields as JSON objects.
struct RenderedRecord {
  std::string sampling = "{}";  ///< Sampling fields as received.
  std::string logprobs = "{}";  ///< What of log-probabilities was asked for.
};

/// Where a loaded adapter is said to come from.
std::string lora_path(std::string_view lora);

/// What the services of one simulated engine share. Belongs to the engine's reactor.
struct EngineState {
  /// An engine without ranks; its owner adds them.
  EngineState(MockOptions given, ReplySource source)
      : options(std::move(given)), replies(std::move(source)) {}

  MockOptions options;                             ///< As given; `faults` are the current ones.
  ReplySource replies;                             ///< Deals out answers.
  std::vector<std::unique_ptr<EngineCore>> cores;  ///< One per rank.
  std::string instance_id;                         ///< New with every start.
  std::int64_t started_at = 0;                     ///< Unix time in seconds.
  std::uint64_t incarnation = 0;                   ///< Start time in nanoseconds.
  std::uint16_t listen_port = 0;                   ///< Where the engine's interface listens.
  std::uint16_t bootstrap_port = 0;                ///< Of the bootstrap server; 0 = none.
  bool paused = false;                             ///< By PauseGeneration.

  std::uint64_t requests_total = 0;            ///< Generate calls received.
  std::uint64_t rejected_total = 0;            ///< Refused before they were queued.
  std::uint64_t finished_total = 0;            ///< Ended by themselves.
  std::uint64_t aborted_total = 0;             ///< Cancelled or aborted.
  std::uint64_t faulted_total = 0;             ///< Ended by a fault.
  std::uint64_t abort_calls_total = 0;         ///< Abort calls received.
  std::uint64_t requests_with_extra_args = 0;  ///< Accepted ones with extra arguments.
  std::size_t held = 0;                        ///< Requests that `stall-open` holds.
  std::size_t active = 0;                      ///< Live generations.
  std::size_t waiting_for_peer = 0;            ///< Requests whose other half is not there yet.
  std::size_t held_for_transfer = 0;           ///< Ended requests whose blocks are still held.
  std::uint64_t room_reuse_total = 0;          ///< Rooms that were taken while in use.
  std::uint64_t kv_fetches_total = 0;          ///< Hand-offs of vLLM that were fetched, by or here.
  std::uint64_t kv_fetch_failures_total = 0;   ///< Those that were not there.
  std::uint64_t kv_transfer_timeouts_total = 0;  ///< Those that nobody fetched in time.
  std::string transfer_host;                     ///< Where hand-offs of vLLM can be fetched.
  std::uint16_t transfer_port = 0;               ///< Likewise.
  std::deque<ReceivedRequest> received;          ///< The latest Generate calls, newest last.
  std::size_t received_bytes = 0;                ///< Their messages together.
  std::deque<std::string> aborted_ids;           ///< Ids of the latest Abort calls, newest last.
  IntrusiveList<AbortableRequest, AbortableRequest> generations;  ///< All live ones.
  std::deque<RequestRecord> records;  ///< Of the latest Generate calls, newest last.
  std::size_t record_bytes = 0;       ///< Of their extra arguments and sampling fields.
  /// Keeps the blocks of a finished prefill for a decode engine; empty = they are free at once.
  std::function<void(EngineCore&, const std::string& request_id, std::vector<BlockId>)> keep_kv;
  /// Fetches such blocks.
  std::function<std::shared_ptr<KvFetch>(const RemoteKv&)> fetch_kv;
  /// Ends the engine like a crash, soon; the argument says what it died of.
  std::function<void(std::string)> die;
  /// Renders what a record holds in the interface's own form.
  std::function<RenderedRecord(const RequestRecord&)> render_record;
  /// Renders the message of a received request as JSON.
  std::function<std::string(const ReceivedRequest&)> render_message;

  /// The first switched-on fault of a kind, or null.
  const Fault* fault(FaultKind kind) const { return find_fault(options.faults, kind); }
  /// Records a Generate call, within bounds.
  void record(std::string_view method, const net::http::HeaderList& headers,
              std::string_view message);
  /// Keeps a record, within bounds.
  void add_record(RequestRecord record);
  /// Aborts every live generation of this id.
  void abort(std::string_view request_id);
  /// Aborts every live generation.
  void abort_all();
  /// The rank with the least work, the first among equals.
  EngineCore& least_loaded() { return *cores[least_loaded_rank()]; }
  /// Its number.
  std::size_t least_loaded_rank() const;
  /// Counts of all ranks.
  MockCounts counts() const;
};

/// A request that waits for its other half.
class WaitingForPeer {
 public:
  /// The state must outlive it.
  explicit WaitingForPeer(EngineState& state) : state_(state) { ++state_.waiting_for_peer; }
  WaitingForPeer(const WaitingForPeer&) = delete;
  WaitingForPeer& operator=(const WaitingForPeer&) = delete;
  ~WaitingForPeer() { --state_.waiting_for_peer; }

 private:
  EngineState& state_;
};

/// A request that `stall-open` holds, as long as its client stays.
class HeldRequest {
 public:
  /// The state must outlive it.
  explicit HeldRequest(EngineState& state) : state_(state) { ++state_.held; }
  HeldRequest(const HeldRequest&) = delete;
  HeldRequest& operator=(const HeldRequest&) = delete;
  ~HeldRequest() {
    --state_.held;
    ++state_.aborted_total;
  }

 private:
  EngineState& state_;
};

/// Whether the engine takes a further request now.
Check check_admission(const EngineState& state);

}  // namespace fairlead::mock
