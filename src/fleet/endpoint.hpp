#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace fairlead::fleet {

/// Identifies a worker: 53 bits, so that it survives JSON numbers; 0 means none.
using WorkerId = std::uint64_t;

/// Where an engine listens, in normal form.
struct Endpoint {
  std::string url;         ///< `http://HOST:PORT` without a trailing slash; port 80 is left out.
  std::string authority;   ///< `HOST:PORT`, as sent to the server.
  std::string host;        ///< Without brackets, for name resolution.
  std::uint16_t port = 0;  ///< Never 0.

  /// The host as it stands in a URL: IPv6 in brackets.
  std::string authority_host() const;
  /// The same place, by its normal form.
  bool operator==(const Endpoint& other) const { return url == other.url; }
};

/// Parses `host:port`, `http://host:port` or `grpc://host:port`; blanks around it are trimmed and a
/// port that is left out is 80. Errors are `InvalidRequest` and name the text and the
/// reason: TLS schemes, other schemes, no host, a bad port, user info, a path, a query, a fragment.
Result<Endpoint> parse_endpoint(std::string_view text);

/// Splits a comma list of endpoints and parses each; blanks around items are trimmed, empty items
/// are errors.
Result<std::vector<Endpoint>> parse_endpoints(std::string_view list);

/// The worker id of an endpoint's `url`: SipHash-1-3 with zero keys over the text and a byte 0xFF,
/// low 53 bits. The same for every role and every start of the program.
WorkerId worker_id(std::string_view url);

/// The full 64-bit hash below `worker_id`.
std::uint64_t endpoint_hash(std::string_view text);

/// Replaces the host of a ZMQ endpoint that names every interface (`tcp://*:P`, `tcp://0.0.0.0:P`,
/// `tcp://[::]:P`) by `authority_host`; other endpoints are returned as they are.
std::string replace_wildcard_host(std::string_view zmq_endpoint, std::string_view authority_host);

}  // namespace fairlead::fleet
