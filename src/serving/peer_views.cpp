#include "serving/peer_views.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "base/log.hpp"
#include "net/event.hpp"
#include "net/http_client.hpp"

namespace fairlead::serving {
namespace {

constexpr std::string_view kPath = "/v1/kv/dump";
constexpr std::size_t kMostErrorBytes = std::size_t{64} * 1024;

/// One dump that is being read.
struct Download {
  explicit Download(std::size_t max_bytes) : reader(max_bytes) {}

  net::Event moved;  // bytes came, or it is over
  bool over = false;
  kv::DumpReader reader;
  Result<> read;  // what the reader said
  std::optional<Result<net::http::ClientResponse>> answer;
};

net::Task<> fetch(net::http::Client& client, net::TimePoint deadline, Download& download) {
  const auto take = [&download](std::string_view bytes) {
    download.read = download.reader.feed(bytes);
    download.moved.set();
  };
  download.answer = co_await client.stream(
      {.method = "GET", .target = std::string(kPath), .headers = {}, .body = {}}, deadline, take);
  download.over = true;
  download.moved.set();
}

}  // namespace

PeerViews::PeerViews(net::Dialer& dialer, fleet::Resolver& resolver, PeerOptions options)
    : dialer_(dialer), resolver_(resolver), options_(std::move(options)) {}

void PeerViews::start(OnDone on_done) {
  on_done_ = std::move(on_done);
  deadline_ = net::Reactor::current()->now() + options_.timeout;
  tasks_.spawn(run());
}

net::Task<> PeerViews::run() {
  co_await net::NextTurn();
  // A peer that shuts down answers as a busy one does, so that is not waited for to the end.
  const net::TimePoint patience = net::Reactor::current()->now() + options_.stall;
  while (!co_await ask_each() && busy_ && net::Reactor::current()->now() < patience) {
    co_await net::Sleep(options_.pause);
  }
  std::vector<kv::DumpedTarget> views;
  for (auto& [key, view] : found_) {
    views.push_back(std::move(view));
  }
  on_done_(std::move(views));
}

// One round; true when nobody else needs to be asked.
net::Task<bool> PeerViews::ask_each() {
  busy_ = false;
  for (const fleet::Endpoint& peer : options_.peers) {
    if (co_await ask_all(peer)) {
      co_return true;
    }
    if (net::Reactor::current()->now() >= deadline_) {
      log::warn("not all peers' views of caches came in time");
      co_return true;
    }
  }
  co_return false;
}

// True when one of the peer's addresses knew all that it follows completely.
net::Task<bool> PeerViews::ask_all(const fleet::Endpoint& peer) {
  const auto addresses = co_await resolver_.resolve(peer.host, peer.port);
  if (!addresses) {
    log::warn("peer {}: {}", peer.url, addresses.error().message);
    co_return false;
  }
  std::string failure;
  bool answered = false;
  for (const net::Address& address : *addresses) {
    Dump dump = co_await ask(peer, address);
    if (!dump && dump.error().code == ErrorCode::Overloaded) {
      busy_ = true;
      answered = true;
      log::info("peer {} ({}): {}", peer.url, address.to_string(), dump.error().message);
      continue;
    }
    if (!dump) {
      failure = fmt::format("{}: {}", address.to_string(), dump.error().message);
      continue;
    }
    answered = true;
    std::erase_if(*dump, [](const kv::DumpedTarget& target) { return !target.checkpoint; });
    std::size_t blocks = 0;
    bool complete = !dump->empty();
    for (kv::DumpedTarget& target : *dump) {
      blocks += target.blocks.size();
      complete &= target.checkpoint->point.coverage == kv::Coverage::Complete;
      keep(std::move(target));
    }
    log::info("peer {} ({}) knows {} blocks in the caches of {} ranks", peer.url,
              address.to_string(), blocks, dump->size());
    if (complete) {
      co_return true;
    }
  }
  if (!answered) {
    log::warn("peer {} gives no views of caches: {}", peer.url, failure);
  }
  co_return false;
}

// Of two views of a rank the one that misses less.
void PeerViews::keep(kv::DumpedTarget view) {
  const auto worth = [](const kv::DumpedTarget& of) {
    return std::pair(of.checkpoint->point.coverage == kv::Coverage::Complete, of.blocks.size());
  };
  const auto [at, is_new] = found_.try_emplace(std::pair(view.worker_id, view.rank));
  if (is_new || worth(view) > worth(at->second)) {
    at->second = std::move(view);
  }
}

net::Task<PeerViews::Dump> PeerViews::ask(const fleet::Endpoint& peer,
                                          const net::Address& address) {
  net::http::Client client(dialer_, peer.authority, {address},
                           {.body_bytes = kMostErrorBytes, .connect_timeout = options_.stall});
  Download download(options_.max_bytes);
  net::TaskGroup fetching;
  fetching.spawn(fetch(client, deadline_, download));
  while (!download.over && download.read) {
    download.moved.reset();
    if (!co_await download.moved.wait_for(options_.stall)) {
      co_return fail(ErrorCode::EngineSilent, "it has stopped answering");
    }
  }
  if (!download.read) {
    co_return fail(ErrorCode::InvalidRequest, "its dump: " + download.read.error().message);
  }
  if (!*download.answer) {
    co_return std::unexpected(download.answer->error());
  }
  if (const int status = (**download.answer).status; status != 200) {
    co_return fail(status == 503 ? ErrorCode::Overloaded : ErrorCode::InvalidRequest,
                   fmt::format("it answers with status {}", status));
  }
  Dump dump = download.reader.take();
  if (!dump) {
    co_return fail(ErrorCode::InvalidRequest, "its dump: " + dump.error().message);
  }
  co_return dump;
}

}  // namespace fairlead::serving
