#include <chrono>
#include <cstdint>
#include <optional>
#include <tuple>

#include "mock/generation.hpp"
#include "mock/kv_transfer.hpp"
#include "mock/sglang_handoff.hpp"
#include "mock/sglang_output.hpp"
#include "mock/sglang_service.hpp"
#include "net/event.hpp"
#include "net/task_group.hpp"

namespace fairlead::mock {
namespace {

constexpr int kEngineFailure = 500;

// Starts a prefill half once its peer is there, or ends it.
net::Task<> meet(EngineState& state, const SglangRequest& request,
                 BootstrapRooms::PrefillHalf& half, SglangAnswer& answer, Generation& generation) {
  bool met = false;
  {
    const WaitingForPeer waiting(state);
    met =
        co_await half.met().wait_for(std::chrono::milliseconds(state.options.bootstrap_timeout_ms));
  }
  if (met) {
    generation.start();
    co_return;
  }
  answer.refuse({bootstrap_timeout_text(*request.room, request.spec.request_id, state.options),
                 kEngineFailure, false, false});
  answer.release();
  generation.give_up();
}

// Gets a decode half its first token, or ends it.
net::Task<> receive(EngineState& state, net::Dialer& dialer, const SglangRequest& request,
                    SglangAnswer& answer, Generation& generation) {
  co_await generation.admitted().wait();
  if (request.room->host == kNoTransferHost) {
    answer.set_first({});
    generation.kv_arrived(std::nullopt);
    co_return;
  }
  const WaitingForPeer waiting(state);
  const auto first =
      co_await receive_first_token(dialer, *request.room, request.spec.request_id, state.options);
  if (!first) {
    answer.refuse({first.error(), kEngineFailure, false, false});
    generation.give_up();
    co_return;
  }
  answer.set_first(*first);
  generation.kv_arrived(first->token);
}

}  // namespace

net::Task<> SglangService::run_prefill(SglangCall& call, const SglangRequest& request) {
  const std::size_t rank = request.spec.any_rank ? state_.least_loaded_rank() : request.spec.rank;
  EngineCore& core = *state_.cores[rank];
  SglangAnswer answer(request, state_.options, call, request.spec.request_id,
                      static_cast<std::uint32_t>(rank));
  answer.keep_last();
  Generation generation(state_, core, request.spec, answer, call.call.exchange());
  std::optional<BootstrapRooms::PrefillHalf> half;
  net::TaskGroup tasks;
  if (request.spec.awaits_peer) {
    half.emplace(rooms_, static_cast<std::uint32_t>(rank), request.room->room);
    tasks.spawn(meet(state_, request, *half, answer, generation));
  }
  co_await generation.run();
  if (generation.was_reset()) {
    co_await gate_.cut(call.call.exchange());
  }
  const auto first = answer.computed();
  if (!first || call.call.finished()) {
    co_return;
  }
  const BlockHold hold(state_, core, generation.take_blocks());
  const Nanos transfer = transfer_time(state_.options, request.spec.prompt.size());
  if (half && transfer > Nanos(0)) {
    co_await net::Sleep(transfer);
  }
  if (half) {
    half->deliver(*first);
  }
  answer.release();
}

net::Task<> SglangService::run_decode(SglangCall& call, const SglangRequest& request) {
  const auto room = std::tuple(request.room->host, request.room->port, request.room->room);
  struct Entry {
    decltype(decode_rooms_)& rooms;
    decltype(decode_rooms_)::iterator place;
    ~Entry() { rooms.erase(place); }
  };
  if (request.room->host != kNoTransferHost && decode_rooms_.contains(room)) {
    ++state_.room_reuse_total;
  }
  const Entry entry{decode_rooms_, decode_rooms_.insert(room)};
  const std::size_t rank = request.spec.any_rank ? state_.least_loaded_rank() : request.spec.rank;
  SglangAnswer answer(request, state_.options, call, request.spec.request_id,
                      static_cast<std::uint32_t>(rank));
  Generation generation(state_, *state_.cores[rank], request.spec, answer, call.call.exchange());
  net::TaskGroup tasks;
  tasks.spawn(receive(state_, dialer_, request, answer, generation));
  co_await generation.run();
  if (generation.was_reset()) {
    co_await gate_.cut(call.call.exchange());
  }
}

}  // namespace fairlead::mock
