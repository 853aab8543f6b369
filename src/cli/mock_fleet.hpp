#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "mock/mock_engine.hpp"
#include "mock/options.hpp"
#include "net/reactor.hpp"

namespace fairlead::cli {

/// Simulated engines of this process, in a reactor and thread of their own.
class MockFleet {
 public:
  /// Starts `count` engines of the same options, each on a free port of 127.0.0.1.
  static Result<std::unique_ptr<MockFleet>> start(std::size_t count, mock::MockOptions options);
  /// Stops them.
  ~MockFleet();
  MockFleet(const MockFleet&) = delete;
  MockFleet& operator=(const MockFleet&) = delete;

  /// `HOST:PORT` of each engine's gRPC interface.
  const std::vector<std::string>& addresses() const { return addresses_; }

 private:
  MockFleet() = default;

  net::Reactor reactor_{"mock-engines"};
  std::vector<std::unique_ptr<mock::MockEngine>> engines_;
  std::vector<std::string> addresses_;
  std::thread thread_;
};

}  // namespace fairlead::cli
