#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace fairlead::mock {

/// How a simulated engine misbehaves.
enum class FaultKind : std::uint8_t {
  Refuse,     ///< `refuse`: connections are refused; open ones are closed when it is switched on.
  StallOpen,  ///< `stall-open[:all]`: generations (`all`: every call) are accepted, never answered.
  StallAfter,     ///< `stall-after:N`: a stream falls silent behind N tokens.
  ResetAfter,     ///< `reset-after:N`: a stream is reset behind N tokens; 0: before any answer.
  EndAfter,       ///< `end-after:N`: a stream ends with OK behind N tokens, without a finish.
  ErrorAfter,     ///< `error-after:N:STATUS`: a stream fails behind N tokens; 0: before any answer.
  Slow,           ///< `slow:MS`: every token comes this much later.
  DropEvent,      ///< `drop-event:P`: KV event batches are lost with this probability.
  NotServing,     ///< `not-serving`: health says NOT_SERVING; work is done all the same.
  LogprobsNull,   ///< `logprobs-null`: log-probabilities that were asked for are null or absent.
  LogprobsEmpty,  ///< `logprobs-empty`: their lists are empty.
  LogprobsShort,  ///< `logprobs-short`: their lists lack the last entry.
  LogprobNan,     ///< `logprob-nan:N`: that of output token N (from 0) is not a finite number.
  LogprobUnsampled,  ///< `logprob-unsampled:N`: output token N is not in its own distribution.
  Cumulative,        ///< `cumulative`: HTTP events repeat all tokens so far, not the new ones.
};

/// One switched-on fault.
struct Fault {
  FaultKind kind = FaultKind::Refuse;  ///< Which.
  std::uint64_t tokens = 0;            ///< N.
  int status = 0;                      ///< STATUS as a gRPC code, or an HTTP status from 400.
  std::chrono::milliseconds delay{0};  ///< MS.
  double probability = 0;              ///< P, 0 to 1.
  bool all = false;                    ///< Every call, not only generations.
};

/// Parses `KIND[:ARG...]`; a STATUS is a gRPC name or number, or an HTTP status (400 to 599). The
/// error names what is wrong.
Result<Fault> parse_fault(std::string_view text);

/// The form that `parse_fault` reads.
std::string format_fault(const Fault& fault);

/// The STATUS of a fault as a gRPC code, whichever way it was given.
int grpc_status(const Fault& fault);
/// The STATUS of a fault as an HTTP status.
int http_status(const Fault& fault);

/// The first fault of a kind, or null.
const Fault* find_fault(std::span<const Fault> faults, FaultKind kind);

}  // namespace fairlead::mock
