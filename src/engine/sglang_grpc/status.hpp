#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "net/grpc.hpp"

namespace fairlead::engine::sglang_grpc {

/// The failure that the status of a Generate call means. Validation errors of the engine have the
/// code of its faults, INTERNAL: they are told apart by their text.
Error generate_error(const net::grpc::Status& status);

/// How an engine ended a generation by itself.
struct AbortReason {
  std::string type;                         ///< `abort`, `error` or the like.
  std::string message;                      ///< May be empty.
  std::string error_type;                   ///< A Python class; may be empty.
  std::optional<std::int64_t> status_code;  ///< Of HTTP.
};

/// The failure that it means: the codes 400 to 499 blame the request.
Error abort_error(const AbortReason& reason);

}  // namespace fairlead::engine::sglang_grpc
