#include "cli/mock_fleet.hpp"

#include <future>
#include <utility>

#include "net/task_group.hpp"

namespace fairlead::cli {
namespace {

using Started = Result<std::vector<std::string>>;

net::Task<> start_all(std::vector<std::unique_ptr<mock::MockEngine>>& engines,
                      std::promise<Started>& started) {
  std::vector<std::string> addresses;
  for (const auto& engine : engines) {
    const Result<mock::MockAddresses> bound = co_await engine->start();
    if (!bound) {
      started.set_value(std::unexpected(bound.error()));
      co_return;
    }
    addresses.push_back(bound->engine.to_string());
  }
  started.set_value(std::move(addresses));
}

}  // namespace

Result<std::unique_ptr<MockFleet>> MockFleet::start(std::size_t count, mock::MockOptions options) {
  std::unique_ptr<MockFleet> fleet(new MockFleet);
  options.listen_host = "127.0.0.1";
  options.listen_port = 0;
  for (std::size_t i = 0; i < count; ++i) {
    auto engine = mock::MockEngine::create(fleet->reactor_, options);
    if (!engine) {
      return std::unexpected(engine.error());
    }
    fleet->engines_.push_back(std::move(*engine));
  }
  std::promise<Started> promise;
  std::future<Started> started = promise.get_future();
  fleet->thread_ = std::thread([&fleet = *fleet, &promise] {
    net::TaskGroup tasks;
    fleet.reactor_.post([&] { tasks.spawn(start_all(fleet.engines_, promise)); });
    fleet.reactor_.run();
    fleet.reactor_.post([&] {
      tasks.cancel();
      fleet.engines_.clear();
    });
    fleet.reactor_.run_turn(net::Duration(0));
  });
  Started addresses = started.get();
  if (!addresses) {
    return std::unexpected(addresses.error());
  }
  fleet->addresses_ = std::move(*addresses);
  return fleet;
}

MockFleet::~MockFleet() {
  if (thread_.joinable()) {
    reactor_.stop();
    thread_.join();
  }
}

}  // namespace fairlead::cli
