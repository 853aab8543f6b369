#pragma once

#include <string_view>

#include "base/json.hpp"

namespace fairlead::engine {

/// True for the arguments with which engines hand KV caches and embeddings to each other:
/// `kv_transfer_params`, `ec_transfer_params`, `kv_hints` and `bootstrap_…`. Only this program sets
/// them, each in its own field of a request; a client that could would read other clients' caches.
bool is_connector_argument(std::string_view key);

/// Sets every member of `over` in `base`, which becomes an object when it is none; members of other
/// names stay.
void overlay_members(json::Value& base, const json::Object& over);

/// `defaults` (object or null) overlaid by `asked`, without connector arguments: what goes into
/// GenerateRequest::extra_args. Null when nothing is left. The defaults are not changed.
json::Value merge_extra_args(const json::Value& defaults, const json::Object& asked);

}  // namespace fairlead::engine
