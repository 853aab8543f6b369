#include "api/kv_mode.hpp"

#include <fmt/format.h>

namespace fairlead::api {

std::optional<Error> check_kv_mode(const serving::Service& service, std::string_view lack) {
  if (service.routes_by_kv()) {
    return std::nullopt;
  }
  return Error{ErrorCode::InvalidRequest,
               fmt::format("This server does not route by KV cache (--router-mode kv): {}", lack),
               {}};
}

}  // namespace fairlead::api
