#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "mock/options.hpp"
#include "net/reactor.hpp"
#include "net/socket.hpp"
#include "net/task.hpp"

namespace fairlead::mock {

/// Where a started engine can be reached.
struct MockAddresses {
  net::Address engine;                      ///< The engine's own interface.
  Interface interface = Interface::Grpc;    ///< What is spoken there.
  std::optional<net::Address> debug;        ///< `GET /debug/state` and kin.
  std::optional<net::Address> bootstrap;    ///< Where decode engines of SGLang find this one.
  std::optional<net::Address> kv_transfer;  ///< Where decode engines of vLLM fetch blocks.
  std::string kv_events;  ///< `HOST:PORT` of rank 0's ZMQ publisher; empty = none.
  std::string kv_replay;  ///< `HOST:PORT` of rank 0's replay socket; empty = none.

  /// The ready line: `{"grpc": "HOST:PORT"` (or `"http"`) `, "debug": ..., "kv_events": ...,
  /// "kv_replay": ..., "bootstrap": ..., "kv_transfer": ...}` without what is not there.
  std::string to_json() const;
};

/// What an engine counts; gauges are as of now.
struct MockCounts {
  std::size_t running = 0;           ///< Requests that hold KV blocks.
  std::size_t waiting = 0;           ///< Requests that are queued, or held by `stall-open`.
  std::size_t kv_blocks_used = 0;    ///< Blocks that requests hold.
  std::uint64_t requests_total = 0;  ///< Generate calls received.
  std::uint64_t rejected_total = 0;  ///< Of these, refused before they were queued.
  std::uint64_t finished_total = 0;  ///< Ended by themselves.
  std::uint64_t aborted_total = 0;   ///< Cancelled by the client, or by Abort.
  std::uint64_t faulted_total = 0;   ///< Ended by a fault switch.
};

/// A simulated vLLM or SGLang engine: gRPC services or an HTTP server, scheduler timing, prefix
/// cache, KV events and fault switches, without a model. Lives in one reactor and is used by that
/// reactor's thread only; the KV events have their own thread.
class MockEngine {
 public:
  /// Checks the options and loads a reply script. Errors are InvalidRequest and name the flag.
  static Result<std::unique_ptr<MockEngine>> create(net::Reactor& reactor, MockOptions options);
  ~MockEngine();
  MockEngine(const MockEngine&) = delete;
  MockEngine& operator=(const MockEngine&) = delete;

  /// Waits for the simulated startup time, then binds everything. Call once. Errors name the
  /// address.
  net::Task<Result<MockAddresses>> start();
  /// Closes every socket and connection at once, as a real server does on SIGTERM. Not from inside
  /// one of its own requests.
  void stop();

  /// Called in the reactor when a request kills the engine, as some do a real SGLang; its
  /// connections close right after. Without it nothing else happens.
  void set_on_death(std::function<void(std::string cause)> callback);

  /// Counts of all ranks together.
  MockCounts counts() const;
  /// Replaces the switched-on faults. They concern requests that begin later; `refuse` closes
  /// connections at once, or listens again at the same address.
  Result<> set_faults(std::vector<Fault> faults);
  /// Empties the prefix cache of every rank; false when some rank could not, because requests run.
  bool reset_prefix_cache();

 private:
  class Impl;
  explicit MockEngine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace fairlead::mock
