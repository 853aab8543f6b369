#include "engine/vllm_http/core.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/vllm_http/generate_call.hpp"

namespace fairlead::engine::vllm_http {
namespace {

constexpr auto kLingerTime = std::chrono::seconds(2);

/// Every running generation has its connection: many become idle at once.
net::http::ClientLimits client_limits() {
  net::http::ClientLimits limits;
  limits.idle_connections = 256;
  return limits;
}

}  // namespace

Core::Core(net::Dialer& dialer, ClientOptions options)
    : http(dialer, std::move(options.authority), std::move(options.addresses), client_limits()),
      dialect(dialect_from_text(options.dialect)),
      model(std::move(options.model)),
      sweep_timer_([this] { sweep(); }) {}

Core::~Core() = default;

void Core::linger(std::unique_ptr<GenerateCall> call) {
  if (lingering_.size() >= kMaxLingering) {
    lingering_.erase(lingering_.begin());
  }
  call->set_lingering();
  lingering_.push_back({std::move(call), net::Reactor::current()->now()});
  if (!sweep_timer_.armed()) {
    sweep_timer_.arm(kLingerTime);
  }
}

void Core::release(GenerateCall& call) {
  const auto found = std::ranges::find_if(
      lingering_, [&](const Lingering& entry) { return entry.call.get() == &call; });
  if (found != lingering_.end()) {
    net::Reactor::current()->destroy_later(std::move(found->call));
    lingering_.erase(found);
  }
}

void Core::sweep() {
  const net::TimePoint limit = net::Reactor::current()->now() - kLingerTime;
  std::erase_if(lingering_, [&](const Lingering& entry) { return entry.since <= limit; });
  if (!lingering_.empty()) {
    sweep_timer_.arm(kLingerTime);
  }
}

}  // namespace fairlead::engine::vllm_http
