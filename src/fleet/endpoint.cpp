#include "fleet/endpoint.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <array>
#include <bit>
#include <charconv>
#include <utility>

namespace fairlead::fleet {
namespace {

constexpr std::uint64_t kIdMask = 0x001F'FFFF'FFFF'FFFF;
constexpr std::uint16_t kDefaultPort = 80;

/// The state of SipHash with one compression and three finalisation rounds.
struct SipHash13 {
  std::uint64_t v0 = 0x736f6d6570736575;
  std::uint64_t v1 = 0x646f72616e646f6d;
  std::uint64_t v2 = 0x6c7967656e657261;
  std::uint64_t v3 = 0x7465646279746573;

  void round() {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }
  void word(std::uint64_t m) {
    v3 ^= m;
    round();
    v0 ^= m;
  }
  std::uint64_t finish() {
    v2 ^= 0xff;
    round();
    round();
    round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string to_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    c = lower(c);
  }
  return out;
}

std::unexpected<Error> bad(std::string_view text, std::string_view reason) {
  return fail(ErrorCode::InvalidRequest, fmt::format("engine endpoint `{}`: {}", text, reason));
}

bool valid_host_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
}

/// IPv6 in the canonical form of RFC 5952, so that spellings of one address give one worker.
bool canonical_ipv6(const std::string& text, std::string& out) {
  std::array<unsigned char, 16> bytes{};
  std::array<char, INET6_ADDRSTRLEN> buffer{};
  if (inet_pton(AF_INET6, text.c_str(), bytes.data()) != 1 ||
      inet_ntop(AF_INET6, bytes.data(), buffer.data(), buffer.size()) == nullptr) {
    return false;
  }
  out = buffer.data();
  return true;
}

struct HostPort {
  std::string_view host;  // without brackets
  std::string_view port;
  bool bracketed = false;
};

/// Splits `host[:port]` or `[v6][:port]`; the error is the reason.
std::expected<HostPort, std::string_view> split_authority(std::string_view authority) {
  if (authority.starts_with('[')) {
    const std::size_t close = authority.find(']');
    if (close == std::string_view::npos) {
      return std::unexpected("`[` without `]`");
    }
    const std::string_view rest = authority.substr(close + 1);
    if (!rest.empty() && rest.front() != ':') {
      return std::unexpected("only `:PORT` may follow `]`");
    }
    return HostPort{authority.substr(1, close - 1), rest.empty() ? rest : rest.substr(1), true};
  }
  const std::size_t colon = authority.find(':');
  if (colon == std::string_view::npos) {
    return HostPort{authority, {}, false};
  }
  if (authority.find(':', colon + 1) != std::string_view::npos) {
    return std::unexpected("an IPv6 address must stand in brackets, like http://[::1]:50051");
  }
  return HostPort{authority.substr(0, colon), authority.substr(colon + 1), false};
}

std::expected<std::uint16_t, std::string_view> parse_port(std::string_view text) {
  if (text.empty()) {
    return kDefaultPort;
  }
  std::uint32_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc{} || end != text.data() + text.size() || port == 0 || port > 65535) {
    return std::unexpected("the port must be a number from 1 to 65535");
  }
  return static_cast<std::uint16_t>(port);
}

/// Removes a scheme; the error is the reason.
std::expected<std::string_view, std::string_view> strip_scheme(std::string_view text) {
  const std::size_t mark = text.find("://");
  if (mark == std::string_view::npos) {
    return text;
  }
  const std::string scheme = to_lower(text.substr(0, mark));
  if (scheme == "https" || scheme == "grpcs") {
    return std::unexpected("TLS to engines is not supported; use http:// or grpc://");
  }
  if (scheme != "http" && scheme != "grpc") {
    return std::unexpected("the scheme must be http:// or grpc://, or be left out");
  }
  return text.substr(mark + 3);
}

