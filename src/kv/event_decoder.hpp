#pragma once

#include <cstddef>
#include <string_view>

#include "base/error.hpp"
#include "kv/event_batch.hpp"

namespace fairlead::kv {

/// Longest payload that is decoded: several times a batch that fills a large cache at once.
inline constexpr std::size_t kMaxBatchBytes = 16UL * 1024 * 1024;
/// Most events of one batch. Real ones hold a few per request of a step, and one per evicted block.
inline constexpr std::size_t kMaxBatchEvents = 1UL << 18U;

/// Decodes the payload of one message: every layout that releases of vLLM and SGLang publish,
/// mixed at will. Batches and events may be arrays or maps; arrays may be shorter or longer than
/// known, maps may hold further keys, and events of unknown types are counted and skipped. Whatever
/// else is not as it should be fails the whole batch as `EngineProtocol`, since an event half read
/// would corrupt the view of the cache; `out` then holds nothing of use.
Result<> decode_batch(std::string_view payload, EventBatch& out);

}  // namespace fairlead::kv
