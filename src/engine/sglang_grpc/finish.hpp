#pragma once

#include <span>
#include <string_view>

#include "base/error.hpp"
#include "engine/client.hpp"

namespace fairlead::engine::sglang_grpc {

/// Reads `finish_reason` of a terminal message into `finish.reason` and the token that matched,
/// which is one of `stop_token_ids` or else an EOS. It is an object with a `type`; a bare string is
/// one too, as is Python's text of an object. An abort or error of the engine is returned as what
/// it means; no reason at all, or an unknown one, is EngineProtocol.
Result<> read_finish(std::string_view text, std::span<const TokenId> stop_token_ids,
                     Finish& finish);

}  // namespace fairlead::engine::sglang_grpc
