#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "mock/engine_state.hpp"
#include "mock/sglang_output.hpp"
#include "net/event.hpp"
#include "net/http.hpp"
#include "net/task.hpp"

namespace fairlead::mock {

/// What a decode half tells the prefill engine: where it waits.
struct RoomAnnouncement {
  std::int64_t room = 0;   ///< The request's number.
  std::uint32_t rank = 0;  ///< The prefill rank that it expects.
};

/// Reads an announcement: `{"room": N, "dp_rank": N}`.
Result<RoomAnnouncement> parse_announcement(std::string_view body);
/// The form that `parse_announcement` reads.
std::string announcement_json(const RoomAnnouncement& announcement);
/// Reads what a prefill engine answers: `{"token": N, "cached_tokens": N, "logprob": BOOL}`.
Result<FirstToken> parse_first_token(std::string_view body);
/// The form that `parse_first_token` reads.
std::string first_token_json(const FirstToken& first);

/// The bootstrap server of a prefill engine, where the halves of a request meet: `GET /health` and
/// `GET /route` as the real one, and `POST /mock/room`, on which a decode engine announces a room
/// and waits for what the prefill half hands over.
class BootstrapRooms {
 public:
  /// The state must outlive it, and it the server with its handler.
  explicit BootstrapRooms(EngineState& state) : state_(state) {}
  BootstrapRooms(const BootstrapRooms&) = delete;
  BootstrapRooms& operator=(const BootstrapRooms&) = delete;

  /// A prefill half that is there. One that leaves before it has delivered says nothing to its
  /// peer, as measured.
  class PrefillHalf {
   public:
    /// The rooms must outlive it. A room that is in use is counted, and its second half never meets
    /// anyone.
    PrefillHalf(BootstrapRooms& rooms, std::uint32_t rank, std::int64_t room);
    PrefillHalf(const PrefillHalf&) = delete;
    PrefillHalf& operator=(const PrefillHalf&) = delete;
    ~PrefillHalf();

    /// Set once the decode half has announced itself.
    net::Event& met() { return met_; }
    /// Hands over; nothing happens when the decode half has left meanwhile.
    void deliver(const FirstToken& first);

   private:
    friend class BootstrapRooms;
    BootstrapRooms& rooms_;
    std::pair<std::uint32_t, std::int64_t> key_;
    net::Event met_;
  };

  /// The handler of the bootstrap server.
  net::http::Handler handler();

 private:
  using Key = std::pair<std::uint32_t, std::int64_t>;
  struct DecodeHalf;
  struct Entry {
    PrefillHalf* prefill = nullptr;
    DecodeHalf* decode = nullptr;
  };

  net::Task<> serve(net::http::Exchange& exchange);
  net::Task<> serve_room(net::http::Exchange& exchange);
  std::string route_json() const;
  void leave(const Key& key, const PrefillHalf* prefill, const DecodeHalf* decode);

  EngineState& state_;
  std::map<Key, Entry> rooms_;
};

}  // namespace fairlead::mock
