#include "mock/sglang_handoff.hpp"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "mock/sglang_bootstrap.hpp"
#include "net/event.hpp"
#include "net/http_client.hpp"

namespace fairlead::mock {
namespace {

using Outcome = std::expected<FirstToken, std::string>;

// A handshake is tried so often until it fails, at even distances.
constexpr int kTries = 15;
constexpr net::Duration kConnectTimeout = std::chrono::seconds(1);
constexpr std::string_view kRoute =
    "/route?prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1";

net::http::ClientLimits client_limits() {
  net::http::ClientLimits limits;
  limits.connect_timeout = kConnectTimeout;
  limits.body_bytes = 64 * 1024;
  return limits;
}

// What the decode engine learns of the prefill engine.
struct Route {
  std::int64_t ranks = 1;
  bool follows_room = true;
};

std::optional<Route> parse_route(std::string_view body) {
  const auto document = json::parse(body);
  const json::Value* ranks = document ? document->find("dp_size") : nullptr;
  const json::Value* follows = document ? document->find("follow_bootstrap_room") : nullptr;
  if (!ranks || !ranks->as_int() || *ranks->as_int() < 1 || !follows || !follows->as_bool()) {
    return std::nullopt;
  }
  return Route{*ranks->as_int(), *follows->as_bool()};
}

// Without the rule there is nothing to tell the rank by; the first one is as good a guess as any.
std::uint32_t rank_of(const Route& route, std::int64_t room) {
  if (route.ranks == 1 || !route.follows_room) {
    return 0;
  }
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(room) %
                                    static_cast<std::uint64_t>(route.ranks));
}

net::Task<std::optional<Route>> find_route(net::http::Client& client, net::TimePoint deadline,
                                           net::Duration pause) {
  for (;;) {
    net::http::ClientRequest request;
    request.target = kRoute;
    const auto response = co_await client.send(std::move(request), deadline);
    if (response && response->status == 200) {
      if (auto route = parse_route(response->body)) {
        co_return route;
      }
    }
    if (net::Clock::now() + pause >= deadline) {
      co_return std::nullopt;
    }
    co_await net::Sleep(pause);
  }
}

std::string failed(std::string_view stage, std::string_view rid, std::int64_t room,
                   std::string_view cause) {
  return fmt::format(
      "Decode {} failed for request rank=0 decode_req.req.rid='{}' "
      "decode_req.req.bootstrap_room={} with exception KVTransferError(bootstrap_room={}): {}",
      stage, rid, room, room, cause);
}

net::Task<> sleep_until(net::TimePoint time) {
  const net::Duration left = time - net::Clock::now();
  if (left > net::Duration(0)) {
    co_await net::Sleep(left);
  }
}

}  // namespace

net::Task<Outcome> receive_first_token(net::Dialer& dialer, const BootstrapRoom& room,
                                       std::string_view rid, const MockOptions& options) {
  const net::TimePoint start = net::Clock::now();
  const net::TimePoint lost = start + std::chrono::milliseconds(options.handshake_timeout_ms);
  const std::string address = fmt::format("{}:{}", room.host, room.port);
  auto addresses = net::resolve(room.host, room.port);
  std::optional<Route> route;
  net::http::Client client(dialer, address,
                           addresses ? std::move(*addresses) : std::vector<net::Address>(),
                           client_limits());
  if (addresses) {
    route = co_await find_route(client, lost, (lost - start) / kTries);
  }
  if (!route) {
    co_await sleep_until(lost);
    co_return std::unexpected(failed("handshake", rid, room.room, "Aborted by AbortReq."));
  }
  const net::TimePoint deadline =
      net::Clock::now() + std::chrono::milliseconds(options.bootstrap_timeout_ms);
  net::http::ClientRequest request;
  request.method = "POST";
  request.target = "/mock/room";
  request.headers.add("content-type", "application/json");
  request.body = announcement_json({room.room, rank_of(*route, room.room)});
  const auto response = co_await client.send(std::move(request), deadline);
  if (response && response->status == 200) {
    if (auto first = parse_first_token(response->body)) {
      co_return *first;
    }
  }
  if (net::Clock::now() >= deadline) {
    co_return std::unexpected(
        failed("transfer", rid, room.room,
               fmt::format("Request {} timed out after {:.1f}s in KVPoll.WaitingForInput",
                           room.room, options.bootstrap_timeout_ms / 1000.0)));
  }
  // The real one finds out by heartbeats that are not answered.
  co_await sleep_until(lost);
  co_return std::unexpected(
      failed("transfer", rid, room.room,
             fmt::format("Lost connection with prefill instance (bootstrap_addr: {})", address)));
}

std::string bootstrap_timeout_text(const BootstrapRoom& room, std::string_view rid,
                                   const MockOptions& options) {
  return fmt::format(
      "Prefill bootstrap failed for request rank=0 req.rid='{}' req.bootstrap_room={} with "
      "exception KVTransferError(bootstrap_room={}): Request {} timed out after {:.1f}s in "
      "KVPoll.Bootstrapping",
      rid, room.room, room.room, room.room, options.bootstrap_timeout_ms / 1000.0);
}

}  // namespace fairlead::mock
