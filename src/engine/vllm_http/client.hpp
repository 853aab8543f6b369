#pragma once

#include <memory>

#include "engine/client.hpp"

namespace fairlead::engine::vllm_http {

/// Makes a client of vLLM's token route over HTTP; see engine::make_client.
std::unique_ptr<EngineClient> make_client(net::Dialer& dialer, ClientOptions options);

}  // namespace fairlead::engine::vllm_http
