#include "mock/sglang_bootstrap.hpp"

#include <limits>

#include "base/json.hpp"
#include "mock/debug_api.hpp"

namespace fairlead::mock {
namespace {

constexpr std::string_view kJson = "application/json";

void respond(net::http::Exchange& exchange, int status, std::string_view body) {
  exchange.respond(status, {{"content-type", std::string(kJson)}}, body);
}

std::unexpected<Error> malformed(std::string_view what) {
  return fail(ErrorCode::InvalidRequest, std::string(what));
}

// A whole number within [low, high].
std::optional<std::int64_t> whole(const json::Value& object, std::string_view key, std::int64_t low,
                                  std::int64_t high) {
  const json::Value* value = object.find(key);
  const std::int64_t* number = value ? value->as_int() : nullptr;
  return number && *number >= low && *number <= high ? std::optional(*number) : std::nullopt;
}

}  // namespace

Result<RoomAnnouncement> parse_announcement(std::string_view body) {
  const auto document = json::parse(body);
  if (!document) {
    return std::unexpected(document.error());
  }
  const auto room = whole(*document, "room", std::numeric_limits<std::int64_t>::min(),
                          std::numeric_limits<std::int64_t>::max());
  const auto rank = whole(*document, "dp_rank", 0, std::numeric_limits<std::int32_t>::max());
  if (!room || !rank) {
    return malformed(R"(expected {"room": N, "dp_rank": N})");
  }
  return RoomAnnouncement{*room, static_cast<std::uint32_t>(*rank)};
}

std::string announcement_json(const RoomAnnouncement& announcement) {
  std::string out;
  json::Writer json(out);
  json.begin_object().key("room").integer(announcement.room);
  json.key("dp_rank").unsigned_integer(announcement.rank).end_object();
  return out;
}

Result<FirstToken> parse_first_token(std::string_view body) {
  const auto document = json::parse(body);
  if (!document) {
    return std::unexpected(document.error());
  }
  constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
  const auto token = whole(*document, "token", 0, kMost);
  const auto cached = whole(*document, "cached_tokens", 0, kMost);
  const json::Value* scored = document->find("logprob");
  if (!token || !cached || !scored || !scored->as_bool()) {
    return malformed(R"(expected {"token": N, "cached_tokens": N, "logprob": BOOL})");
  }
  return FirstToken{static_cast<TokenId>(*token), static_cast<std::uint32_t>(*cached),
                    *scored->as_bool()};
}

std::string first_token_json(const FirstToken& first) {
  std::string out;
  json::Writer json(out);
  json.begin_object().key("token").unsigned_integer(first.token);
  json.key("cached_tokens").unsigned_integer(first.cached);
  json.key("logprob").boolean(first.scored).end_object();
  return out;
}

struct BootstrapRooms::DecodeHalf {
  BootstrapRooms& rooms;
  Key key;
  net::Event delivered;
  std::optional<FirstToken> first = std::nullopt;

  DecodeHalf(BootstrapRooms& owner, Key place) : rooms(owner), key(place) {
    Entry& entry = rooms.rooms_[key];
    if (entry.decode) {
      ++rooms.state_.room_reuse_total;
      return;
    }
    entry.decode = this;
    if (entry.prefill) {
      entry.prefill->met_.set();
    }
  }
  DecodeHalf(const DecodeHalf&) = delete;
  DecodeHalf& operator=(const DecodeHalf&) = delete;
  ~DecodeHalf() { rooms.leave(key, nullptr, this); }
};

BootstrapRooms::PrefillHalf::PrefillHalf(BootstrapRooms& rooms, std::uint32_t rank,
                                         std::int64_t room)
    : rooms_(rooms), key_(rank, room) {
  Entry& entry = rooms_.rooms_[key_];
  if (entry.prefill) {
    ++rooms_.state_.room_reuse_total;
    return;
  }
  entry.prefill = this;
  if (entry.decode) {
    met_.set();
  }
}

BootstrapRooms::PrefillHalf::~PrefillHalf() { rooms_.leave(key_, this, nullptr); }

void BootstrapRooms::PrefillHalf::deliver(const FirstToken& first) {
  const auto entry = rooms_.rooms_.find(key_);
  if (entry != rooms_.rooms_.end() && entry->second.prefill == this && entry->second.decode) {
    entry->second.decode->first = first;
    entry->second.decode->delivered.set();
  }
}

// A second half of an occupied room is not registered, so it takes nothing away.
void BootstrapRooms::leave(const Key& key, const PrefillHalf* prefill, const DecodeHalf* decode) {
  const auto entry = rooms_.find(key);
  if (entry == rooms_.end()) {
    return;
  }
  if (prefill && entry->second.prefill == prefill) {
    entry->second.prefill = nullptr;
  }
  if (decode && entry->second.decode == decode) {
    entry->second.decode = nullptr;
  }
  if (!entry->second.prefill && !entry->second.decode) {
    rooms_.erase(entry);
  }
}

net::http::Handler BootstrapRooms::handler() {
  return [this](net::http::Exchange& exchange) { return serve(exchange); };
}

net::Task<> BootstrapRooms::serve(net::http::Exchange& exchange) {
  const net::http::Request& request = exchange.request();
  if (request.method == "GET" && request.path == "/health") {
    exchange.respond(200, {{"content-type", "text/plain"}}, "OK");
  } else if (request.method == "GET" && request.path == "/route") {
    respond(exchange, 200, route_json());
  } else if (request.method == "POST" && request.path == "/mock/room") {
    co_await serve_room(exchange);
  } else {
    respond(exchange, 404, debug_error("no such route"));
  }
}

std::string BootstrapRooms::route_json() const {
  const MockOptions& options = state_.options;
  std::string out;
  json::Writer json(out);
  json.begin_object().key("attn_tp_size").integer(1).key("attn_cp_size").integer(1);
  json.key("dp_size").unsigned_integer(options.data_parallel_size).key("pp_size").integer(1);
  json.key("page_size").unsigned_integer(options.block_size);
  json.key("kv_cache_dtype").string("auto");
  json.key("follow_bootstrap_room").boolean(options.resolved_balance() == LoadBalance::FollowRoom);
  json.key("prefill_http_port").integer(state_.listen_port).end_object();
  return out;
}

net::Task<> BootstrapRooms::serve_room(net::http::Exchange& exchange) {
  const auto announcement = parse_announcement(exchange.request().body);
  if (!announcement) {
    respond(exchange, 400, debug_error(announcement.error().message));
    co_return;
  }
  DecodeHalf half(*this, {announcement->rank, announcement->room});
  co_await half.delivered.wait();
  respond(exchange, 200, first_token_json(*half.first));
}

}  // namespace fairlead::mock
