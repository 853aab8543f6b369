#pragma once

#include <cstddef>
#include <vector>

#include "kv/event_batch.hpp"
#include "kv/msgpack_reader.hpp"

namespace fairlead::kv {

/// Most keys of one batch, a multiple of the blocks it can hold.
inline constexpr std::size_t kMaxBatchExtraKeys = 1UL << 19U;

/// Reads the field `extra_keys` (nil, or per block nil or a list of keys): appends the keys that
/// matter to `out` and widens `slice` by them. False when it is something else, cut off or
/// too long.
bool decode_extra_keys(msgpack::Reader& reader, std::vector<ExtraKey>& out, Slice& slice);

/// Reads the field `block_mm_infos` (per block nil or its multimodal objects) likewise. What has
/// another shape is skipped; false only when it is cut off or too long.
bool decode_mm_infos(msgpack::Reader& reader, std::vector<ExtraKey>& out, Slice& slice);

}  // namespace fairlead::kv
