#include "engine/client.hpp"

#include <utility>

#include "engine/vllm_grpc/client.hpp"

namespace fairlead::engine {

std::unique_ptr<EngineClient> make_client(net::Dialer& dialer, ClientOptions options) {
  switch (options.backend) {
    case Backend::Vllm: break;
  }
  return vllm_grpc::make_client(dialer, std::move(options));
}

}  // namespace fairlead::engine
