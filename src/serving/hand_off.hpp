#pragma once

#include <cstdint>
#include <optional>
#include <random>

#include "base/error.hpp"
#include "engine/client.hpp"
#include "engine/request.hpp"
#include "fleet/worker.hpp"

// How a generation is divided into a prefill and a decode leg: what each engine is asked for, and
// what goes from the one to the other. No I/O.

namespace fairlead::serving {

/// How an engine family hands a KV cache on.
enum class HandOff : std::uint8_t {
  AfterPrefill,  ///< vLLM: the prefill leg's terminal message says where the cache is.
  Bootstrap,     ///< SGLang: both legs run at once and meet in a room.
};

/// That of a family.
HandOff hand_off_of(engine::Backend backend);

/// A room at the bootstrap server of `prefill`: random below 2^63, and congruent to the rank that
/// is to compute the prompt, by which the decode engine finds it (engine-sglang.md 4.6). Without a
/// rank the room may be any, and is what spreads requests over the ranks. Errors: HandOffMissing
/// when the engine names no port.
Result<engine::Bootstrap> make_bootstrap(const fleet::Worker& prefill,
                                         std::optional<std::uint32_t> rank,
                                         std::mt19937_64& random);

/// The prefill leg of a request: the same with one token, which means nothing. With `Bootstrap`
/// the first token of the decode leg comes from here, log-probabilities and all.
engine::GenerateRequest prefill_leg(const engine::GenerateRequest& request, HandOff hand_off);

/// What a decode leg needs after a prefill that ended as `finish` says: the engine's parameters,
/// whole. Errors: HandOffMissing, which names what is not there.
Result<json::Value> take_over(const engine::Finish& finish);

}  // namespace fairlead::serving
