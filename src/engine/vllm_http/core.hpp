#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/client.hpp"
#include "engine/vllm_http/dialect.hpp"
#include "engine/vllm_http/response.hpp"
#include "net/http_client.hpp"
#include "net/reactor.hpp"

namespace fairlead::engine::vllm_http {

class GenerateCall;

/// What the streams of one client share. Outlives its streams.
class Core {
 public:
  /// Finished calls whose response has not ended; of older ones the connection is closed.
  static constexpr std::size_t kMaxLingering = 256;

  /// `dialer` must outlive it.
  Core(net::Dialer& dialer, ClientOptions options);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  /// Keeps a finished call until its response ends, so that its connection can be used again.
  void linger(std::unique_ptr<GenerateCall> call);
  /// The response of a lingering call ended. Safe on that call's stack.
  void release(GenerateCall& call);

  net::http::Client http;   ///< To the engine.
  Dialect dialect;          ///< Of the engine, as far as known.
  std::string model;        ///< Served name sent in requests.
  ResponseScratch scratch;  ///< For the message being handled.

 private:
  void sweep();

  struct Lingering {
    std::unique_ptr<GenerateCall> call;
    net::TimePoint since;
  };
  std::vector<Lingering> lingering_;
  net::Timer sweep_timer_;
};

}  // namespace fairlead::engine::vllm_http
