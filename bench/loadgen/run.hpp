#pragma once

#include <string>

#include "loadgen/options.hpp"

namespace fairlead::loadgen {

/// Runs the load and returns the report as one line of JSON.
std::string run_load(const Options& options);

/// The cheapest possible paced stream: one bare TCP send of `bytes` per token and client, `clients`
/// at once, `tokens` each, one every `interval_ms`. Returns CPU µs per send of the sender.
std::string run_floor(int clients, int tokens, int bytes, double interval_ms);

}  // namespace fairlead::loadgen
