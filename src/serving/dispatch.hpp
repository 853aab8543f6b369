#pragma once

#include <memory>

#include "base/error.hpp"
#include "engine/client.hpp"
#include "fleet/worker.hpp"
#include "serving/service.hpp"

namespace fairlead::serving {

/// A generation that was sent, with the client that it runs on. The stream is destroyed first.
struct Dispatched {
  std::shared_ptr<engine::EngineClient> client;  ///< Outlives the stream.
  std::unique_ptr<engine::EngineStream> stream;  ///< See EngineStream.
  fleet::Activity::Request activity;             ///< Counts it at the worker while it runs.
};

/// The one gate between a choice and its engine: every request of every routing mode passes here
/// last, whoever chose the worker and however long ago. The worker's record of the current
/// snapshot must cover what the request cannot do without, its adapter included. If it does not,
/// the answer is CapabilityUnavailable and nothing is sent; the caller gives its reservation back,
/// tries no other worker and does not blame this one. A worker that has left is EngineUnreachable.
/// Otherwise the errors are those of `EngineClient::open`.
Result<Dispatched> dispatch(Service& service, const fleet::Worker& chosen,
                            const engine::GenerateRequest& request, engine::TokenSink& sink);

}  // namespace fairlead::serving
