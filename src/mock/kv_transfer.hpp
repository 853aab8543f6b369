#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mock/engine_state.hpp"
#include "mock/generate_spec.hpp"
#include "net/event.hpp"
#include "net/http.hpp"
#include "net/reactor.hpp"
#include "net/socket.hpp"
#include "net/task_group.hpp"

namespace fairlead::mock {

/// Blocks that stay in use although their request has ended, until the hold is destroyed.
class BlockHold {
 public:
  /// Takes over the references to `blocks`. State and core must outlive the hold.
  BlockHold(EngineState& state, EngineCore& core, std::vector<BlockId> blocks);
  BlockHold(const BlockHold&) = delete;
  BlockHold& operator=(const BlockHold&) = delete;
  ~BlockHold();

 private:
  EngineState& state_;
  EngineCore& core_;
  std::vector<BlockId> blocks_;
};

/// The blocks that a vLLM prefill engine keeps for decode engines, and the server where those fetch
/// them: `POST /mock/fetch` with the request's id as body gives 200 and frees them, or 404.
class KvTransferTable {
 public:
  /// The state must outlive it, and it the server with its handler.
  explicit KvTransferTable(EngineState& state) : state_(state), sweep_([this] { sweep(); }) {}
  KvTransferTable(const KvTransferTable&) = delete;
  KvTransferTable& operator=(const KvTransferTable&) = delete;

  /// Keeps blocks until they are fetched, or too long.
  void keep(EngineCore& core, const std::string& request_id, const std::vector<BlockId>& blocks);
  /// The handler of the server.
  net::http::Handler handler();
  /// Frees everything.
  void clear() { held_.clear(); }

 private:
  struct Held {
    Held(EngineState& state, EngineCore& core, std::vector<BlockId> blocks, net::TimePoint until)
        : hold(state, core, std::move(blocks)), deadline(until) {}
    BlockHold hold;
    net::TimePoint deadline;
  };

  void sweep();

  net::Task<> serve(net::http::Exchange& exchange);

  EngineState& state_;
  std::multimap<std::string, Held> held_;
  net::Timer sweep_;
};

/// A fetch that runs on when its request has ended.
struct KvFetch {
  net::Event done;         ///< Set at the end.
  bool succeeded = false;  ///< The blocks were there.
};

/// Fetches blocks for a vLLM decode engine.
class KvFetcher {
 public:
  /// The state must outlive it.
  explicit KvFetcher(EngineState& state) : state_(state) {}
  /// Starts a fetch.
  std::shared_ptr<KvFetch> start(const RemoteKv& remote);
  /// Ends every fetch.
  void cancel() { tasks_.cancel(); }

 private:
  net::Task<> run(RemoteKv remote, std::shared_ptr<KvFetch> fetch);

  EngineState& state_;
  net::TcpDialer dialer_;
  net::TaskGroup tasks_;
};

}  // namespace fairlead::mock
