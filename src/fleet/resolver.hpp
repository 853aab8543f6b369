#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "net/reactor.hpp"
#include "net/socket.hpp"
#include "net/task.hpp"

namespace fairlead::fleet {

/// Looks host names up without blocking the reactor; the seam for tests.
class Resolver {
 public:
  virtual ~Resolver() = default;
  /// The addresses of a host, not empty on success. Destroying the task forgets the answer.
  virtual net::Task<Result<std::vector<net::Address>>> resolve(std::string host,
                                                               std::uint16_t port) = 0;
};

/// Asks the system's resolver on helper threads, each name on its own, so that one that hangs
/// delays no other. Numeric hosts are answered at once. Belongs to one reactor.
class ThreadResolver final : public Resolver {
 public:
  /// At most this many look-ups run at a time; further ones wait.
  static constexpr std::size_t kMaxThreads = 64;

  /// Answers arrive in `reactor`.
  explicit ThreadResolver(net::Reactor& reactor);
  /// Look-ups that still run are left to finish on their own; their answers are dropped.
  ~ThreadResolver() override;

  net::Task<Result<std::vector<net::Address>>> resolve(std::string host,
                                                       std::uint16_t port) override;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace fairlead::fleet
