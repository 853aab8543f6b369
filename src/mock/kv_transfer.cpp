#include "mock/kv_transfer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <tuple>

#include "mock/debug_api.hpp"
#include "net/http_client.hpp"

namespace fairlead::mock {
namespace {

constexpr net::Duration kFetchTimeout = std::chrono::seconds(30);
constexpr net::Duration kConnectTimeout = std::chrono::seconds(1);

}  // namespace

BlockHold::BlockHold(EngineState& state, EngineCore& core, std::vector<BlockId> blocks)
    : state_(state), core_(core), blocks_(std::move(blocks)) {
  ++state_.held_for_transfer;
}

BlockHold::~BlockHold() {
  --state_.held_for_transfer;
  core_.release(blocks_);
}

void KvTransferTable::keep(EngineCore& core, const std::string& request_id,
                           const std::vector<BlockId>& blocks) {
  const net::Duration limit = std::chrono::milliseconds(state_.options.kv_transfer_timeout_ms);
  held_.emplace(std::piecewise_construct, std::forward_as_tuple(request_id),
                std::forward_as_tuple(state_, core, blocks, net::Clock::now() + limit));
  if (!sweep_.armed()) {
    sweep_.arm(limit);
  }
}

void KvTransferTable::sweep() {
  const net::TimePoint now = net::Clock::now();
  state_.kv_transfer_timeouts_total +=
      std::erase_if(held_, [&](const auto& entry) { return entry.second.deadline <= now; });
  const auto next =
      std::ranges::min_element(held_, {}, [](const auto& entry) { return entry.second.deadline; });
  if (next != held_.end()) {
    sweep_.arm_at(next->second.deadline);
  }
}

net::http::Handler KvTransferTable::handler() {
  return [this](net::http::Exchange& exchange) { return serve(exchange); };
}

net::Task<> KvTransferTable::serve(net::http::Exchange& exchange) {
  const net::http::Request& request = exchange.request();
  const bool known = request.method == "POST" && request.path == "/mock/fetch";
  const auto held = known ? held_.find(request.body) : held_.end();
  if (held == held_.end()) {
    exchange.respond(404, {{"content-type", "application/json"}}, debug_error("no such blocks"));
    co_return;
  }
  ++state_.kv_fetches_total;
  held_.erase(held);
  exchange.respond(200, {{"content-type", "application/json"}}, "{}");
}

std::shared_ptr<KvFetch> KvFetcher::start(const RemoteKv& remote) {
  auto fetch = std::make_shared<KvFetch>();
  tasks_.spawn(run(remote, fetch));
  return fetch;
}

net::Task<> KvFetcher::run(RemoteKv remote, std::shared_ptr<KvFetch> fetch) {
  // A name may take a moment to look up, which a simulated engine can bear.
  auto addresses = net::resolve(remote.host, remote.port);
  if (addresses) {
    net::http::ClientLimits limits;
    limits.connect_timeout = kConnectTimeout;
    net::http::Client client(dialer_, fmt::format("{}:{}", remote.host, remote.port),
                             std::move(*addresses), limits);
    net::http::ClientRequest request;
    request.method = "POST";
    request.target = "/mock/fetch";
    request.body = remote.request_id;
    const auto response =
        co_await client.send(std::move(request), net::Clock::now() + kFetchTimeout);
    fetch->succeeded = response && response->status == 200;
  }
  ++(fetch->succeeded ? state_.kv_fetches_total : state_.kv_fetch_failures_total);
  fetch->done.set();
}

}  // namespace fairlead::mock
