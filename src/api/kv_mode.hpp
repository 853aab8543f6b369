#pragma once

#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "serving/service.hpp"

namespace fairlead::api {

/// Why a request that is about routing by KV cache is refused, if this server routes otherwise.
/// `lack` ends the sentence: "there is nothing to dump".
std::optional<Error> check_kv_mode(const serving::Service& service, std::string_view lack);

}  // namespace fairlead::api
