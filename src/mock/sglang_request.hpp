#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "mock/generate_spec.hpp"
#include "mock/options.hpp"
#include "net/grpc.hpp"

namespace sglang::runtime::v1 {
class GenerateRequest;
}

namespace fairlead::mock {

/// The host with which a request skips the hand-off: the engine's own hook for its warm-up.
inline constexpr std::string_view kNoTransferHost = "2.2.2.2";

/// Where the two halves of a request find each other.
struct BootstrapRoom {
  std::string host;        ///< Of the prefill engine's bootstrap server.
  std::uint16_t port = 0;  ///< Likewise.
  std::int64_t room = 0;   ///< The request's own number.
};

/// A checked request to SGLang.
struct SglangRequest {
  GenerateSpec spec;              ///< What the engine does.
  bool streaming = false;         ///< More than one message.
  bool no_tokens = false;         ///< max_new_tokens was 0.
  std::uint32_t choices = 1;      ///< `n`.
  bool counts_reasoning = false;  ///< Tokens count as reasoning up to the end mark.
  std::uint32_t top_n = 0;        ///< Candidates per token; 0 = no lists of them.
  std::size_t logprob_start = 0;  ///< First prompt token with a logprob, when there are any.
  /// Of an engine with a role; none when the request has none.
  std::optional<BootstrapRoom> room;
};

/// A request that the scheduler refuses: an ordinary last message says so.
struct SglangAbort {
  std::string message;            ///< The engine's words.
  int status = 400;               ///< HTTP status.
  bool bad_request_type = false;  ///< `err_type` is BadRequestError, else null.
  bool bogus_token = false;       ///< A token that means nothing goes with it.
};

/// What the scheduler of a real engine dies of: a token id outside the vocabulary.
struct SglangDeath {
  std::int32_t token = 0;  ///< The id.
};

/// The outcome of a check.
using SglangOutcome = std::variant<SglangRequest, net::grpc::Status, SglangAbort, SglangDeath>;

/// What the engine's gRPC layer finds wrong before Python sees the request; none when it passed.
std::optional<net::grpc::Status> check_sglang_fields(
    const ::sglang::runtime::v1::GenerateRequest& request, const MockOptions& options);

/// Checks a request as SGLang 0.5.23 does, with its texts. `rid` is the request's id, sent or made.
SglangOutcome check_sglang_request(const ::sglang::runtime::v1::GenerateRequest& request,
                                   std::string rid, const MockOptions& options);

/// The longest prompt that the scheduler takes.
std::uint32_t max_request_input(const MockOptions& options);

/// A number as Python prints it: shortest form, always with a point; `nan` is NaN.
std::string python_float(double value);

}  // namespace fairlead::mock
