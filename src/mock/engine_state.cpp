#include "mock/engine_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fairlead::mock {
namespace {

constexpr std::size_t kMaxReceived = 64;
constexpr std::size_t kMaxReceivedBytes = 64 * 1024 * 1024;
constexpr std::size_t kMaxRecords = 1000;
constexpr std::size_t kMaxRecordBytes = 16 * 1024 * 1024;

std::size_t size_of(const RequestRecord& record) {
  return record.request_id.size() + record.model.size() + record.extra_args.size() +
         record.sampling.size() + record.refusal.size();
}

}  // namespace

std::string lora_path(std::string_view lora) { return fmt::format("/adapters/{}", lora); }

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

void EngineState::add_record(RequestRecord record) {
  if (record.refusal.empty() && !record.extra_args.empty()) {
    ++requests_with_extra_args;
  }
  record_bytes += size_of(record);
  records.push_back(std::move(record));
  while (records.size() > kMaxRecords || (record_bytes > kMaxRecordBytes && records.size() > 1)) {
    record_bytes -= size_of(records.front());
    records.pop_front();
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

std::size_t EngineState::least_loaded_rank() const {
  const auto load = [](const std::unique_ptr<EngineCore>& core) {
    return core->scheduler().running() + core->scheduler().waiting();
  };
  return static_cast<std::size_t>(std::ranges::min_element(cores, {}, load) - cores.begin());
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

Check check_admission(const EngineState& state) {
  const std::size_t most = state.options.max_concurrent_requests;
  if (most > 0 && state.active >= most) {
    return Refusal{Refusal::Kind::Exhausted, "too many concurrent requests", {}};
  }
  if (state.paused) {
    return Refusal{Refusal::Kind::Unavailable, "generation is paused", {}};
  }
  return std::nullopt;
}

}  // namespace fairlead::mock
