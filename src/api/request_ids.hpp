#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include "net/http.hpp"

namespace fairlead::api {

/// True for the 36 characters of a UUID in its usual form, any version, either case.
bool is_uuid(std::string_view text);

/// Makes the internal ids of requests; one per reactor.
class RequestIds {
 public:
  /// `seed` decides the ids; a random one outside of tests.
  explicit RequestIds(std::uint64_t seed) : random_(seed) {}

  /// The id that the client gave in `request-id` or `x-dynamo-request-id` when it is a UUID, else a
  /// new UUID of version 4.
  std::string next(const net::http::HeaderList& headers);

 private:
  std::mt19937_64 random_;
};

}  // namespace fairlead::api