/// What an endpoint may not have behind its authority; null when there is nothing of it.
const char* forbidden_part(std::string_view& rest) {
  const std::size_t end = rest.find_first_of("/?#\\");
  if (end != std::string_view::npos) {
    const std::string_view tail = rest.substr(end);
    rest = rest.substr(0, end);
    if (tail.find('#') != std::string_view::npos) {
      return "a fragment is not allowed";
    }
    if (tail.find('?') != std::string_view::npos) {
      return "a query is not allowed";
    }
    if (tail != "/") {
      return "a path is not allowed";
    }
  }
  return rest.find('@') != std::string_view::npos ? "user info is not allowed" : nullptr;
}

}  // namespace

std::string Endpoint::authority_host() const {
  return host.find(':') == std::string::npos ? host : fmt::format("[{}]", host);
}

Result<Endpoint> parse_endpoint(std::string_view text) {
  const std::string_view trimmed = trim(text);
  if (trimmed.empty()) {
    return bad(text, "it is empty");
  }
  const auto without_scheme = strip_scheme(trimmed);
  if (!without_scheme) {
    return bad(trimmed, without_scheme.error());
  }
  std::string_view rest = *without_scheme;
  if (const char* reason = forbidden_part(rest)) {
    return bad(trimmed, reason);
  }
  const auto parts = split_authority(rest);
  if (!parts) {
    return bad(trimmed, parts.error());
  }
  if (parts->host.empty()) {
    return bad(trimmed, "there is no host");
  }
  const auto port = parse_port(parts->port);
  if (!port) {
    return bad(trimmed, port.error());
  }
  Endpoint endpoint;
  endpoint.port = *port;
  endpoint.host = to_lower(parts->host);
  if (parts->bracketed) {
    if (!canonical_ipv6(endpoint.host, endpoint.host)) {
      return bad(trimmed, "the text in brackets is not an IPv6 address");
    }
  } else {
    for (const char c : endpoint.host) {
      if (!valid_host_char(c)) {
        return bad(trimmed, "the host has a character that host names cannot have");
      }
    }
  }
  endpoint.authority = fmt::format("{}:{}", endpoint.authority_host(), endpoint.port);
  // The default port of the scheme is not part of the normal form.
  endpoint.url = endpoint.port == kDefaultPort ? "http://" + endpoint.authority_host()
                                               : "http://" + endpoint.authority;
  return endpoint;
}

Result<std::vector<Endpoint>> parse_endpoints(std::string_view list) {
  std::vector<Endpoint> endpoints;
  while (true) {
    const std::size_t comma = list.find(',');
    Result<Endpoint> endpoint = parse_endpoint(list.substr(0, comma));
    if (!endpoint) {
      return std::unexpected(std::move(endpoint.error()));
    }
    endpoints.push_back(std::move(*endpoint));
    if (comma == std::string_view::npos) {
      return endpoints;
    }
    list.remove_prefix(comma + 1);
  }
}

std::uint64_t endpoint_hash(std::string_view text) {
  // The input is the text and one byte 0xFF; the last word carries the length in its top byte.
  SipHash13 hash;
  const std::size_t length = text.size() + 1;
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < length; ++i) {
    const auto byte = i < text.size() ? static_cast<unsigned char>(text[i]) : 0xFFU;
    word |= static_cast<std::uint64_t>(byte) << (8 * (i % 8));
    if (i % 8 == 7) {
      hash.word(std::exchange(word, 0));
    }
  }
  hash.word(word | static_cast<std::uint64_t>(length & 0xFF) << 56);
  return hash.finish();
}

WorkerId worker_id(std::string_view url) { return endpoint_hash(url) & kIdMask; }

std::string replace_wildcard_host(std::string_view zmq_endpoint, std::string_view authority_host) {
  constexpr std::string_view kScheme = "tcp://";
  if (zmq_endpoint.starts_with(kScheme)) {
    const std::string_view rest = zmq_endpoint.substr(kScheme.size());
    for (const std::string_view wildcard : {"*", "0.0.0.0", "[::]"}) {
      if (rest.starts_with(wildcard) && rest.substr(wildcard.size()).starts_with(':')) {
        return fmt::format("{}{}{}", kScheme, authority_host, rest.substr(wildcard.size()));
      }
    }
  }
  return std::string(zmq_endpoint);
}

}  // namespace fairlead::fleet
