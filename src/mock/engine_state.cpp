#include "mock/engine_state.hpp"

#include <algorithm>

namespace fairlead::mock {
namespace {

constexpr std::size_t kMaxReceived = 64;
constexpr std::size_t kMaxReceivedBytes = 64 * 1024 * 1024;

}  // namespace

void EngineState::record(std::string_view method, const net::http::HeaderList& headers,
                         std::string_view message) {
  received.push_back({std::string(method), headers, std::string(message)});
  received_bytes += message.size();
  while (received.size() > kMaxReceived ||
         (received_bytes > kMaxReceivedBytes && received.size() > 1)) {
    received_bytes -= received.front().message.size();
    received.pop_front();
  }
}

void EngineState::abort(std::string_view request_id) {
  aborted_ids.emplace_back(request_id);
  if (aborted_ids.size() > kMaxReceived) {
    aborted_ids.pop_front();
  }
  generations.for_each([&](AbortableRequest& request) {
    if (request.request_id() == request_id) {
      request.abort();
    }
  });
}

void EngineState::abort_all() {
  generations.for_each([](AbortableRequest& request) { request.abort(); });
}

EngineCore& EngineState::least_loaded() {
  const auto load = [](const std::unique_ptr<EngineCore>& core) {
    return core->scheduler().running() + core->scheduler().waiting();
  };
  return **std::ranges::min_element(cores, {}, load);
}

MockCounts EngineState::counts() const {
  MockCounts counts;
  for (const auto& core : cores) {
    counts.running += core->scheduler().running();
    counts.waiting += core->scheduler().waiting();
    counts.kv_blocks_used += core->pool().used();
  }
  counts.waiting += held;
  counts.requests_total = requests_total;
  counts.rejected_total = rejected_total;
  counts.finished_total = finished_total;
  counts.aborted_total = aborted_total;
  counts.faulted_total = faulted_total;
  return counts;
}

}  // namespace fairlead::mock
